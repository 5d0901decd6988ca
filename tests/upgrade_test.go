package tests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
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

func TestUpgradeToABrokenBinaryIsRefusedWithReason(t *testing.T) {
	t.Parallel()
	for what, broken := range map[string]struct {
		text string
		mode os.FileMode
		why  string
	}{
		"not executable":    {"#!/bin/sh\n", 0o644, "permission denied"},
		"no program at all": {"nonsense", 0o755, "exec format error"},
		"it fails":          {"#!/bin/sh\necho this is why >&2\nexit 1\n", 0o755, "this is why"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := lab.WithOwnBinary(t)
			m.Start(lab.Web)
			m.Serves(1)
			worker := m.WorkerPID(1)
			m.ReplaceBy(broken.text, broken.mode)
			if said := m.Upgrade(lab.UpgradeRefused); !strings.Contains(said.Text, broken.why) {
				t.Errorf("the log does not say %q: %s", broken.why, said.Text)
			}
			m.Works(worker)
		})
	}
}

func TestUpgradeToAHangingBinaryDelaysNothing(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	m.ReplaceBy("#!/bin/sh\nexec sleep 1000\n", 0o755)
	m.Signal(syscall.SIGUSR2)
	m.Until("the new binary is tried", func() bool {
		return slices.ContainsFunc(m.Processes(), func(p int) bool { return lab.Cmdline(p) == "sleep 1000" })
	})
	last := m.Reload()
	m.Await(lab.After(last), lab.Says(lab.GenerationServes))
	m.Signal(syscall.SIGTERM)
	m.Ends(0) // checks that nothing is left
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
	{"supervisor/record/record.go", "const recordVersion = 9\n",
		"var recordVersion = 9 + map[string]int{`older`: -1, `newer`: 1}[os.Getenv(`BROKEN`)]\n"},
	{"socket/offer.go", "`^s\\.[ -~]*\\.",
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
		"older":  "reads only version 8: change between them by a restart",
		"newer":  "reads only version 10: change between them by a restart",
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

func TestTruncatedOrDamagedRecordIsRefused(t *testing.T) {
	t.Parallel()
	whole := `{"Version":1}`
	form := func(length int, sum uint32, text string) string {
		return fmt.Sprintf("supervisord-record %d %08x 0\n%s", length, sum, text)
	}
	sum := crc32.ChecksumIEEE([]byte(whole))
	for what, text := range map[string]string{
		"empty":     "",
		"cut off":   form(len(whole), sum, whole[:5]),
		"damaged":   form(len(whole), sum+1, whole),
		"too short": form(-1, sum, whole),
	} {
		m := lab.Prepare(t)
		m.Write(lab.Web)
		f, err := os.Open(m.File("state", text))
		lab.Must(t, err)
		command := exec.Command(lab.Built.Supervisord, "check-handover", "-c", m.Path("config.toml"))
		command.ExtraFiles = []*os.File{f}
		if out, err := command.CombinedOutput(); err == nil {
			t.Errorf("%s: it is accepted: %s", what, out)
		}
		f.Close()
	}
}

func TestUpgradeWithAnInvalidConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	worker := m.WorkerPID(1)
	m.Write(lab.Web + "\nnonsense = 1\n")
	if said := m.Upgrade(lab.UpgradeRefused); !strings.Contains(said.Text, "nonsense") {
		t.Errorf("the log does not say why: %s", said.Text)
	}
	m.Write(lab.Web)
	m.Works(worker)
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

func TestTrialSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	lab.Must(t, syscall.Mkfifo(m.Path("gate"), 0o600))
	m.Start(lab.Web)
	m.Serves(1)
	first := m.WorkerPID(1)
	m.Write(lab.WebWith("gate={dir}/gate"))
	m.Reload()
	trial := m.WorkerPID(2)
	last := m.Upgrade(lab.Upgraded)
	gate, err := os.OpenFile(m.Path("gate"), os.O_WRONLY, 0) // returns once the worker has opened it
	lab.Must(t, err)
	gate.Close()
	m.Await(lab.After(last), lab.Says(lab.GenerationServes), lab.Gen(2))
	m.Await(lab.After(last), lab.Says(lab.GenerationGone), lab.Gen(1))
	if now := m.PIDs(); !slices.Equal(now, []int{trial}) {
		t.Errorf("the workers are %v; %d was on trial, %d served before", now, trial, first)
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

func TestStoppingWorkerIsSignalledOnceAndKilledInTimeOverAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.WebWith("note={dir}/notes", "term=ignore") + "[program.web.stop]\ntimeout = \"2s\"\n")
	m.Serves(1)
	old := m.WorkerPID(1)
	m.Write(lab.WebWith("note={dir}/notes"))
	m.Reload()
	m.Serves(2)
	last := m.Upgrade(lab.Upgraded)
	m.Await(lab.After(last), lab.Says(lab.WorkerKilled), lab.PID(old))
	m.Await(lab.After(last), lab.Says(lab.GenerationGone), lab.Gen(1))
	if n := strings.Count(m.Read("notes"), "1 0 TERM\n"); n != 1 {
		t.Errorf("the old worker was signalled %d times: %q", n, m.Read("notes"))
	}
}

func TestUpgradeKeepsTheLogPipes(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(strings.Replace(lab.Plain, "{sleep}", `"sh", "-c", "while :; do echo line; sleep 0.01; done"`, 1) +
		"stdout = \"{dir}/out.log\"\n")
	m.Serves(1)
	m.Until("it writes", func() bool { return lab.Size(m.Path("out.log")) > 0 })
	m.Upgrade(lab.Upgraded)
	before := lab.Size(m.Path("out.log"))
	m.Until("it continues to write", func() bool { return lab.Size(m.Path("out.log")) > before+50 })
	for text := range strings.Lines(m.Read("out.log")) {
		if text != "line\n" {
			t.Errorf("the log has %q", text)
		}
	}
}

func TestUpgradeCommandWaitsUntilTheNewImageAnswers(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("exit=3"))
	m.CtlFails(11, nil, "reload")
	worker := m.WorkerPID(1)
	last := m.Last()
	if out := m.CtlOK("upgrade"); !strings.Contains(out, fmt.Sprintf("runs as PID %d", m.PID())) {
		t.Errorf("the output is %q", out)
	}
	m.Await(lab.After(last), lab.Says(lab.Upgraded))
	if now := m.PIDs(); !slices.Equal(now, []int{worker}) {
		t.Errorf("the worker was %d and is %v", worker, now)
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "last reload: generation 2 failed: worker ") {
		t.Errorf("after the upgrade the status is %s", out)
	}
}

