package attack

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestReloadBehindATrialIsNotReplacedByACanary(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.TwoWorkers)
	m.Serves(1)
	m.Write(strings.Replace(lab.TwoWorkers, "{worker}", `{worker}, "gate=`+gate+`"`, 1))
	m.Reload()
	m.WorkerPID(2)
	m.Write(lab.TwoWorkers)
	m.Await(lab.Says(lab.ReloadQueued), lab.After(m.Reload()))
	m.CtlFails(1, []string{"generation 2 does not serve yet"}, "reload", "--canary", "1", "--hold")
	m.Until("both workers have passed the gate", func() bool {
		if f, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
		return m.Count(lab.Says(lab.GenerationServes), lab.Gen(2)) > 0
	})
	m.Serves(3)
	m.Never(lab.Says(lab.CanaryHeld))
}

func TestReloadDuringAHeldCanaryReportsThatItWaitsForADecision(t *testing.T) {
	t.Parallel()
	for name, end := range map[string][]string{"promote": {"promote"}, "abort": {"abort", "--then-reload"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.TwoWorkers)
			m.Serves(1)
			m.CtlOK("reload", "--canary", "1", "--hold")
			const waits = "generation 2, a canary, waits to be promoted or aborted"
			m.CtlFails(14, []string{"a reload waits until the canary is promoted (abort drops it)", "timed out waiting", waits},
				"reload", "--timeout", "1s")
			m.Signal(syscall.SIGHUP)
			if l := m.AwaitN(2, lab.Says(lab.ReloadHeld))[1]; l.Level != "warn" || l.Generation != 2 {
				t.Errorf("the log says %s", l.Text)
			}
			if out := m.CtlOK("status"); !strings.Contains(out, waits) {
				t.Errorf("the status is %s", out)
			}
			if out := m.CtlOK(append(end, "web")...); name == "abort" &&
				!strings.Contains(out, "the reload that waited (HUP, by signal HUP from attack.test (pid ") {
				t.Errorf("abort does not say that the queued reload is deployed at once: %s", out)
			}
			m.Serves(3)
			m.Never(lab.Says(lab.TrialBegan), lab.Gen(4))
		})
	}
}

// The reload would deploy the release that the canary showed to be bad.
func TestAbortDropsTheReloadsThatWaitBehindACanary(t *testing.T) {
	t.Parallel()
	const next = "[program.web.compat]\ngeneration = \"new\"\n"
	for name, canary := range map[string]string{"workers": "1", "share": "5%"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.TwoWorkers+next)
			m.Serves(1)
			m.Write(strings.Replace(lab.TwoWorkers, "[[", "environment = { WORD = \"bad\" }\n[[", 1) + next)
			m.CtlOK("reload", "--canary", canary, "--hold")
			waiting := m.CtlStart("reload", "web")
			waiting.Says("a reload waits")
			m.Signal(syscall.SIGHUP)
			m.AwaitN(2, lab.Says(lab.ReloadHeld))
			if out := m.CtlOK("abort", "web"); !strings.Contains(out, "is dropped") {
				t.Errorf("abort does not say that the waiting reload is dropped: %s", out)
			}
			if out := waiting.Ends(13); !strings.Contains(out, "abort") || !strings.Contains(out, "generation 1 still serves") {
				t.Errorf("the client of the waiting reload is told: %s", out)
			}
			lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
			m.Serves(4)
			if got := lab.Ask(t, m.Address(), "/"); strings.Contains(got, "bad") {
				t.Errorf("the answer is %s", got)
			}
		})
	}
}
