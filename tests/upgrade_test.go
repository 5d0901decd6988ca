package tests

import (
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
)

// What the log says of an upgrade in place.
const (
	upgraded       = "supervisord goes on in the place of the image before"
	upgradeRefused = "upgrade refused; this supervisord goes on"
	upgradeFailed  = "upgrade failed: the new binary could not go on; this one is back"
	adopted        = "worker is adopted"
)

// withOwnBinary makes the supervisord to come run from a file of its own, which a test can replace.
func withOwnBinary(t *testing.T) *master {
	t.Helper()
	m := prepare(t)
	m.via = []string{"sh", "-c", "shift; exec " + m.path("supervisord") + ` "$@"`, "sh"}
	m.replace(built.supervisord)
	return m
}

// replace puts another program in the place of the binary, in one step.
func (m *master) replace(path string) {
	m.t.Helper()
	text, err := os.ReadFile(path)
	must(m.t, err)
	m.replaceBy(string(text), 0o755)
}

func (m *master) replaceBy(text string, mode os.FileMode) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.path("supervisord.new"), []byte(text), mode))
	must(m.t, os.Rename(m.path("supervisord.new"), m.path("supervisord")))
}

// upgrade sends USR2 and waits for the line in the log that answers it.
func (m *master) upgrade(want string) line {
	m.t.Helper()
	last := m.mark1()
	m.signal(syscall.SIGUSR2)
	return m.await(after(last), says(want))
}

// edit replaces one text in a file of the source.
type edit struct{ file, old, new string }

// variant builds a supervisord whose source differs: a real binary that fails, without a hook in the code that is tested.
func variant(t *testing.T, edits ...edit) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "variant")
	replace := map[string]string{}
	for i, e := range edits {
		source, err := filepath.Abs(filepath.Join("..", e.file))
		must(t, err)
		path := source
		if replace[source] != "" {
			path = replace[source]
		}
		text, err := os.ReadFile(path)
		must(t, err)
		if strings.Count(string(text), e.old) != 1 {
			t.Fatalf("%s has %q not once", e.file, e.old)
		}
		replace[source] = fmt.Sprintf("%s%d.go", name, i)
		must(t, os.WriteFile(replace[source], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o644))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	must(t, os.WriteFile(name+".json", overlay, 0o644))
	command := exec.Command("go", "build", "-overlay", name+".json", "-o", name, "./cmd/supervisord")
	command.Dir = ".."
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the variant: %v\n%s", err, out)
	}
	return name
}

// kinds counts the descriptors of a process by what they lead to. The directory of the notify sockets has another name each time.
func kinds(t *testing.T, pid int) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, to := range descriptors(t, pid) {
		kind, _, _ := strings.Cut(to, ":[")
		kind, _, _ = strings.Cut(kind, "/notify.")
		found[kind]++
	}
	return found
}

// upgrades is how many there are in a row.
const upgrades = 20

// twoWorkers is web with two of them.
var twoWorkers = strings.Replace(web, "\n[[", "\nworkers = 2\n[[", 1)

func TestTwentyUpgradesUnderLoadCostNoRequestNoWorkerAndNoDescriptor(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(pidFile + strings.ReplaceAll(twoWorkers, "{worker}", "{hello}"))
	m.serves(1)
	m.upgrade(upgraded) // what the first one opens, every one has
	workers := m.pids()
	m.settle() // what an upgrade itself needs is closed a moment later
	before := kinds(t, m.pid())
	load := press(t, m.address(), 8, time.Millisecond)
	for range upgrades {
		m.replace(built.supervisord)
		m.upgrade(upgraded)
	}
	load.lossless(t)
	if now := m.pids(); !slices.Equal(now, workers) {
		t.Errorf("the workers were %v and are %v", workers, now)
	}
	m.until(fmt.Sprintf("the descriptors are %v again", before), func() bool { return maps.Equal(kinds(t, m.pid()), before) })
	if got := number(m.path("p.pid")); got != m.pid() {
		t.Errorf("the pid file has %d, want %d", got, m.pid())
	}
	if out, code := m.run("-c", m.path("config.toml")); code != 1 || !strings.Contains(out, "already running") {
		t.Errorf("the pid file is not locked: exit code %d: %s", code, out)
	}
}

