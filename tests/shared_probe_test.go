package tests

import (
	"os"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestProbeOfAUnixSocketMustBeTheWorkersOwn(t *testing.T) {
	t.Parallel()
	lab.Need(t, "python3")
	m := lab.Prepare(t)
	const program = `
[program.web]
command = ["python3", "-c", """
import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind('{dir}/own/%d' % os.getpid())
s.listen(8)
while True: s.accept()[0].close()
"""]
listen = [{ name = "http", address = "unix:{dir}/web.sock" }]
`
	m.Write(program + "ready = { method = \"tcp\", address = \"unix:{dir}/own/../web.sock\" }\n")
	m.CtlFails(78, []string{"which all generations of web share: an old worker would answer for a new one"}, "check")
	lab.Must(t, os.Mkdir(m.Path("own"), 0o755))
	t.Cleanup(func() { os.RemoveAll(m.Path("own")) })
	m.Start(program + "ready = { method = \"tcp\", address = \"unix:{dir}/own/{pid}\", interval = \"20ms\", accepts = " +
		"false }\n")
	m.Serves(1)
	m.CtlOK("reload")
	m.Serves(2)
}
