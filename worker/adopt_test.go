package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// stranger starts a worker whose parent is another process, which waits for it, and opens a pidfd.
func stranger(t *testing.T, l *Launcher, script string) Adoption {
	t.Helper()
	read, write := pipe(t)
	spec := command("sh", "-c", `setsid sh -c "$1" & echo $! >&3; exec 3>&-; wait $!; sleep 100`, "sh", script)
	spec.Sockets, spec.Stderr.Kind = []int{int(write.Fd())}, output.Null
	started(t, l, spec)
	write.Close()
	line := must.Get(bufio.NewReader(read).ReadString('\n'))(t)
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	pidfd := must.Get(unix.PidfdOpen(pid, 0))(t)
	return Adoption{State: State{PID: pid, Running: true, Ready: true}, Descriptors: map[string]int{FDProcess: pidfd}}
}

// exits6 ends with this status on TERM.
const exits6 = "trap 'exit 6' TERM; while :; do sleep 0.01; done"

// catches waits until a process catches a signal.
func catches(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	must.Become(t, "a trap", func() bool {
		caught, _ := strconv.ParseUint(status(t, pid, "SigCgt"), 16, 64)
		return caught>>(sig-1)&1 == 1
	})
}

func adopt(t *testing.T, l *Launcher, a Adoption) *subject {
	t.Helper()
	s := &subject{t: t, events: make(chan life.Event, 100)}
	a.Spec.Ready.Believed = true
	s.w = l.Adopt(a, s.post)
	t.Cleanup(s.end)
	return s
}

// adopted is adopt of a worker that runs.
func adopted(t *testing.T, l *Launcher, a Adoption) *subject {
	t.Helper()
	s := adopt(t, l, a)
	if e := next[life.Spawned](s); e.PID != a.State.PID {
		t.Error(e)
	}
	return s
}

func TestForeignChildIsAdoptedByItsPidfd(t *testing.T) {
	l := launcher(t)
	a := stranger(t, l, exits6)
	catches(t, a.State.PID, syscall.SIGTERM)
	s := adopt(t, l, a)
	state, fds := s.w.State(), s.w.Descriptors() // complete at once, so that a record has them
	if state.PID != a.State.PID || !state.Running || !state.Ready || fds[FDProcess] != a.Descriptors[FDProcess] {
		t.Errorf("%+v %v", state, fds)
	}
	next[life.Spawned](s)
	next[life.ReadySaid](s)
	s.signal(int(syscall.SIGTERM))
	endsWith6(s)
}

// endsWith6 waits for the end of exits6.
func endsWith6(s *subject) {
	s.t.Helper()
	if e := next[life.Exited](s); e.Known && e.Status.ExitStatus() != 6 || e.Step != "" || e.Err != nil {
		s.t.Errorf("%+v %s", e, e)
	} else if !e.Known && kernelTellsExits() {
		s.t.Error("the kernel reports the exit status")
	}
}

// kernelTellsExits: PIDFD_GET_INFO has PIDFD_INFO_EXIT since Linux 6.15.
func kernelTellsExits() bool {
	var u unix.Utsname
	var major, minor int
	_ = unix.Uname(&u)
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 15
}

func TestGroupOfAnAdoptedProcessDoesNotOutliveIt(t *testing.T) {
	l, file := launcher(t), filepath.Join(t.TempDir(), "pid")
	s := adopted(t, l, stranger(t, l, "sleep 100 & echo $! >"+file+"; wait"))
	next[life.ReadySaid](s)
	var grandchild int
	must.Become(t, "a grandchild", func() bool {
		data, _ := os.ReadFile(file)
		grandchild, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return grandchild > 0
	})
	s.signal(int(syscall.SIGKILL))
	next[life.Exited](s)
	gone(t, grandchild)
}

