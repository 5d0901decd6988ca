package worker

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// Every failure of a start names its step, says what to do, and carries the errno.
func TestEveryFailureNamesItsStep(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o755)
	bare := write("bare", "exit 0\n", 0o755)
	with := func(change func(*Spec), command ...string) (s Spec) {
		if s.Command = command; change != nil {
			change(&s)
		}
		return s
	}
	path := func(path string) func(*Spec) {
		return func(s *Spec) { s.Environment = []string{"PATH=" + path} }
	}
	for name, c := range map[string]struct {
		spec  Spec
		step  string
		text  string
		errno syscall.Errno
	}{
		"missing": {with(nil, "/no/such"), "exec", "cannot exec /no/such: no such file or directory",
			syscall.ENOENT},
		"not in PATH": {with(path("/x"), "no"), "exec", `cannot exec no: not found in PATH "/x"`,
			syscall.ENOENT},
		"not executable":             {with(nil, plain), "exec", "permission denied", syscall.EACCES},
		"in PATH but not executable": {with(path(dir), "plain"), "exec", "may not be executed", syscall.EACCES},
		"no interpreter":             {with(nil, orphan), "exec", "its interpreter", syscall.ENOENT},
		"no #! line":                 {with(nil, bare), "exec", "a script needs a #! line", syscall.ENOEXEC},
		"a NUL":                      {with(nil, "a\x00b"), "exec", "NUL", syscall.EINVAL},
		"no command":                 {with(nil), "exec", "no command", 0},
		"directory": {with(func(s *Spec) { s.Directory = "/no/such" }, "true"), "directory",
			"cannot enter directory /no/such: no such file or directory", syscall.ENOENT},
		"limit": {with(func(s *Spec) { s.Limits.RLimits = map[string]uint64{"nofile": 1 << 40} }, "true"), "limits",
			"cannot set limit nofile to 1099511627776, which is above the hard limit ", syscall.EPERM},
		"unknown limit": {with(func(s *Spec) { s.Limits.RLimits = map[string]uint64{"bogus": 1} }, "true"), "limits",
			"unknown limit bogus", 0},
		"score": {with(func(s *Spec) { s.Limits.OOMScoreAdj = &[]int{5000}[0] }, "true"), "oom_score_adj",
			"cannot set oom_score_adj 5000", syscall.EINVAL},
		"capability": {with(func(s *Spec) { s.Limits.AmbientCapabilities = []string{"CAP_BOGUS"} }, "true"),
			"ambient_capabilities", "unknown capability", 0},
		"socket": {with(func(s *Spec) { s.Sockets = []int{100000} }, "true"), "sockets", "socket 0 (descriptor 100000)",
			syscall.EBADF},
		"user": {with(func(s *Spec) { s.Credential = &spawn.Credential{UID: 1<<32 - 1, Groups: []uint32{}} }, "true"), "user",
			"cannot set user", syscall.EINVAL}, // it means "unchanged" to the kernel
		"output": {with(func(s *Spec) { s.Stderr.Kind = output.ToFile }, "true"), "output", "stderr", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "user" {
				needRoot(t, "another user")
			}
			e := next[life.Exited](start(t, launcher(t), c.spec))
			if e.Step != c.step || !strings.Contains(e.String(), c.text) {
				t.Errorf("step %q: %s", e.Step, e)
			}
			if c.errno != 0 && !errors.Is(e.Err, c.errno) {
				t.Errorf("%v is not %v", e.Err, c.errno)
			}
		})
	}
}

// TestWorkerThatWasNotForkedIsNobody: 0 is its PID, and the session of every process that came from outside this PID
// namespace, or that a service manager started without one. A signal of such a process is no worker's.
func TestWorkerThatWasNotForkedIsNobody(t *testing.T) {
	l := launcher(t)
	spec := command("true")
	spec.Sockets = []int{-1}
	next[life.Exited](start(t, l, spec))
	if l.Owner([]int{os.Getppid(), 0}) != nil {
		t.Error("session 0 is taken for a worker that was never forked")
	}
}

// TestProcessThatRunsBeforeItsForkHasReturnedHasAnOwner: its PID is stored while the lock of the fork is held.
func TestProcessThatRunsBeforeItsForkHasReturnedHasAnOwner(t *testing.T) {
	l := launcher(t)
	w := &Worker{}
	for pid := -1; pid > -1000; pid-- { // no process has these
		found := make(chan *Worker)
		l.mu.Lock()
		go func() { found <- l.Owner([]int{pid}) }()
		runtime.Gosched()
		l.pids.Store(pid, w)
		l.mu.Unlock()
		if <-found != w {
			t.Fatal("a process that runs already is nobody's")
		}
		l.pids.Delete(pid)
	}
}

// The exec closes the pipe with the report. While another process has a copy of the pipe, it stays open, and the worker
// may be dead before the pipe is read.
func TestReportWithoutAnEndIsUnderstoodAtTheEndOfTheWorker(t *testing.T) {
	l := launcher(t)
	s := &subject{t: t, events: make(chan life.Event, 10)}
	s.w = newWorker(l, shell("exit 87"), s.post)
	freeze(t, l) // the launcher reads and reaps nothing
	if failure := s.w.spawnNow(); failure != nil {
		t.Fatal(failure)
	}
	pid := s.w.State().PID
	must.Become(t, "ended", func() bool { return strings.HasPrefix(status(t, pid, "State"), "Z") })
	s.w.mu.Lock()
	read, write, err := spawn.Pipe()
	_, wrong := unix.Write(write, []byte{'+'})
	err = errors.Join(err, wrong, unix.Dup3(read, s.w.channels.open[FDReport].FD, unix.O_CLOEXEC))
	s.w.mu.Unlock()
	must.Do(t, err)
	l.workers.Go(s.w.postAll)
	l.Thaw()
	next[life.Spawned](s)
	exits(s, 87)
	closeAll([]int{read, write})
}

// A signal to a worker that SIGSTOP has stopped is its first thread's, as that to one that runs, and waits there. One
// that the first thread blocks is for any other.
func TestStoppedWorkerGetsTheSignalInItsFirstThread(t *testing.T) {
	l := launcher(t)
	for name, c := range map[string]struct {
		does  string
		group bool
		set   string
	}{
		"alone":   {"UNBLOCK", false, "SigPnd"},
		"group":   {"UNBLOCK", true, "SigPnd"},
		"blocked": {"BLOCK", false, "ShdPnd"},
	} {
		t.Run(name, func(t *testing.T) {
			w := started(t, l, inPythonReady(t, `
signal.pthread_sigmask(signal.SIG_`+c.does+`, [signal.SIGUSR1])
say('READY=1')
signal.pause()`))
			next[life.ReadySaid](w)
			pid := w.w.State().PID
			must.Do(t, w.w.Signal(syscall.SIGSTOP, true))
			must.Become(t, "stopped", func() bool { return proc.Stopped([]int{pid}) })
			must.Do(t, w.w.Signal(syscall.SIGUSR1, c.group))
			for _, set := range []string{"SigPnd", "ShdPnd"} {
				pending := must.Get(strconv.ParseUint(status(t, pid, set), 16, 64))(t)
				if has := pending>>(syscall.SIGUSR1-1)&1 == 1; has != (set == c.set) {
					t.Errorf("it is pending in %s: %v", set, has)
				}
			}
			must.Do(t, w.w.Signal(syscall.SIGKILL, true))
			next[life.Exited](w)
		})
	}
}
