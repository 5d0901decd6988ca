package attack

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestProgramsWithPortsThatTheKernelChoosesDoNotShareThem(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+strings.ReplaceAll(lab.Hello, "program.web", "program.hello"))
	m.AwaitN(2, lab.Says(lab.GenerationServes))
	for _, p := range m.Status().Programs {
		for range 20 {
			if body := lab.Ask(t, p.Listeners[0].Address, "/"); strings.Contains(body, "hello") != (p.Name == "hello") {
				t.Fatalf("program %s: %s", p.Name, body)
			}
		}
	}
}
