package attack

import (
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// many is a program with more workers than the queue of systemd's socket has room for messages.
func many(workers int) string {
	return strings.Replace(lab.Web, "\n[[", fmt.Sprintf("\nworkers = %d\n[[", workers), 1)
}

// leaveSignal is RTMIN+1 in the numbering of kill(1).
const leaveSignal = syscall.Signal(35)

// sameWorkers fails unless the latest supervisord has adopted these workers and none was told to stop.
func sameWorkers(m *lab.Supervisord, pids []int) {
	m.T.Helper()
	m.AwaitN(len(pids), lab.Says(lab.Adopted))
	for _, pid := range pids {
		if !lab.Alive(pid) {
			m.T.Errorf("worker %d is gone", pid)
		}
		m.Never(lab.Says(lab.WorkerTold), lab.PID(pid))
	}
	m.Never(lab.Contains("orphaned worker"))
	lab.Ask(m.T, m.Address(), "/")
}

func TestUpgradeWhileSystemdDoesNotReadLosesNoWorkerAtTheNextDeath(t *testing.T) {
	t.Parallel()
	sd, m := newSystemd(t), lab.Prepare(t)
	sd.Launches(m)
	sd.Pause()
	m.Start(many(12))
	m.Serves(1)
	workers := m.Living()
	m.Upgrade(lab.Upgraded)
	m.AwaitN(len(workers), lab.Says(lab.Adopted))
	sd.Resume()
	sd.AwaitStored(".pidfd", len(workers))
	sd.AwaitStored(".notify", len(workers))
	m.Die()
	sd.Launches(m)
	m.Launch("-c", m.Path("config.toml"))
	sameWorkers(m, workers)
}

func TestLeavingWhileSystemdDoesNotReadLosesNoWorker(t *testing.T) {
	t.Parallel()
	sd, m := newSystemd(t), lab.Prepare(t)
	sd.Launches(m)
	sd.Pause()
	m.Start(many(12))
	m.Serves(1)
	workers := m.Living()
	m.Signal(leaveSignal)
	m.Await(lab.Says("leaving as soon as systemd has the descriptors of the workers"))
	lab.Ask(t, m.Address(), "/")
	sd.Resume()
	m.Await(lab.Says("leaving; the workers keep running for the next supervisord"))
	m.Wait()
	sd.AwaitStored(".pidfd", len(workers))
	sd.Launches(m)
	m.Launch("-c", m.Path("config.toml"))
	sameWorkers(m, workers)
}

// The log messages about a full store.
const (
	storeTrouble = "systemd's file-descriptor store is not current; if supervisord dies, the workers concerned end and " +
		"new ones are started"
	storeCurrent = "systemd's file-descriptor store is current again"
)

// captured is a program whose workers have five descriptors each in the store.
const captured = `
[program.` + longName + `]
command = [{sleep}]
workers = 20
stdout = "capture"
stderr = "capture"
ready = { delay = "10ms" }
`

const longName = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

// reloadedAfterUpgrade has twice as many workers of captured after an upgrade, until the store is full, and for a while
// once more at a reload.
func reloadedAfterUpgrade(t *testing.T, sd *fakeSystemd) *lab.Supervisord {
	t.Helper()
	m := lab.Prepare(t)
	sd.Launches(m)
	m.Start(captured)
	m.Serves(1)
	sd.AwaitStored(".pidfd", 20)
	m.Upgrade(lab.Upgraded)
	m.AwaitN(20, lab.Says(lab.Adopted))
	m.CtlOK("scale", longName, "40")
	m.Await(lab.Says(storeTrouble))
	m.CtlOK("scale", longName, "20")
	m.CtlOK("reload", "--drained")
	sd.AwaitStored(".pidfd", 20)
	sd.AwaitStored(".stderr", 20)
	m.Until("the log reports a full store, and each time its end", func() bool {
		return m.Count(lab.Says(storeCurrent)) == m.Count(lab.Says(storeTrouble))
	})
	if full := m.Count(lab.Says(storeTrouble)); full > 5 {
		t.Errorf("the full store is reported %d times", full)
	}
	return m
}

func TestSystemdCanStartTheServiceAgainHoweverManyNamesAnUpgradedSupervisordHas(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	for i := range 480 { // 255 bytes each
		sd.Units = append(sd.Units, fmt.Sprintf("%0255d", i))
	}
	reloadedAfterUpgrade(t, sd)
	if got, most := sd.Names(), 32*4096; got > most || got < most-1000 {
		t.Errorf("LISTEN_FDNAMES would have %d bytes, at most %d can be passed to a process", got, most)
	}
}

func TestUpgradedSupervisordStoresNoMoreThanTheUnitAllows(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	sd.Max = 130
	reloadedAfterUpgrade(t, sd)
	if got := sd.Lost(); got > 0 {
		t.Errorf("systemd has dropped %d descriptors", got)
	}
}

func TestStoreGetsOnlyTheDescriptorsOfTheWorkerInTheirName(t *testing.T) {
	t.Parallel()
	sd, m := newSystemd(t), lab.Prepare(t)
	links := map[string]string{"pidfd": "anon_inode:[pidfd]", "notify": "socket:", "notify-pipe": "pipe:",
		"report": "pipe:", "stdout": "pipe:", "stderr": "pipe:", "exe": "/"}
	var mu sync.Mutex
	looked, enough, wrong := 0, 6000, map[string]string{}
	if lab.RaceEnabled {
		enough = 1000 // the race detector is much slower
	}
	sd.Look = func(name string, fd int) {
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		lab.Must(t, err)
		mu.Lock()
		defer mu.Unlock()
		looked++
		of := label(name, fd)
		want, known := links[of[strings.LastIndexByte(of, '.')+1:]]
		if strings.HasPrefix(name, "w.") && (!known || !strings.HasPrefix(link, want)) {
			wrong[of] = link
		}
	}
	sd.Launches(m)
	config := "log_level = \"error\"\n"
	for i := range 60 { // which exit right after the start
		config += fmt.Sprintf("[program.p%d]\ncommand = [\"sh\", \"-c\", \"exit 1\"]\nstdout = \"capture\"\n"+
			"stderr = \"capture\"\n"+
			"ready = { delay = \"1ms\" }\nrestart = { backoff = { min = \"1ms\", max = \"10ms\" } }\n", i)
	}
	m.Start(config)
	mu.Lock()
	for end := time.Now().Add(4 * lab.Patience); looked <= enough; mu.Lock() { // every worker costs a fork
		mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("the store was sent only %d descriptors", looked)
		}
		time.Sleep(10 * time.Millisecond)
	}
	defer mu.Unlock()
	for name, link := range wrong {
		t.Errorf("%s is %s", name, link)
	}
}