func TestAdoptionThatWouldBeAGuessIsRefused(t *testing.T) {
	l := launcher(t)
	a := stranger(t, l, "exec sleep 100")
	defer unix.Close(a.Descriptors[FDProcess])
	other := must.Get(unix.PidfdOpen(os.Getpid(), 0))(t)
	for _, a := range []Adoption{
		{State: a.State}, {State: a.State, Descriptors: map[string]int{FDProcess: other}},
		{State: State{PID: 1, Running: true}},
	} {
		if e := next[life.Exited](adopt(t, l, a)); e.Step != "adopt" || !e.Unadopted ||
			!strings.HasPrefix(e.String(), "cannot adopt process") {
			t.Errorf("%s", e)
		}
	}
	must.Do(t, unix.PidfdSendSignal(a.Descriptors[FDProcess], syscall.SIGKILL, nil, 0))
}

func TestForeignChildIsAdoptedWithoutADescriptorToSpare(t *testing.T) {
	l := launcher(t)
	a := stranger(t, l, "exec sleep 100")
	must.Become(t, "leading a session, as a worker does", func() bool { return leadsSession(a.State.PID) })
	var usual unix.Rlimit
	must.Do(t, errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &usual),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: usual.Max})))
	s := adopt(t, l, a)
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &usual))
	next[life.Spawned](s)
	next[life.ReadySaid](s)
	s.kill()
}

// handOver detaches a worker from its launcher, as an execve does: copies of the descriptors survive, and the process
// stays a child.
func handOver(t *testing.T, w *Worker) Adoption {
	t.Helper()
	a := Adoption{Descriptors: map[string]int{}}
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(w.State()))(t), &a.State))
	for name, fd := range w.Descriptors() {
		a.Descriptors[name] = must.Get(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))(t)
	}
	return a
}

func freeze(t *testing.T, l *Launcher) {
	t.Helper()
	must.Do(t, l.Freeze(time.Minute))
}

// abandon makes a launcher forget a worker without stopping it.
func abandon(l *Launcher, w *Worker) {
	w.mu.Lock()
	w.process.NotifyPath = "" // the socket must stay in place
	for _, p := range w.pumps {
		p.Resume(nil)
	}
	w.finish(0, false)
	w.mu.Unlock()
}

func TestChildIsAdoptedWithItsMessagesAndOutput(t *testing.T) {
	l, log := launcher(t), logFile(t)
	read, write := pipe(t)
	spec := toFile(log, `printf 'unfinished '; read x <&3; echo out; echo err >&2; echo >&$NOTIFY_FD; exit 8`)
	spec.Sockets = []int{int(read.Fd())}
	old := started(t, l, spec)
	must.Become(t, "read", func() bool { return string(old.w.carry()[FDStdout]) == "unfinished " })
	if st := old.w.State(); len(st.Carry) > 0 {
		t.Errorf("after a crash %q would be written twice", st.Carry)
	}
	freeze(t, l)
	a := handOver(t, old.w)
	abandon(l, old.w)
	next[life.Exited](old)
	read.Close()
	l.Thaw()
	a.Spec = spec
	s := adopted(t, l, a)
	write.WriteString("go\n")
	next[life.ReadySaid](s)
	e := next[life.Exited](s)
	if !e.Known || e.Status.ExitStatus() != 8 || len(e.Tail) != 1 || e.Tail[0] != "err" {
		t.Errorf("%s %q", e, e.Tail)
	}
	if text := log.written(t); !strings.Contains(text, "unfinished out\n") || strings.Count(text, "unfinished") != 1 {
		t.Errorf("%q", text)
	}
	if _, err := os.Stat(a.State.NotifyPath); !os.IsNotExist(err) {
		t.Error("the socket is still there")
	}
}

