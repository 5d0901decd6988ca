package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// asksListener is a program whose readiness, and health if the test wants, is asked on its own listener.
func asksListener(listen, scheme, more string, args ...string) string {
	words := ""
	for _, a := range append([]string{"note={dir}/note"}, args...) {
		words += `, "` + a + `"`
	}
	return `
[program.web]
command = [{worker}` + words + `]
` + more + `
[[program.web.listen]]
name = "http"
` + listen + `
[program.web.ready]
method = "http"
url = "` + scheme + `://{listener:http}/healthz"
interval = "50ms"
timeout = "20s"
`
}

const (
	onTCP    = `address = "127.0.0.1:0"`
	perSlots = onTCP + "\nper_slot = true"
)

// probesAnswered counts the probes that each generation and slot has answered.
func probesAnswered(m *lab.Supervisord) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(m.Read("note")) {
		if who, is := strings.CutSuffix(strings.TrimSpace(line), " asked"); is {
			count[who]++
		}
	}
	return count
}

func TestProbeOfTheListenerIsAnsweredByTheTrialAlone(t *testing.T) {
	for _, listen := range []string{onTCP, perSlots} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, asksListener(listen, "http", "", "boot=1ms"))
			m.Serves(1)
			l := lab.PressNew(t, m.Address(), 8, time.Millisecond)
			const reloads = 100
			for n := 2; n <= reloads+1; n++ {
				m.Reload()
				m.Serves(n)
			}
			l.Lossless(t)
			count := probesAnswered(m)
			for n := 1; n <= reloads+1; n++ {
				if got := count[fmt.Sprint(n, " 0")]; got != 1 {
					t.Errorf("generation %d answered %d probes, want its own", n, got)
				}
			}
			m.Never(lab.Says(lab.TrialFailed))
		})
	}
}

func TestVersionThatIsUpButUnwellIsNeverVisible(t *testing.T) {
	for _, listen := range []string{onTCP, perSlots} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			config := strings.Replace(asksListener(listen, "http", "workers = 2", "ill={dir}/ill"), `"20s"`, `"3s"`, 1)
			m := lab.Start(t, config)
			m.Serves(1)
			l := lab.PressNew(t, m.Address(), 20, time.Millisecond)
			m.File("ill", "")
			for n := 2; n <= 4; n++ {
				m.Reload()
				failed := m.Await(lab.Says(lab.TrialFailed), lab.Gen(n))
				if !strings.Contains(failed.Text, "not ready within ") { // 3 s, and more if supervisord itself had no CPU
					t.Error(failed.Text)
				}
			}
			count := probesAnswered(m)
			if count["2 0"] == 0 || count["3 0"]+count["3 1"] == 0 {
				t.Errorf("the trials were not asked: %v", count)
			}
			lab.Must(t, os.Remove(m.Path("ill")))
			m.Until("a later trial is well", func() bool {
				m.Reload()
				m.Settle()
				return m.Count(lab.Says(lab.GenerationServes)) > 1
			})
			answered, lost, generations := l.End()
			if len(lost) > 0 || answered == 0 || generations["2"]+generations["3"]+generations["4"] > 0 {
				t.Errorf("%d answers, by the generations %v; lost %v", answered, generations, lost)
			}
		})
	}
}