func TestRecordOfAnotherVersionCostsNoRequest(t *testing.T) {
	t.Parallel()
	for _, version := range []int{3, 1000} {
		t.Run(strconv.Itoa(version), func(t *testing.T) {
			t.Parallel()
			recordOfVersion(t, version)
		})
	}
}

func recordOfVersion(t *testing.T, version int) {
	sd, m := newSystemd(t), lab.Prepare(t)
	sd.Launches(m)
	m.Start(strings.Replace(lab.Web, "{worker}", "{hello}", 1))
	m.Serves(1)
	address, old := m.Address(), m.WorkerPID(1)
	sd.AwaitStored(".pidfd", 1)
	load := lab.PressNew(t, address, 4, 5*time.Millisecond)
	m.Die()
	other := fmt.Appendf(nil, `{"Version":%d}`, version)
	for _, name := range []string{"state.a", "state.b"} {
		fd, text := sd.FD(name), fmt.Appendf(nil, "supervisord-record %d %08x 1\n%s", len(other), crc32.ChecksumIEEE(other),
			other)
		lab.Must(t, unix.Ftruncate(fd, 0))
		_, err := unix.Pwrite(fd, text, 0)
		lab.Must(t, err)
	}
	sd.Launches(m)
	m.Launch("-c", m.Path("config.toml"))
	m.Await(lab.Contains(fmt.Sprintf("the record has version %d", version)))
	m.Serves(1)
	m.Until("the old worker has exited", func() bool { return !lab.Alive(old) })
	load.Lossless(t)
}
