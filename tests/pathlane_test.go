package tests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// socketsOf lists the sockets in a supervisord's directory.
func socketsOf(t *testing.T, m *lab.Supervisord) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(m.Dir)
	lab.Must(t, err)
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestUnixPathLosesNothingWithAWorkerThatStopsBadly: the worker calls http.Server.Shutdown on TERM and nothing else.
func TestUnixPathLosesNothingWithAWorkerThatStopsBadly(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	address := "unix:" + m.Path("s")
	l := lab.PressNew(t, address, 50, 0)
	const reloads = 20
	for n := 2; n <= reloads+1; n++ {
		m.Reload()
		m.Serves(n)
	}
	m.Gone(reloads)
	if n := l.Lossless(t); n < reloads/2 {
		t.Errorf("%d generations answered", n)
	}
	if names := socketsOf(t, m); len(names) != 1 {
		t.Errorf("sockets %v", names)
	}
	m.Never(lab.Says(lab.WorkerKilled))
}

// TestUnixPathIsNeverMissing: a client that does nothing but connect finds a socket that listens, at each of many switches.
func TestUnixPathIsNeverMissing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(onUnix, "[program.web.ready]", "mode = \"0620\"\n[program.web.ready]", 1)+"[program.web.drain]\ntimeout = \"0s\"\n")
	m.Serves(1)
	path := m.Path("s")
	var over atomic.Bool
	var connects atomic.Int64
	var client sync.WaitGroup
	client.Go(func() {
		for !over.Load() {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
				unix.Close(fd)
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				t.Errorf("after %d connections: %v", connects.Load(), err)
				return
			}
			connects.Add(1)
			time.Sleep(20 * time.Microsecond)
		}
	})
	const flips = 200
	for m.Count(lab.Says(lab.GenerationServes)) < flips {
		served := m.Count(lab.Says(lab.GenerationServes))
		m.Signal(syscall.SIGHUP)
		m.AwaitN(served+1, lab.Says(lab.GenerationServes))
	}
	over.Store(true)
	client.Wait()
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Perm() != 0o620 {
		t.Errorf("%v, %v", st, err)
	}
	t.Logf("%d connections", connects.Load())
}

func TestUnixPathIsRolledBack(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, (onUnix + "[program.web.reload]\nkeep = \"1h\"\n"))
	m.Serves(1)
	address := "unix:" + m.Path("s")
	l := lab.PressNew(t, address, 20, time.Millisecond)
	m.CtlOK("reload")
	if body := lab.Ask(t, address, "/"); !strings.Contains(body, "generation=2") {
		t.Errorf("after the reload: %s", body)
	}
	m.CtlOK("rollback")
	for range 20 {
		if body := lab.Ask(t, address, "/"); !strings.Contains(body, "generation=1") {
			t.Errorf("after the rollback: %s", body)
		}
	}
	l.Lossless(t)
	m.Never(lab.Says(lab.WorkerTold), lab.PID(m.WorkerPID(1)))
}

func TestUnixPathSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	address := "unix:" + m.Path("s")
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	l := lab.PressNew(t, address, 20, time.Millisecond)
	m.Upgrade(lab.Upgraded)
	m.Reload()
	m.Serves(3)
	m.Gone(2)
	m.Reload()
	m.Serves(4)
	m.Gone(3)
	l.Lossless(t)
}

// TestUnixPathIsTakenOutOfTheWorkersAfterADeath: nothing but the workers is left of the supervisor before.
func TestUnixPathIsTakenOutOfTheWorkersAfterADeath(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	address := "unix:" + m.Path("s")
	l := lab.PressNew(t, address, 20, time.Millisecond)
	m.Die()
	m.Launch("-c", m.Path("config.toml"))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	l.Lossless(t)
	m.Until("no socket beside the path is left", func() bool {
		names, _ := filepath.Glob(m.Path(".s.*"))
		return len(names) == 0
	})
}

func TestUnixPathThatWasRemovedIsBoundAgain(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	lab.Must(t, os.Remove(m.Path("s")))
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

func TestUnixPathRefusesWhileItsProgramIsDown(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, (strings.Replace(onUnix, "[program.web.ready]", "when_down = \"refuse\"\n[program.web.ready]", 1)))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	m.CtlOK("stop", "web")
	if _, err := lab.Get("unix:"+m.Path("s"), "/"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while it is down: %v", err)
	}
	m.CtlOK("start", "web")
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	m.Reload()
	m.Serves(4)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}
