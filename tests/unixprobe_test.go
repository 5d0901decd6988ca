package tests

import (
	"testing"

	"example.org/supervisord/internal/lab"
)

// onUnixSocket answers GET /health on a private unix socket, and any other request with 404.
const onUnixSocket = `
import http.server, os, socketserver
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200 if self.path == '/health' else 404); self.end_headers()
    def address_string(self): return 'unix'
path = '{dir}/%s.%s.sock' % (os.environ['SUPERVISORD_GENERATION'], os.environ['SUPERVISORD_SLOT'])
server = socketserver.UnixStreamServer(path, Answers)
os.chmod(path, 0o600)
import atexit, signal, sys
atexit.register(os.unlink, path); signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
server.serve_forever()
`

func TestProbesGoToUnixSocketsOfEachWorker(t *testing.T) {
	t.Parallel()
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := lab.Prepare(t)
	m.File("server.py", onUnixSocket)
	config := func(path string) string {
		return `
[program.web]
command = ["` + python + `", "{dir}/server.py"]
workers = 2
[program.web.ready]
method = "http"
url = "unix:{dir}/{generation}.{slot}.sock:` + path + `"
timeout = "20s"
[program.web.health]
method = "tcp"
address = "unix:{dir}/{generation}.{slot}.sock"
interval = "50ms"
failures = 1
`
	}
	m.Start(config("/health"))
	m.Serves(1)
	m.CtlOK("reload", "--drained", "--timeout", "20s")
	m.CtlOK("check")
	m.Write(config("/nothing"))
	m.CtlFails(14, nil, "reload", "--timeout", "1s") // 404: it is never ready
	m.Never(lab.Says(lab.WorkerTold), lab.Gen(2))    // the health probes kept succeeding
	m.CtlOK("abort", "web")
}