// pids are the workers, oldest first.
func (m *master) pids() []int {
	var found []int
	for _, p := range childrenOf(m.pid()) {
		if alive(p) {
			found = append(found, p)
		}
	}
	slices.Sort(found)
	return found
}

func childrenOf(pid int) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p := 0
		if fmt.Sscan(e.Name(), &p); p > 0 && status(p)["PPid"] == fmt.Sprint(pid) {
			found = append(found, p)
		}
	}
	return found
}

func TestUpgradesInAStormOfHUPsCostNoRequest(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(strings.ReplaceAll(twoWorkers, "{worker}", "{hello}"))
	m.serves(1)
	load := press(t, m.address(), 4, time.Millisecond)
	done := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				m.cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	})
	for range upgrades {
		m.upgrade(upgraded)
	}
	close(done)
	storm.Wait()
	last := m.reload()
	m.await(after(last), says(generationServes))
	m.until("two workers are left", func() bool { return len(m.pids()) == 2 })
	load.lossless(t)
}

func TestAnUpgradeToABrokenBinaryIsRefusedAndSaysWhy(t *testing.T) {
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
			m := withOwnBinary(t)
			m.start(web)
			m.serves(1)
			worker := m.worker(1)
			m.replaceBy(broken.text, broken.mode)
			if said := m.upgrade(upgradeRefused); !strings.Contains(said.text, broken.why) {
				t.Errorf("the log does not say %q: %s", broken.why, said.text)
			}
			m.works(worker)
		})
	}
}

// works checks that everything is as before a failed upgrade: the worker is there and serves, a reload works, and an upgrade.
func (m *master) works(worker int) {
	m.t.Helper()
	if now := m.pids(); !slices.Equal(now, []int{worker}) {
		m.t.Errorf("the worker was %d and is %v", worker, now)
	}
	address := m.address()
	ask(m.t, address, "/")
	last := m.reload()
	m.await(after(last), says(generationServes), gen(2))
	m.await(after(last), says(generationGone), gen(1))
	m.replace(built.supervisord)
	m.upgrade(upgraded)
	if said := ask(m.t, address, "/"); !strings.Contains(said, "generation=2") {
		m.t.Errorf("after it all %q serves", said)
	}
}

func TestAnUpgradeToABinaryThatHangsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	m.replaceBy("#!/bin/sh\nexec sleep 1000\n", 0o755)
	m.signal(syscall.SIGUSR2)
	m.until("the new binary is tried", func() bool {
		return slices.ContainsFunc(m.processes(), func(p int) bool { return cmdline(p) == "sleep 1000" })
	})
	last := m.reload()
	m.await(after(last), says(generationServes))
	m.signal(syscall.SIGTERM)
	m.ends(0) // sees that nothing is left
}

// broken is a supervisord that fails where the environment variable BROKEN says.
func broken(t *testing.T) string {
	t.Helper()
	fails := func(where string) string {
		return "if os.Getenv(\"BROKEN\") == \"" + where + "\" { return errors.New(\"broken on purpose\") }\n"
	}
	restore, end := "func (s *Supervisor) Restore(h *Handover) error {\n", "\ts.drop(h)\n\tc := &config.Config"
	spawned := "signal.Notify(l.chld, syscall.SIGCHLD)\n"
	return variant(t,
		edit{"supervisor/restore.go", "import (\n", "import (\n\t\"os\"\n"},
		edit{"supervisor/restore.go", restore, restore + fails("error") + "if os.Getenv(\"BROKEN\") == \"panic\" { panic(\"broken on purpose\") }\n"},
		edit{"supervisor/restore.go", end, fails("adopted") + end},
		edit{"worker/launcher.go", "\t" + spawned, "if os.Getenv(\"BROKEN\") == \"before\" { return nil, errors.New(\"broken on purpose\") }\n" + spawned},
	)
}

