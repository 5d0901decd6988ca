package attack

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestPIDFileThatHoldsSomethingElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	for _, text := range []string{"my data\n", "12 13\n", "4711x", strings.Repeat("1", 100), "-5\n", " \n"} {
		m.File("precious", text)
		m.Write("pid_file = \"{dir}/precious\"\n" + lab.Web)
		if out, code := m.Run("-c", m.Path("config.toml")); code != 1 ||
			!strings.Contains(out, m.Path("precious")+": holds something other than a process ID") {
			t.Errorf("%q: exit code %d: %s", text, code, out)
		}
		if got := m.Read("precious"); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestEmptyPIDFileIsTakenOver(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("p.pid", "")
	m.Start(lab.PIDFile + lab.Web)
	m.Serves(1)
	if got := lab.Number(m.Path("p.pid")); got != m.PID() {
		t.Errorf("the pid file has %d, want %d", got, m.PID())
	}
}
