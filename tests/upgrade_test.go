package tests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// upgrades is the number of upgrades in a row.
const upgrades = 20

func TestTwentyUpgradesUnderLoadLoseNoRequestWorkerOrDescriptor(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.PIDFile + strings.ReplaceAll(lab.TwoWorkers, "{worker}", "{hello}"))
	m.Serves(1)
	m.Upgrade(lab.Upgraded) // the first upgrade opens descriptors that stay
	workers := m.PIDs()
	m.Settle() // an upgrade closes its own descriptors a moment later
	before := lab.DescriptorKinds(t, m.PID())
	load := lab.Press(t, m.Address(), 8, time.Millisecond)
	for range upgrades {
		m.Replace(lab.Built.Supervisord)
		m.Upgrade(lab.Upgraded)
	}
	load.Lossless(t)
	if now := m.PIDs(); !slices.Equal(now, workers) {
		t.Errorf("the workers were %v and are %v", workers, now)
	}
	m.Until(fmt.Sprintf("the descriptors are %v again", before),
		func() bool { return maps.Equal(lab.DescriptorKinds(t, m.PID()), before) })
	if got := lab.Number(m.Path("p.pid")); got != m.PID() {
		t.Errorf("the pid file has %d, want %d", got, m.PID())
	}
	if out, code := m.Run("-c", m.Path("config.toml")); code != 1 || !strings.Contains(out, "already running") {
		t.Errorf("the pid file is not locked: exit code %d: %s", code, out)
	}
}

func TestUpgradesInAStormOfHUPsLoseNoRequest(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(strings.ReplaceAll(lab.TwoWorkers, "{worker}", "{hello}"))
	m.Serves(1)
	load := lab.Press(t, m.Address(), 4, time.Millisecond)
	done := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				m.Cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	})
	for range upgrades {
		m.Upgrade(lab.Upgraded)
	}
	close(done)
	storm.Wait()
	last := m.Reload()
	m.Await(lab.After(last), lab.Says(lab.GenerationServes))
	m.Until("two workers are left", func() bool { return len(m.PIDs()) == 2 })
	load.Lossless(t)
}

// breaks are edits of the source for a supervisord that, as a new image, fails as the environment variable BROKEN says;
// of the two of a file, one is import. Right before it executes another image, it sends itself the signal whose number
// is in RAISE. A real binary that fails needs no hook in the code under test.
var breaks = []struct{ file, old, new string }{
	{"supervisor/restore.go", "func (s *Supervisor) Restore(h *record.Inheritance) {\n",
		"$OLD" + back("panic", "panic(why)")},
	{"internal/daemon/setup.go", "\td.supervisor.Restore(d.handover)\n",
		back("error", "return errors.New(why)") + "$OLD" + back("adopted", "return errors.New(why)")},
	{"worker/launcher.go", "\tsignal.Notify(l.chld, syscall.SIGCHLD)\n",
		back("before", "return nil, errors.New(why)") + "$OLD"},
	{"supervisor/upgrade.go", "\treturn record.Execute(recordSource{d.s}",
		"if n, err := strconv.Atoi(os.Getenv(`RAISE`)); err == nil { syscall.Kill(os.Getpid(), syscall.Signal(n)) }\n$OLD"},
	{"supervisor/upgrade.go", "import (\n", "$OLD\t\"strconv\"\n\t\"syscall\"\n"},
	{"supervisor/record/record.go", "const recordVersion = ",
		"var recordVersion = map[string]int{`older`: -1, `newer`: 1}[os.Getenv(`BROKEN`)] + "},
	{"socket/handover.go", "`^s\\.[ -~]*\\.",
		"map[bool]string{true: `^S`, false: `^s`}[os.Getenv(`BROKEN`) == `socket`] + `\\.[ -~]*\\."},
	{"supervisor/resources.go", "\tseat := g.seat(w)\n",
		"$OLD\tif os.Getenv(`BROKEN`) == `taking` { panic(`on the way`) }\n"},
}

