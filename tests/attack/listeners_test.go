package attack

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// twoPrograms are a and b, each with a listener of the same name.
const twoPrograms = `
[program.a]
command = [{hello}, "-version", "A"]
[[program.a.listen]]
name = "http"
address = "ADDRESS_A"
[program.a.ready]
method = "notify"
[program.b]
command = [{hello}, "-version", "B"]
[[program.b.listen]]
name = "http"
address = "ADDRESS_B"
[program.b.ready]
method = "notify"
`

func programsAt(a, b string) string {
	return strings.NewReplacer("ADDRESS_A", a, "ADDRESS_B", b).Replace(twoPrograms)
}

// answers checks repeatedly that the program answers at its address.
func answers(t *testing.T, m *lab.Supervisord, program, version string) {
	t.Helper()
	for _, p := range m.Status().Programs {
		if p.Name != program {
			continue
		}
		for range 20 {
			if body := lab.Ask(t, p.Listeners[0].Address, "/"); !strings.Contains(body, "version="+version) {
				t.Fatalf("program %s: %s", program, body)
			}
		}
	}
}

func TestProgramsWithPortsThatTheKernelChoosesDoNotShareThem(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, programsAt("127.0.0.1:0", "127.0.0.1:0"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("a"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("b"))
	answers(t, m, "a", "A")
	answers(t, m, "b", "B")
}

func TestProgramsThatWantOneAddressAreRefused(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	_, port, _ := strings.Cut(address, ":")
	m := lab.Start(t, programsAt(address, "127.0.0.1:0"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("a"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("b"))
	for _, other := range []string{"localhost:" + port, "127.0.0.1:0" + port, "0.0.0.0:" + port, ":" + port,
		"[::ffff:127.0.0.1]:" + port} {
		m.Write(programsAt(address, other))
		words := []string{other + " overlaps " + address, "program.b.listen[0].address", "the address of program.a.listen[0]",
			"config.toml:"}
		out, code := m.Run("check", "-c", m.Path("config.toml"))
		for _, word := range words {
			if code == 0 || !strings.Contains(out, word) {
				t.Errorf("check of %s: exit status %d, without %q: %s", other, code, word, out)
			}
		}
		m.CtlFails(78, words, "reload")
	}
	answers(t, m, "a", "A")
	answers(t, m, "b", "B")
}

func TestListenerAtTheAddressOfThePageIsRefused(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	m := lab.Prepare(t)
	m.Write("http = \"" + address + "\"\n" + lab.WebAt(strings.Replace(address, "127.0.0.1", "localhost", 1)))
	out, code := m.Run("check", "-c", m.Path("config.toml"))
	if code == 0 || !strings.Contains(out, " overlaps "+address+", the address of supervisor.http (") {
		t.Errorf("exit status %d: %s", code, out)
	}
}
