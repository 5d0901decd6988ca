package tests

import (
	"os"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

const (
	oldWouldAnswer     = "an old worker would answer for a new one"
	servingWouldAnswer = "it would answer for the one on trial: write "
	anyWouldAnswer     = "where any worker of the generation that serves answers: write "
)

// askedAt is lab.Web with a probe in place of READY=1.
func askedAt(table, probe string) string {
	if table == "ready" {
		return strings.Replace(lab.Web, `method = "notify"`, probe, 1)
	}
	return lab.Web + "[program.web." + table + "]\n" + probe + "\n"
}

func TestCheckRefusesAProbeAtTheAddressOfAListener(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	for _, c := range []struct{ table, listen, probe, shared, steered string }{
		{"ready", "127.0.0.1:18600", "method = \"http\"\nurl = \"http://127.0.0.1:18600/healthz\"", oldWouldAnswer,
			servingWouldAnswer + `url = "http://{listener:http}/healthz"`},
		{"ready", ":18600", "method = \"tcp\"\naddress = \"localhost:18600\"", oldWouldAnswer,
			servingWouldAnswer + `address = "{listener:http}"`},
		{"health", "[::]:18600", "method = \"http\"\nurl = \"http://[::1]:18600/\"",
			"a healthy one would answer for one that hangs", anyWouldAnswer + `url = "http://{listener:http}/"`},
	} {
		for handover, want := range map[string]string{"share": c.shared, "steer": c.steered} {
			m.Write(strings.Replace(askedAt(c.table, c.probe), `"127.0.0.1:0"`, `"`+c.listen+"\"\nhandover = \""+handover+`"`,
				1))
			if out, code := m.Ctl("check"); code != 78 || !strings.Contains(out, want) ||
				!strings.Contains(out, "config.toml:") {
				t.Errorf("%+v, %s: exit code %d: %s", c, handover, code, out)
			}
		}
	}
}

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

// TestReloadToAProbeOfASharedListenerChangesNothing uses a port that the kernel chooses, so only the running
// supervisord knows it.
func TestReloadToAProbeOfASharedListenerChangesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for _, c := range []struct{ table, probe string }{
		{"ready", "method = \"http\"\nurl = \"http://" + m.Address() + "/\""},
		{"health", "method = \"tcp\"\naddress = \"" + m.Address() + "\""},
	} {
		m.Write(askedAt(c.table, c.probe))
		m.CtlOK("check") // check cannot know the port
		m.CtlFails(78, []string{"program.web." + c.table, "reaches the listener", m.Address()}, "reload")
	}
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
	m.Untouched(m.WorkerPID(1))
}

func TestReloadToAProbeOfAListenerOfOldWorkersChangesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write("[program.web]\ncommand = [{sleep}]\nready = { method = \"tcp\", address = \"" + m.Address() + "\" }\n")
	m.CtlFails(78, []string{"nothing has changed:\n" + m.Path("config.toml") + ":", oldWouldAnswer}, "reload")
	m.Untouched(m.WorkerPID(1))
}