// back is a statement for a new image that rolls back where BROKEN is this.
func back(where, statement string) string {
	return "\tif why := `broken on purpose`; os.Getenv(`BROKEN`) == `" + where + "` && " +
		"os.Getenv(`SUPERVISORD_FALLBACK`) != `` { " + statement + " }\n"
}

// broken builds, once, the supervisord of breaks.
var broken = sync.OnceValues(func() (string, error) {
	replace, edited := map[string]string{}, map[string]string{}
	for _, b := range breaks {
		text := cmp.Or(edited[b.file], lab.Text(lab.Root(b.file)))
		if strings.Count(text, b.old) != 1 {
			return "", fmt.Errorf("%s does not contain exactly one %q", b.file, b.old)
		}
		edited[b.file] = strings.Replace(text, b.old, strings.ReplaceAll(b.new, "$OLD", b.old), 1)
	}
	for file, text := range edited {
		if !strings.Contains(text, "\t\"os\"\n") {
			text = strings.Replace(text, "import (\n", "import (\n\t\"os\"\n", 1)
		}
		to := filepath.Join(lab.Built.Dir, "broken-"+strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[lab.Root(file)] = to
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": replace})
	path := filepath.Join(lab.Built.Dir, "broken")
	if err := os.WriteFile(path+".json", overlay, 0o644); err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-C", lab.Root(""), "-overlay", path+".json", "-o", path, "./cmd/supervisord")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// withBroken is lab.WithOwnBinary with the path of broken, which fails in this way.
func withBroken(t *testing.T, way string) (m *lab.Supervisord, path string) {
	t.Helper()
	path, err := broken()
	lab.Must(t, err)
	m = lab.WithOwnBinary(t)
	m.Env = []string{"BROKEN=" + way}
	return m, path
}

func TestNewBinaryThatFailsAfterExecRollsBackToTheOldOne(t *testing.T) {
	t.Parallel()
	for where, what := range map[string]string{
		"error": "an error while it restores", "panic": "a panic while it restores",
		"adopted": "an error after it has adopted", "before": "an error before it restores",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m, binary := withBroken(t, where)
			m.Start(lab.PIDFile + lab.Web)
			m.Serves(1)
			worker := m.WorkerPID(1)
			load := lab.Press(t, m.Address(), 4, time.Millisecond)
			m.Replace(binary)
			if said := m.Upgrade(lab.UpgradeFailed); !strings.Contains(said.Reason, "broken on purpose") {
				t.Errorf("the log does not say why: %s", said.Text)
			}
			if got := lab.Number(m.Path("p.pid")); got != m.PID() {
				t.Errorf("the pid file has %d, want %d", got, m.PID())
			}
			load.Lossless(t)
			m.Works(worker)
		})
	}
}

func TestSignalThatComesWhileAnUpgradeIsPreparedIsObeyed(t *testing.T) {
	t.Parallel()
	upgrade := func(t *testing.T, sig syscall.Signal, breaks, want string) (*lab.Supervisord, lab.Entry) {
		m, binary := withBroken(t, breaks)
		m.Replace(binary)
		m.Env = append(m.Env, fmt.Sprintf("RAISE=%d", sig))
		m.Start(lab.Web)
		m.Serves(1)
		return m, m.Upgrade(want)
	}
	for what, image := range map[string]struct{ breaks, want string }{
		"by the new image":              {"", lab.Upgraded},
		"by the old one, which is back": {"adopted", lab.UpgradeFailed},
	} {
		t.Run("HUP, "+what, func(t *testing.T) {
			t.Parallel()
			m, last := upgrade(t, syscall.SIGHUP, image.breaks, image.want)
			m.Await(lab.After(last), lab.Says(lab.GenerationServes), lab.Gen(2))
		})
		t.Run("TERM, "+what, func(t *testing.T) {
			t.Parallel()
			m, _ := upgrade(t, syscall.SIGTERM, image.breaks, image.want)
			m.Ends(0)
		})
	}
}

func TestUpgradeToABinaryThatCannotTakeOverIsRefused(t *testing.T) {
	t.Parallel()
	for way, why := range map[string]string{
		"older":  ": change between them by a restart",
		"newer":  ": change between them by a restart",
		"socket": "is not among those that are handed over",
		"taking": "on the way",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m, binary := withBroken(t, way)
			m.Start(lab.Web)
			m.Serves(1)
			m.Replace(binary)
			if said := m.Upgrade(lab.UpgradeRefused); !strings.Contains(said.Text, why) {
				t.Errorf("the log does not say %q: %s", why, said.Text)
			}
			m.Untouched(m.WorkerPID(1))
			m.Reload()
			m.Serves(2)
		})
	}
}