func TestANewBinaryThatCannotGoOnGivesThePlaceBack(t *testing.T) {
	t.Parallel()
	binary := broken(t)
	for where, what := range map[string]string{
		"error": "an error while it restores", "panic": "a panic while it restores",
		"adopted": "an error after it has adopted", "before": "an error before it restores",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := withOwnBinary(t)
			m.env = []string{"BROKEN=" + where}
			m.start(pidFile + web)
			m.serves(1)
			worker := m.worker(1)
			load := press(t, m.address(), 4, time.Millisecond)
			m.replace(binary)
			if said := m.upgrade(upgradeFailed); !strings.Contains(said.Reason, "broken on purpose") {
				t.Errorf("the log does not say why: %s", said.text)
			}
			if got := number(m.path("p.pid")); got != m.pid() {
				t.Errorf("the pid file has %d, want %d", got, m.pid())
			}
			load.lossless(t)
			m.works(worker)
		})
	}
}

func TestAnOlderBinaryRefusesTheStateOfANewerOneAndANewerOneReadsAnOlders(t *testing.T) {
	t.Parallel()
	newer := variant(t, edit{"supervisor/record.go", "const recordVersion = 1\n", "const recordVersion = 2\n"})
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	m.replace(newer)
	m.upgrade(upgraded)
	m.replace(built.supervisord)
	if said := m.upgrade(upgradeRefused); !strings.Contains(said.text, "version 2") {
		t.Errorf("the log does not say that the version is wrong: %s", said.text)
	}
	last := m.reload()
	m.await(after(last), says(generationServes), gen(2))
}

func TestAStateThatIsCutOffOrDamagedIsRefused(t *testing.T) {
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
		m := prepare(t)
		m.write(web)
		f, err := os.Open(m.file("state", text))
		must(t, err)
		command := exec.Command(built.supervisord, "check-handover", "-c", m.path("config.toml"))
		command.ExtraFiles = []*os.File{f}
		if out, err := command.CombinedOutput(); err == nil {
			t.Errorf("%s: it is taken: %s", what, out)
		}
		f.Close()
	}
}

func TestAnUpgradeIsRefusedWhereTheConfigurationIsWrong(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	worker := m.worker(1)
	m.write(web + "\nnonsense = 1\n")
	if said := m.upgrade(upgradeRefused); !strings.Contains(said.text, "nonsense") {
		t.Errorf("the log does not say why: %s", said.text)
	}
	m.write(web)
	m.works(worker)
}

func TestAWorkerThatDiesDuringAnUpgradeIsReplaced(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(strings.Replace(web, "\n[[", "\nrestart = { backoff = { min = \"10ms\", max = \"10ms\" } }\n[[", 1))
	m.serves(1)
	for range 10 {
		worker := m.pids()[0]
		last := m.mark1()
		m.signal(syscall.SIGUSR2)
		must(t, syscall.Kill(worker, syscall.SIGKILL))
		m.await(after(last), says(workerDied), pid(worker))
		m.await(after(last), says(upgraded))
		m.until("another worker serves", func() bool {
			now := m.pids()
			return len(now) == 1 && now[0] != worker && len(addresses(t, now[0])) > 0
		})
		m.await(after(last), says(workerReady))
	}
}

func TestATrialGoesOnOverAnUpgrade(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	must(t, syscall.Mkfifo(m.path("gate"), 0o600))
	m.start(web)
	m.serves(1)
	first := m.worker(1)
	m.write(webWith("gate={dir}/gate"))
	m.reload()
	trial := m.worker(2)
	last := m.upgrade(upgraded)
	gate, err := os.OpenFile(m.path("gate"), os.O_WRONLY, 0) // opens when the worker has
	must(t, err)
	gate.Close()
	m.await(after(last), says(generationServes), gen(2))
	m.await(after(last), says(generationGone), gen(1))
	if now := m.pids(); !slices.Equal(now, []int{trial}) {
		t.Errorf("the workers are %v; %d was on trial, %d served before", now, trial, first)
	}
}

func TestAWorkerThatGetsReadyWhileSupervisordIsReplacedIsNotOverlooked(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	for generation := 2; generation <= 11; generation++ {
		last := m.mark1()
		m.write(webWith(fmt.Sprintf("boot=%dms", generation*3)))
		m.signal(syscall.SIGHUP)
		m.await(after(last), says(workerRuns))
		m.signal(syscall.SIGUSR2)
		m.await(after(last), says(upgraded))
		m.await(after(last), says(generationServes))
	}
}

