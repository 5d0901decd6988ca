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
	load := lab.Press(t, m.Address(), 8, 5*time.Millisecond)
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

// breaks are the statements that a binary that fails has in place of those of the source; what they call is in
// testdata/broken, a file for each package. As a new image it fails as the file says that the environment variable
// BROKEN names; before it executes another image, it sends itself the signal whose number is in RAISE.
var breaks = []struct{ file, statement, instead string }{
	{"internal/daemon/setup.go", "worker.NewLauncher(", "brokenLauncher("},
	{"internal/daemon/setup.go", "d.supervisor.Restore(d.handover)",
		"if err := d.brokenRestore(); err != nil { return err }"},
	{"supervisor/upgrade.go", "return record.Execute(recordSource{d.s}",
		"raise(); return record.Execute(recordSource{d.s}"},
	{"supervisor/resources.go", "seat := g.seat(w)", "unable(); seat := g.seat(w)"},
}

// broken builds, once, the supervisord of breaks, as version 7.8.9.
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
	version := exec.Command(lab.Root("scripts/version"), "--ldflags")
	version.Env = append(os.Environ(), "VERSION=v7.8.9", "COMMIT=fedcba")
	flags, err := version.Output()
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-C", lab.Root(""), "-overlay", path+".json", "-o", path, "-ldflags",
		strings.TrimSpace(string(flags)), "./cmd/supervisord")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

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