func TestWorkerThatDiesDuringAnUpgradeIsReplaced(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(strings.Replace(lab.Web, "\n[[", "\nrestart = { backoff = { min = \"10ms\", max = \"10ms\" } }\n[[", 1))
	m.Serves(1)
	for range 10 {
		worker := m.PIDs()[0]
		last := m.Last()
		m.Signal(syscall.SIGUSR2)
		lab.Must(t, syscall.Kill(worker, syscall.SIGKILL))
		m.Await(lab.After(last), lab.Says(lab.WorkerDied), lab.PID(worker))
		m.Await(lab.After(last), lab.Says(lab.Upgraded))
		m.Until("another worker serves", func() bool {
			now := m.PIDs()
			return len(now) == 1 && now[0] != worker && len(lab.Addresses(t, now[0])) > 0
		})
		m.Await(lab.After(last), lab.Says(lab.WorkerReady))
	}
}

func TestWorkerThatGetsReadyWhileSupervisordIsReplacedIsNotOverlooked(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	for generation := 2; generation <= 11; generation++ {
		last := m.Last()
		m.Write(lab.WebWith(fmt.Sprintf("boot=%dms", generation*3)))
		m.Signal(syscall.SIGHUP)
		m.Await(lab.After(last), lab.Says(lab.WorkerRuns))
		m.Signal(syscall.SIGUSR2)
		m.Await(lab.After(last), lab.Says(lab.Upgraded))
		m.Await(lab.After(last), lab.Says(lab.GenerationServes))
	}
}

func TestUpgradeCommandReportsWhyANewBinaryRolledBack(t *testing.T) {
	t.Parallel()
	m, binary := withBroken(t, "adopted")
	m.Start(lab.Web)
	m.Serves(1)
	m.Replace(binary)
	m.CtlFails(1, []string{"upgrade failed", "broken on purpose"}, "upgrade")
	m.Await(lab.Says(lab.UpgradeFailed))
	m.Works(m.WorkerPID(1))
}

// The kernel sends PR_SET_PDEATHSIG when the thread that forked ends, not the process.
func TestWorkersThatDieWithTheirParentOutliveUpgrades(t *testing.T) {
	t.Parallel()
	python := `import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])`
	for name, command := range map[string]string{
		"setpriv": `"setpriv", "--pdeathsig", "TERM", "--", {hello}`,
		"itself":  `"python3", "-c", "` + python + `", {hello}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.WithOwnBinary(t)
			m.Start(strings.Replace(strings.Replace(lab.Hello, "workers = 2", "workers = 4", 1), "{hello}", command, 1))
			m.Serves(1)
			for generation := 1; generation <= 3; generation++ { // each of its own image
				workers := m.PIDs()
				for range 2 {
					m.Upgrade(lab.Upgraded)
					lab.Ask(t, m.Address(), "/")
				}
				if now := m.PIDs(); !slices.Equal(now, workers) || len(now) != 4 {
					t.Fatalf("the workers were %v and are %v", workers, now)
				}
				m.Reload()
				m.Serves(generation + 1)
				m.Gone(generation)
			}
			m.Never(lab.Says("worker died"))
		})
	}
}