func TestAWorkerThatIsToldToStopIsToldOnceAndKilledInTimeOverAnUpgrade(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(webWith("note={dir}/notes", "term=ignore") + "[program.web.stop]\ntimeout = \"2s\"\n")
	m.serves(1)
	old := m.worker(1)
	m.write(webWith("note={dir}/notes"))
	m.reload()
	m.serves(2)
	last := m.upgrade(upgraded)
	m.await(after(last), says(workerKilled), pid(old))
	m.await(after(last), says(generationGone), gen(1))
	if n := strings.Count(m.read("notes"), "1 0 TERM\n"); n != 1 {
		t.Errorf("the old worker was told %d times: %q", n, m.read("notes"))
	}
}

func TestAnUpgradeKeepsTheLogPipes(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(strings.Replace(plain, "{sleep}", `"sh", "-c", "while :; do echo line; sleep 0.01; done"`, 1) + "stdout = \"{dir}/out.log\"\n")
	m.serves(1)
	m.until("it writes", func() bool { return size(m.path("out.log")) > 0 })
	m.upgrade(upgraded)
	before := size(m.path("out.log"))
	m.until("it writes on", func() bool { return size(m.path("out.log")) > before+50 })
	for text := range strings.Lines(m.read("out.log")) {
		if text != "line\n" {
			t.Errorf("the log has %q", text)
		}
	}
}

func TestTheUpgradeCommandWaitsUntilTheNewImageAnswers(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	m.write(webWith("exit=3"))
	m.fails(11, nil, "reload")
	worker := m.worker(1)
	last := m.mark1()
	if out := m.well("upgrade"); !strings.Contains(out, fmt.Sprintf("goes on as PID %d", m.pid())) {
		t.Errorf("it says %q", out)
	}
	m.await(after(last), says(upgraded))
	if now := m.pids(); !slices.Equal(now, []int{worker}) {
		t.Errorf("the worker was %d and is %v", worker, now)
	}
	if out := m.well("status"); !strings.Contains(out, "last reload: generation 2 failed at step start: exited with status 3") {
		t.Errorf("after the upgrade the status is %s", out)
	}
}

func TestTheUpgradeCommandSaysWhyABinaryIsRefused(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	m.replaceBy("#!/bin/sh\necho this is why >&2\nexit 1\n", 0o755)
	m.fails(1, []string{"this is why", "this supervisord goes on"}, "upgrade")
	m.await(says(upgradeRefused), contains("this is why"))
	if out := m.well("status"); !strings.Contains(out, "the last upgrade failed: ") || !strings.Contains(out, "this is why") {
		t.Errorf("the status is %s", out)
	}
	m.works(m.worker(1))
	if out := m.well("status"); strings.Contains(out, "upgrade failed") {
		t.Errorf("after one that went well the status is %s", out)
	}
}

func TestTheUpgradeCommandSaysWhyANewBinaryGaveThePlaceBack(t *testing.T) {
	t.Parallel()
	binary := broken(t)
	m := withOwnBinary(t)
	m.env = []string{"BROKEN=adopted"}
	m.start(web)
	m.serves(1)
	m.replace(binary)
	m.fails(1, []string{"upgrade failed", "broken on purpose"}, "upgrade")
	m.await(says(upgradeFailed))
	m.works(m.worker(1))
}

func TestTwoUpgradesAtOnceAreOne(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	gate := m.fifo("gate")
	m.replaceBy("#!/bin/sh\ncat "+gate+"\nexec "+built.supervisord+" \"$@\"\n", 0o755)
	a := m.asks("upgrade")
	m.await(says("upgrade: trying the new binary"))
	m.fails(1, []string{"an upgrade is under way"}, "upgrade")
	m.signal(syscall.SIGUSR2)
	m.await(says("USR2: nothing happens"), contains("an upgrade is under way"))
	m.replace(built.supervisord)
	m.open(gate)
	a.ends(0)
}
