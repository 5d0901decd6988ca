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
	done := make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			if code, text := m.Request("PUT", "/v1/log-level", `{"level":"info"}`); code != 200 {
				t.Errorf("request %d on the control socket, of one after the other: %d %s", n, code, text)
			}
		}
	})
	for range upgrades {
		m.Replace(lab.Built.Supervisord)
		m.Upgrade(lab.Upgraded)
	}
	close(done)
	clients.Wait()
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

// breaks are the statements that a binary that fails has in place of those of the source; what they call is in
// testdata/broken, a file for each package. As a new image it fails as the environment variable BROKEN says; before it
// executes another image, it sends itself the signal whose number is in RAISE.
var breaks = []struct{ file, statement, instead string }{
	{"internal/daemon/setup.go", "worker.NewLauncher(", "brokenLauncher("},
	{"internal/daemon/setup.go", "d.supervisor.Restore(d.handover)",
		"if err := d.brokenRestore(); err != nil { return err }"},
	{"supervisor/upgrade.go", "return record.Execute(recordSource{d.s}",
		"raise(); return record.Execute(recordSource{d.s}"},
	{"supervisor/resources.go", "seat := g.seat(w)", "unable(); seat := g.seat(w)"},
}

// broken builds, once, the supervisord of breaks.
var broken = sync.OnceValues(func() (string, error) {
	path := filepath.Join(lab.Built.Dir, "broken")
	replace := map[string]string{}
	for _, added := range []string{"internal/daemon", "supervisor", "socket"} {
		replace[lab.Root(added+"/broken.go")] = lab.Root("tests/testdata/broken/" + filepath.Base(added) + ".go")
	}
	for _, b := range breaks {
		file := lab.Root(b.file)
		text := lab.Text(cmp.Or(replace[file], file))
		if strings.Count(text, b.statement) != 1 {
			return "", fmt.Errorf("%s does not contain exactly one %q", b.file, b.statement)
		}
		replace[file] = path + strings.ReplaceAll(b.file, "/", "-")
		text = strings.Replace(text, b.statement, b.instead, 1)
		if err := os.WriteFile(replace[file], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": replace})
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