func TestDuplicateIsOfTheWorkerOrThereIsNone(t *testing.T) {
	l := launcher(t)
	spec := toFile(logFile(t), "exec sleep 100")
	s := started(t, l, spec)
	for name, own := range s.w.Descriptors() {
		fd, err := s.w.Duplicate(name)
		if err != nil || fd == own || !isSameFile(t, fd, own) {
			t.Errorf("%s: %d is no duplicate of %d (%v)", name, fd, own, err)
		}
		unix.Close(fd)
	}
	must.Do(t, s.w.Signal(syscall.SIGKILL, false))
	next[life.Exited](s)
	for _, name := range []string{FDProcess, FDNotify, FDStdout, "nothing"} {
		if fd, err := s.w.Duplicate(name); fd != -1 || err != nil {
			t.Errorf("%s of a worker that has ended: %d, %v", name, fd, err)
		}
	}
}

func isSameFile(t *testing.T, a, b int) bool {
	t.Helper()
	var first, second unix.Stat_t
	must.Do(t, errors.Join(unix.Fstat(a, &first), unix.Fstat(b, &second)))
	return first.Dev == second.Dev && first.Ino == second.Ino
}

// A supervisor may die after it has received READY=1 from a worker and before it has recorded that.
func TestReadinessMessageIsKeptForTheNextSupervisorUntilRecorded(t *testing.T) {
	t.Run("socket", func(t *testing.T) {
		s := deadBeforeRecorded(t, func(s *subject) {
			for _, m := range []string{"STATUS=booting", "READY=1\nSTATUS=up", "STATUS=still up"} {
				must.Do(t, sendTo(notifyPath(t, s.w), []byte(m)))
			}
		})
		for next[life.StatusText](s).Text != "still up" { // of several unread texts only the last one is kept
		}
	})
	t.Run("pipe", func(t *testing.T) {
		deadBeforeRecorded(t, func(s *subject) { unix.Kill(s.w.State().PID, unix.SIGUSR1) })
	})
}

// deadBeforeRecorded starts a worker that reports readiness to a supervisor, which dies before it records that. The
// adopted worker must be ready.
func deadBeforeRecorded(t *testing.T, say func(*subject)) *subject {
	l := launcher(t)
	spec := shell(`trap 'echo >&$NOTIFY_FD' USR1; while :; do sleep 0.01; done`)
	old := start(t, l, spec)
	old.unsaved = true
	next[life.Spawned](old)
	catches(t, old.w.State().PID, unix.SIGUSR1)
	before := old.w.State()
	say(old)
	for e := old.next(); e != (life.ReadySaid{}); e = old.next() {
	}
	a := handOver(t, old.w)
	// the dead supervisor reads no more
	old.w.do(func() { old.w.drop(FDNotify); old.w.drop(FDPipe) })
	abandon(l, old.w)
	next[life.Exited](old)
	a.State, a.Spec = before, spec
	s := adopted(t, l, a)
	next[life.ReadySaid](s)
	return s
}

// A supervisor may die after it has received the filter of a worker and before it has recorded that.
func TestFilterIsKeptForTheNextSupervisorUntilRecorded(t *testing.T) {
	l := launcher(t)
	socket := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(socket)
	spec := Spec{Sockets: []int{socket}, Listeners: []string{"http"}, Binds: []bind.Claim{{Network: "tcp"}},
		Ready: ready.Check{Method: ready.Notify}}
	spec.Command, spec.Limits.NoNewPrivileges = []string{"sleep", "100"}, true
	old := start(t, l, spec)
	old.unsaved = true
	next[life.Filtered](old)
	a := handOver(t, old.w)
	unix.Close(a.Descriptors[FDBind])
	delete(a.Descriptors, FDBind)
	abandonUnread(old.w)
	next[life.Exited](old)
	a.Spec = spec
	s := adopt(t, l, a)
	next[life.Filtered](s)
	next[life.Spawned](s)
	if fds := s.w.Descriptors(); fds[FDBind] == 0 || fds[FDReport] != 0 {
		t.Errorf("%v", fds)
	}
	s.kill()
	for len(l.Filters()) > 0 { // what each supervisor had of it
		select {
		case <-l.FilterEnded():
		case <-time.After(30 * time.Second):
			t.Fatal("nothing says that no process has the filter any more")
		}
	}
}

