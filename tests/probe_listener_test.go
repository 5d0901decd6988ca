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

func TestProbeOverHTTPS(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, asksListener(onTCP, "https", "", "tls"))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	if count := probesAnswered(m); count["1 0"] != 1 || count["2 0"] != 1 {
		t.Errorf("asked: %v", count)
	}
}

func TestProbeByTCPWaitsUntilTheWorkerAccepts(t *testing.T) {
	for _, listen := range []string{onTCP, perSlots} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			config := asksListener(listen, "http", "", "accept={dir}/gate")
			i := strings.Index(config, "method = ")
			m := lab.Prepare(t)
			gate := m.Gate("gate")
			m.Start(config[:i] + "method = \"tcp\"\naddress = \"{listener:http}\"\n")
			m.WorkerPID(1)
			m.Settle()
			m.Never(lab.Says(lab.GenerationServes))
			m.Open(gate)
			m.Serves(1)
		})
	}
}

func TestEverySlotAnswersItsOwnProbe(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, asksListener(perSlots, "http", "workers = 3"))
	m.Serves(1)
	for n := 2; n <= 10; n++ {
		m.Reload()
		m.Serves(n)
		m.Gone(n - 1)
	}
	for n := 1; n <= 10; n++ {
		for slot := range 3 {
			if who := fmt.Sprint(n, " ", slot); probesAnswered(m)[who] != 1 {
				t.Errorf("worker %s answered %d probes", who, probesAnswered(m)[who])
			}
		}
	}
}

// everyHealth asks for the health of workers on the listener.
const everyHealth = "[program.web.health]\nmethod = \"http\"\nurl = \"http://{listener:http}/healthz\"\n" +
	"interval = \"50ms\"\nfailures = 2\n"

func TestHealthOnTheListenerReachesTheSlot(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, asksListener(perSlots, "http", "workers = 3", "ill={dir}/ill")+everyHealth)
	m.Serves(1)
	m.File("ill.1", "") // for the worker in slot 1
	leaving := m.Await(lab.Says("worker is to be replaced"))
	lab.Must(t, os.Remove(m.Path("ill.1")))
	if leaving.Slot != 1 || !strings.Contains(leaving.Text, "failed 2 times in a row") {
		t.Error(leaving.Text)
	}
	m.Await(lab.Says(lab.WorkerTold), lab.PID(leaving.PID))
	for _, l := range m.AwaitN(1, lab.Says("worker is to be replaced")) {
		if l.Slot != 1 {
			t.Errorf("a well worker was replaced: %s", l.Text)
		}
	}
}

func TestHealthOnTheListenerGoesOnAfterUpgradeAndDeath(t *testing.T) {
	for _, listen := range []string{onTCP, perSlots} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, asksListener(listen, "http", "", "ill={dir}/ill")+everyHealth)
			m.Serves(1)
			m.Upgrade(lab.Upgraded)
			m.Reload()
			m.Serves(2)
			m.Gone(1)
			before := probesAnswered(m)["2 0"]
			m.Until("probes of the new generation", func() bool { return probesAnswered(m)["2 0"] > before+2 })
			m.Upgrade(lab.Upgraded)
			before = probesAnswered(m)["2 0"]
			m.Until("probes after the upgrade", func() bool { return probesAnswered(m)["2 0"] > before+2 })
			m.File("ill", "")
			m.Await(lab.Says("worker is to be replaced"), lab.Gen(2))
			lab.Must(t, os.Remove(m.Path("ill")))
			m.Until("the successor serves", func() bool { return len(m.Living()) == 1 })
		})
	}
}

func TestHealthOfAKeptGenerationIsWatched(t *testing.T) {
	for _, listen := range []string{onTCP, perSlots} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			config := asksListener(listen, "http", "", "ill={dir}/ill") + everyHealth + "[program.web.reload]\nkeep = \"1h\"\n"
			m := lab.Start(t, config)
			m.Serves(1)
			m.Write(strings.Replace(config, "ill={dir}/ill", "ill={dir}/other", 1))
			m.CtlOK("reload")
			before := probesAnswered(m)["1 0"]
			m.Until("probes of the kept generation", func() bool { return probesAnswered(m)["1 0"] > before+2 })
			m.File("ill", "")
			leaving := m.Await(lab.Says("worker is to be replaced"), lab.Gen(1))
			if !strings.Contains(leaving.Text, "failed 2 times in a row") {
				t.Error(leaving.Text)
			}
			m.Gone(1)
			m.Never(lab.Says("worker is to be replaced"), lab.Gen(2))
		})
	}
}
