package tests

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// atListener answers at fd 3 with its generation and slot, and notes in the file asked.GENERATION.SLOT what it was
// asked. A path at which there is a file FOLDER/PATH.GENERATION.SLOT is answered with an error.
const atListener = `
import http.server, os, signal, socket, sys
me = os.environ['SUPERVISORD_GENERATION'] + '.' + os.environ['SUPERVISORD_SLOT']
class Answers(http.server.BaseHTTPRequestHandler):
    wbufsize = -1
    def do_GET(self):
        with open('{dir}/asked.' + me, 'a') as f: f.write(self.path + '\n')
        self.send_response(503 if os.path.exists('{dir}' + self.path + '.' + me) else 200)
        self.send_header('Content-Length', str(len(me)))
        self.end_headers()
        self.wfile.write(me.encode())
    def address_string(self): return ''
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(('', 0), Answers, bind_and_activate=False)
server.socket = socket.socket(fileno=3)
server.server_name, server.server_port = 'web', 0
signal.signal(signal.SIGTERM, lambda *a: os._exit(0))
server.serve_forever()
`

// asking is a program with atListener and these keys of its listener, and more tables.
func asking(t *testing.T, m *lab.Supervisord, listener, tables string) string {
	m.File("server.py", m.Fill(atListener))
	return fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/server.py"]
listen = [{ name = "http", %s }]
%s
`, interpreter(t, "python3", "-c print(__import__('sys').executable)"), listener, tables)
}

// asked are the paths that a worker was asked for.
func asked(m *lab.Supervisord, worker string) []string {
	text, _ := os.ReadFile(m.Path("asked." + worker))
	return strings.Fields(string(text))
}

func TestProbeOfTheProgramsListenerReachesTheTrialAndClientsDoNot(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(asking(t, m, `address = "127.0.0.1:0"`,
		`ready = { method = "http", url = "http://{listener:http}/ready", interval = "10ms", timeout = "20s" }`))
	m.Serves(1)
	address := m.Address()
	before := len(asked(m, "1.0"))
	m.File("ready.2.0", "")
	reload := m.CtlStart("reload")
	m.Until("the trial is asked", func() bool { return len(asked(m, "2.0")) >= 3 })
	for range 100 {
		if body := lab.Ask(t, address, "/client"); body != "1.0" {
			t.Fatalf("a client got the answer of %s", body)
		}
	}
	lab.Must(t, os.Remove(m.Path("ready.2.0")))
	reload.Ends(0)
	for range 100 {
		if body := lab.Ask(t, address, "/client"); body != "2.0" {
			t.Fatalf("after the reload a client got the answer of %s", body)
		}
	}
	if old := asked(m, "1.0")[before:]; slices.Contains(old, "/ready") {
		t.Errorf("a probe of the trial reached the serving generation: %q", old)
	}
	trial := asked(m, "2.0")
	if first := slices.Index(trial, "/client"); slices.Contains(trial[first:], "/ready") {
		t.Errorf("a client reached the trial between two probes: %q", trial)
	}
}

func TestTrialThatAnswersItsProbeBadlyNeverHadAClient(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(asking(t, m, `address = "127.0.0.1:0", per_slot = true`, `workers = 2
ready = { method = "http", url = "http://{listener:http}/ready", interval = "10ms" }`))
	m.Serves(1)
	m.File("ready.2.1", "")
	load := lab.Press(t, m.Address(), 4, 2*time.Millisecond)
	reload := m.CtlStart("reload")
	m.Until("both workers on trial are asked",
		func() bool { return len(asked(m, "2.0")) > 0 && len(asked(m, "2.1")) >= 3 })
	m.CtlOK("abort", "web")
	reload.Ends(13)
	load.Lossless(t)
	for _, worker := range []string{"2.0", "2.1"} {
		if paths := asked(m, worker); len(paths) == 0 ||
			slices.ContainsFunc(paths, func(p string) bool { return p != "/ready" }) {
			t.Errorf("worker %s was asked for %q", worker, paths)
		}
	}
}

func TestHealthCheckAtAListenerPerSlotReachesThatWorker(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(asking(t, m, `address = "127.0.0.1:0", per_slot = true`, `workers = 3
ready = { method = "tcp", address = "{listener:http}", interval = "10ms" }
health = { method = "http", url = "http://{listener:http}/health", interval = "20ms", failures = 2 }`))
	m.Serves(1)
	m.File("health.1.1", "")
	if e := m.Await(lab.Says(lab.WorkerTold)); e.Slot != 1 || e.Generation != 1 {
		t.Errorf("the unhealthy worker is in slot 1, but this happened: %s", e.Text)
	}
	lab.Must(t, os.Remove(m.Path("health.1.1")))
	for _, worker := range []string{"1.0", "1.2"} {
		m.Until("the others are asked, too", func() bool { return slices.Contains(asked(m, worker), "/health") })
	}
}