func TestUpgradeCommandReportsWhyABinaryIsRefused(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	m.ReplaceBy("#!/bin/sh\necho this is why >&2\nexit 1\n", 0o755)
	m.CtlFails(1, []string{"this is why", "the running supervisord stays"}, "upgrade")
	m.Await(lab.Says(lab.UpgradeRefused), lab.Contains("this is why"))
	if out := m.CtlOK("status"); !strings.Contains(out, "the last upgrade failed: ") ||
		!strings.Contains(out, "this is why") {
		t.Errorf("the status is %s", out)
	}
	m.Works(m.WorkerPID(1))
	if out := m.CtlOK("status"); strings.Contains(out, "upgrade failed") {
		t.Errorf("after a successful upgrade the status is %s", out)
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

func TestTwoUpgradesAtOnceAreOne(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	gate := m.Gate("gate")
	m.ReplaceBy("#!/bin/sh\ncat "+gate+"\nexec "+lab.Built.Supervisord+" \"$@\"\n", 0o755)
	a := m.CtlStart("upgrade")
	m.Await(lab.Says("upgrade: checking the new binary"))
	m.CtlFails(1, []string{"an upgrade is under way"}, "upgrade")
	m.Signal(syscall.SIGUSR2)
	m.Await(lab.Says("USR2 is ignored"), lab.Contains("an upgrade is under way"))
	m.Replace(lab.Built.Supervisord)
	m.Open(gate)
	a.Ends(0)
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
