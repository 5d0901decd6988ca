package tests

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestWorkerThatSendsREADYIsReady(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("boot=100ms"))
	if l := m.Await(lab.Says(lab.WorkerReady)); l.TookDuration() < 100*time.Millisecond ||
		l.TookDuration() > 10*time.Second {
		t.Errorf("ready after %v, but the worker takes 100ms", l.TookDuration())
	}
}

func TestWorkerThatWritesANewlineToNotifyFDIsReady(t *testing.T) {
	t.Parallel()
	lab.Start(t, lab.WebWith("ready=newline")).Serves(1)
}

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

func TestWorkerThatIsAwaitedIsToldOfOnce(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("hang", "")
	m.Start(strings.Replace(lab.WebWith("hangif={dir}/hang"), "[program.web]", "[program.web]\nworkers = 3", 1))
	const seen = "it has not said READY=1"
	m.Await(lab.Says("waiting for worker to be ready"), lab.Gen(1), lab.Contains(seen))
	if status := m.CtlOK("status", "web"); !strings.Contains(status, seen) {
		t.Errorf("the status is\n%s", status)
	}
	lab.Must(t, os.Remove(m.Path("hang")))
	m.CtlOK("restart", "web")
	if n := m.Count(lab.Says("waiting for worker to be ready"), lab.Gen(1)); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

func TestWorkerMayAskForMoreTimeToGetReady(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("extend=20s", "boot=3s")+"timeout = \"2s\"\n")
	m.Serves(1)
	m.Never(lab.Says(lab.TrialFailed))
}

func TestDelayMakesAWorkerReadyAfterThisTime(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [{sleep}]\nready.delay = \"200ms\"\n")
	if l := m.Await(lab.Says(lab.WorkerReady)); l.TookDuration() < 200*time.Millisecond {
		t.Errorf("ready after %v", l.TookDuration())
	}
}

func TestWorkerThatDiesWithinItsDelayFailsTheTrial(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"exit 7\"]\nready.delay = \"10s\"\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "start" || !strings.Contains(failed.Reason, "7") {
		t.Errorf("the log says %s", failed.Text)
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

func TestTCPProbeWithoutAListenerFailsTheTrial(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, fmt.Sprintf(
		"[program.web]\ncommand = [{sleep}]\n"+
			"ready = { method = \"tcp\", address = %q, interval = \"20ms\", timeout = \"300ms\" }\n", lab.Reserve(t)))
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestExecIsACommandThatSucceeds(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = [{sleep}]
[program.web.ready]
method = "exec"
command = ["sh", "-c", "test -e {dir}/ready && echo $1 $2 $3 >{dir}/asked", "sh", "{pid}", "{slot}", "{generation}"]
interval = "20ms"
`)
	p := m.WorkerPID(1)
	m.Never(lab.Says(lab.WorkerReady))
	m.File("ready", "")
	m.Serves(1)
	if got, want := m.Read("asked"), fmt.Sprintf("%d 0 1\n", p); got != want {
		t.Errorf("the command was given %q, want %q", got, want)
	}
}

func TestExecFailsTheTrialAtItsTimeout(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [{sleep}]\n"+
		"ready = { method = \"exec\", command = [\"sleep\", \"1000\"], timeout = \"300ms\" }\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.Text)
	}
	m.Gone(1)
}

// The old generation would answer a probe of the shared socket. Only a socket of the new worker itself proves that it
// is ready.
func TestReadyOfOneWorkerIsNotThatOfAnother(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.WebWith("gate="+gate) +
		"[[program.other.listen]]\naddress = \"127.0.0.1:0\"\n[program.other]\ncommand = [{worker}]\n" +
		"ready.method = \"notify\"\n")
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	m.Never(lab.Says(lab.WorkerReady), lab.Program("web"))
	m.Open(gate)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
}