func TestFrozenLauncherLeavesEverythingInTheKernel(t *testing.T) {
	l := launcher(t)
	read, write := pipe(t)
	spec := shell(`read x <&3; echo >&$NOTIFY_FD; exit 0`)
	spec.Sockets = []int{int(read.Fd())}
	s := start(t, l, spec)
	pid := next[life.Spawned](s).PID
	freeze(t, l)
	write.Close()
	must.Become(t, "ended", func() bool { return strings.HasPrefix(status(t, pid, "State"), "Z") })
	if st := s.w.State(); st.Ready || st.PID != pid || len(s.events) > 0 {
		t.Errorf("%+v, %d events", st, len(s.events))
	}
	l.Thaw()
	next[life.ReadySaid](s)
	next[life.Exited](s)
}

func TestChildThatEndedBeforeItWasAdoptedKeepsItsStatus(t *testing.T) {
	pid := must.Get(syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 12"}, nil))(t)
	l := launcher(t, Needs{Expected: []int{pid}})
	must.Become(t, "reaped", noChildren)
	s := adopted(t, l, Adoption{State: State{PID: pid, Running: true}, Spec: command("sh")})
	exits(s, 12)
}

// The reaper finds children that are adopted at the same time.
func TestChildrenThatEndWhileTheyAreAdoptedKeepTheirStatus(t *testing.T) {
	var pids []int
	for range 200 {
		pid := must.Get(syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 12"}, &syscall.ProcAttr{Env: os.Environ()}))(t)
		pids = append(pids, pid)
	}
	l := launcher(t, Needs{Expected: pids})
	var all []*subject
	for _, pid := range pids {
		all = append(all, adopted(t, l, Adoption{State: State{PID: pid, Running: true}, Spec: command("sh")}))
	}
	for _, s := range all {
		exits(s, 12)
	}
}

// The handover includes the report of a worker between fork and exec.
func TestWorkerIsAdoptedBetweenForkAndExec(t *testing.T) {
	l := launcher(t)
	s := &subject{t: t, events: make(chan life.Event, 10)}
	s.w = newWorker(l, command("sleep", "100"), s.post)
	freeze(t, l) // the launcher reads nothing: the report stays in its pipe
	if failure := s.w.spawnNow(); failure != nil {
		t.Fatal(failure)
	}
	s.w.Signal(syscall.SIGUSR2, false)
	a := handOver(t, s.w)
	a.Spec = s.w.spec
	if a.State.Running || a.Descriptors[FDReport] == 0 || len(a.State.Pending) != 1 {
		t.Errorf("%+v", a)
	}
	abandonUnread(s.w)
	l.workers.Go(s.w.postAll)
	next[life.Exited](s)
	if s.changed.Load() == 0 {
		t.Error("nothing says that there is a process before its command runs: a record of this time would not have it")
	}
	l.Thaw()
	if e := next[life.Exited](adopted(t, l, a)); e.Status.Signal() != syscall.SIGUSR2 {
		t.Errorf("%s", e)
	}
}

// A supervisor may die after it has read the report of a new process and before it has recorded that: of the report
// only the end is left.
func TestCommandRunsWhoseReportADeadSupervisorHasRead(t *testing.T) {
	l := launcher(t)
	a := stranger(t, l, exits6)
	var report [2]int
	must.Do(t, unix.Pipe2(report[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	unix.Close(report[1])
	catches(t, a.State.PID, syscall.SIGTERM)
	a.State = State{PID: a.State.PID, Pending: []Pending{{Signal: syscall.SIGTERM}}}
	a.Descriptors[FDReport] = report[0]
	s := adopted(t, l, a)
	next[life.ReadySaid](s)
	endsWith6(s)
}

func abandonUnread(w *Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(FDReport)
	w.process.NotifyPath = ""
	w.finish(0, false)
}
