package tests

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestSystemdNotifyCanSayREADYForAShellScript(t *testing.T) {
	t.Parallel()
	lab.Need(t, "systemd-notify")
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", "systemd-notify --ready; exec sleep 1000"]
ready.method = "notify"
`)
	m.Serves(1)
}

func TestWorkerThatNeverSendsREADYFailsTheTrialAtItsTimeout(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(lab.WebWith("hangif={dir}/hang") + "timeout = \"2s\"\n")
	m.Serves(1)
	m.File("hang", "")
	m.Reload()
	failed := m.Await(lab.Says(lab.TrialFailed))
	if failed.Generation != 2 || failed.Step != "ready" || failed.Serving != 1 ||
		!strings.Contains(failed.Reason, "not ready within ") || failed.TookDuration() < 2*time.Second {
		// a deadline that was seen late is moved
		t.Errorf("the log says %s", failed.Text)
	}
	m.Gone(2)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("afterwards the answer is %s", got)
	}
}

func TestDelayMakesAWorkerReadyAfterThisTime(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [{sleep}]\nready.delay = \"200ms\"\n")
	if l := m.Await(lab.Says(lab.WorkerReady)); l.TookDuration() < 200*time.Millisecond {
		t.Errorf("ready after %v", l.TookDuration())
	}
}

// probed is a worker that listens on a private port for probes beside its inherited socket.
func probed(t *testing.T, ready string) string {
	_, port, err := net.SplitHostPort(lab.Reserve(t))
	lab.Must(t, err)
	lab.Need(t, "python3")
	return strings.ReplaceAll(`
[program.web]
command = ["python3", "-c", """
import http.server, os, time
while os.path.exists('{dir}/hold'): time.sleep(0.01)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if self.path == '/ok/0/1' else 500); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(('127.0.0.1', {port}), H).serve_forever()
"""]
`+ready, "{port}", port)
}

func TestHTTPIsAnAnswerOfTheWorkersOwnAddress(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("hold", "")
	m.Start(probed(t, `ready = { method = "http", url = "http://127.0.0.1:{port}/ok/{slot}/{generation}", interval = `+
		`"20ms" }`))
	m.WorkerPID(1)
	lab.Must(t, os.Remove(m.Path("hold")))
	m.Serves(1)
}

func TestHTTPIsNotReadyWhileTheAnswerIsAnError(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, probed(t, `ready = { method = "http", url = "http://127.0.0.1:{port}/wrong", interval = "20ms", `+
		`timeout = "1s" }`))
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTCPIsAConnectionToTheWorkersOwnAddress(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("hold", "")
	m.Start(probed(t, `ready = { method = "tcp", address = "127.0.0.1:{port}", interval = "20ms" }`))
	m.WorkerPID(1)
	lab.Must(t, os.Remove(m.Path("hold")))
	m.Serves(1)
}
