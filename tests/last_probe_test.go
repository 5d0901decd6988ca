package tests

import (
	"fmt"
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
