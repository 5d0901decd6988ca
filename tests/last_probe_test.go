package tests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

// particular is a Python server that answers 400 unless the Host is www.example.com, as Django does, and 503 to /busy.
func particular(t *testing.T, tables string) string {
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	return fmt.Sprintf(`
[program.web]
command = [%q, "-c", '''
import http.server, socket
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if self.path == '/busy' else 200 if self.headers['Host'] == 'www.example.com' else 400)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *a): pass
s = http.server.HTTPServer(('', 0), H, bind_and_activate=False)
s.socket = socket.socket(fileno=3)
s.serve_forever()
''']
%s
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
`, python, tables)
}

func TestFailedTrialSaysTheLastAnswerToItsProbe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ready, says string }{
		"http": {`method = "http", url = "http://{listener:http}/"`,
			"the last probe of http://{listener:http}/ answered 400 Bad Request"},
		"busy": {`method = "http", url = "http://{listener:http}/busy", headers = { Host = "www.example.com" }`,
			"answered 503 Service Unavailable"},
		"refused": {`method = "http", url = "http://127.0.0.1:1/"`,
			"the last probe of http://127.0.0.1:1/: connect: connection refused"},
		"tcp": {`method = "tcp", address = "127.0.0.1:1"`, "the last probe of 127.0.0.1:1: connect: connection refused"},
		"exec": {`method = "exec", command = ["sh", "-c", "echo first >&2; echo no database >&2; exit 3"]`,
			"exited with status 3; its last line: no database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, particular(t, "ready = { timeout = \"1s\", "+c.ready+" }"))
			failed := m.Await(lab.Says(lab.TrialFailed))
			if want := "not ready within 1s: the last probe of "; !strings.HasPrefix(failed.Reason, want) ||
				!strings.Contains(failed.Reason, c.says) {
				t.Errorf("the log says %s", failed.Text)
			}
		})
	}
}

func TestProbeHasTheHeadersAndStatusesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	for _, ready := range []string{`url = "http://{listener:http}/", headers = { Host = "www.example.com" }`,
		`url = "http://{listener:http}/busy", status = [200, "500-503"]`} {
		m := lab.Start(t, particular(t,
			"ready = { method = \"http\", "+ready+" }\nhealth = { method = \"http\", interval = \"50ms\", failures = 1, "+ready+
				" }"))
		m.Serves(1)
		m.CtlOK("reload")
		m.Never(lab.Says("worker is to be replaced"))
		m.Finish()
	}
}

func TestFailedHealthCheckSaysItsLastAnswer(t *testing.T) {
	t.Parallel()
	for health, says := range map[string]string{
		`method = "http", url = "http://{listener:http}/"`: "its health check failed once in a row: " +
			"http://{listener:http}/ answered 400 Bad Request",
		`method = "exec", command = ["sh", "-c", "echo x >&2; exit 4"]`: "exited with status 4; its last line: x",
	} {
		m := lab.Start(t, particular(t, "health = { interval = \"50ms\", failures = 1, "+health+" }"))
		if told := m.Await(lab.Says("worker is to be replaced")); !strings.Contains(told.Reason, says) {
			t.Errorf("the log says %s", told.Text)
		}
		m.Signal(syscall.SIGTERM)
		m.Ends(0)
	}
}
