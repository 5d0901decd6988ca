package tests

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"
)

func TestAWorkerThatSaysREADYIsReady(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("boot=100ms"))
	if l := m.await(says(workerReady)); l.took() < 100*time.Millisecond || l.took() > 10*time.Second {
		t.Errorf("it took %v, and the worker takes 100ms", l.took())
	}
}

func TestAWorkerThatWritesANewlineToNotifyFDIsReady(t *testing.T) {
	t.Parallel()
	start(t, webWith("ready=newline")).serves(1)
}

func TestSystemdNotifyCanSayREADYForAShellScript(t *testing.T) {
	t.Parallel()
	need(t, "systemd-notify")
	m := start(t, `
[program.web]
command = ["sh", "-c", "systemd-notify --ready; exec sleep 1000"]
ready.method = "notify"
`)
	m.serves(1)
}

func TestAWorkerThatNeverSaysREADYFailsTheTrialAtItsTimeout(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(webWith("hangif={dir}/hang") + "timeout = \"300ms\"\n")
	m.serves(1)
	m.file("hang", "")
	m.reload()
	failed := m.await(says(trialFailed))
	if failed.Generation != 2 || failed.Step != "ready" || failed.Serving != 1 || !strings.Contains(failed.Reason, "not ready within 300ms") || failed.took() < 300*time.Millisecond {
		t.Errorf("the log says %s", failed.text)
	}
	m.gone(2)
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("after it there answers %s", got)
	}
}

func TestAWorkerMayAskForMoreTimeToGetReady(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("extend=20s", "boot=600ms")+"timeout = \"300ms\"\n")
	m.serves(1)
	m.never(says(trialFailed))
}

func TestDelayIsToHaveLivedForSoLong(t *testing.T) {
	t.Parallel()
	m := start(t, "[program.web]\ncommand = [{sleep}]\nready.delay = \"200ms\"\n")
	if l := m.await(says(workerReady)); l.took() < 200*time.Millisecond {
		t.Errorf("ready after %v", l.took())
	}
}

func TestAWorkerThatDiesWithinItsDelayFailsTheTrial(t *testing.T) {
	t.Parallel()
	m := start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"exit 7\"]\nready.delay = \"10s\"\n")
	if failed := m.await(says(trialFailed)); failed.Step != "start" || !strings.Contains(failed.Reason, "7") {
		t.Errorf("the log says %s", failed.text)
	}
}

// probed is a worker that listens on a port of its own, which supervisord asks, beside its inherited socket.
func probed(t *testing.T, ready string) string {
	_, port, err := net.SplitHostPort(ports.Reserve(t))
	must(t, err)
	need(t, "python3")
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
	m := prepare(t)
	m.file("hold", "")
	m.start(probed(t, `ready = { method = "http", url = "http://127.0.0.1:{port}/ok/{slot}/{generation}", interval = "20ms" }`))
	m.worker(1)
	must(t, os.Remove(m.path("hold")))
	m.serves(1)
}

func TestHTTPIsNotReadyWhileTheAnswerIsAnError(t *testing.T) {
	t.Parallel()
	m := start(t, probed(t, `ready = { method = "http", url = "http://127.0.0.1:{port}/wrong", interval = "20ms", timeout = "1s" }`))
	if failed := m.await(says(trialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestTCPIsAConnectionToTheWorkersOwnAddress(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("hold", "")
	m.start(probed(t, `ready = { method = "tcp", address = "127.0.0.1:{port}", interval = "20ms" }`))
	m.worker(1)
	must(t, os.Remove(m.path("hold")))
	m.serves(1)
}

func TestTCPFailsTheTrialWhereNobodyListens(t *testing.T) {
	t.Parallel()
	m := start(t, fmt.Sprintf("[program.web]\ncommand = [{sleep}]\nready = { method = \"tcp\", address = %q, interval = \"20ms\", timeout = \"300ms\" }\n", ports.Reserve(t)))
	if failed := m.await(says(trialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestExecIsACommandThatSucceeds(t *testing.T) {
	t.Parallel()
	m := start(t, `
[program.web]
command = [{sleep}]
[program.web.ready]
method = "exec"
command = ["sh", "-c", "test -e {dir}/ready && echo $1 $2 $3 >{dir}/asked", "sh", "{pid}", "{slot}", "{generation}"]
interval = "20ms"
`)
	p := m.worker(1)
	m.never(says(workerReady))
	m.file("ready", "")
	m.serves(1)
	if got, want := m.read("asked"), fmt.Sprintf("%d 0 1\n", p); got != want {
		t.Errorf("the command was given %q, want %q", got, want)
	}
}

func TestExecFailsTheTrialAtItsTimeout(t *testing.T) {
	t.Parallel()
	m := start(t, "[program.web]\ncommand = [{sleep}]\nready = { method = \"exec\", command = [\"sleep\", \"1000\"], timeout = \"300ms\" }\n")
	if failed := m.await(says(trialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.text)
	}
	m.gone(1)
}

// A probe of the socket that all generations share would be answered by the old one: what nobody can mistake is that of the worker.
func TestReadyOfOneWorkerIsNotThatOfAnother(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	gate := m.fifo("gate")
	m.start(webWith("gate="+gate) + "[[program.other.listen]]\naddress = \"127.0.0.1:0\"\n[program.other]\ncommand = [{worker}]\nready.method = \"notify\"\n")
	m.await(says(generationServes), program("other"))
	m.never(says(workerReady), program("web"))
	m.open(gate)
	m.await(says(generationServes), program("web"))
}

// fifo makes a gate at which workers wait.
func (m *master) fifo(name string) string {
	m.t.Helper()
	must(m.t, syscall.Mkfifo(m.path(name), 0o666))
	must(m.t, os.Chmod(m.path(name), 0o666))
	return m.path(name)
}

// open lets those pass who wait at a gate, or the next one who comes.
func (m *master) open(gate string) {
	m.t.Helper()
	var f *os.File
	m.until("somebody waits at the gate", func() (waits bool) {
		var err error
		f, err = os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	f.Close()
}
