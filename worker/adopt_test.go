package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// stranger starts a worker whose parent is another process, which waits for it, and opens a pidfd.
func stranger(t *testing.T, l *Launcher, script string) (pid, pidfd int) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	parent := start(t, l, Spec{
		Execution: spawn.Execution{Command: []string{"sh", "-c",
			`setsid sh -c "$1" & echo $! >&3; exec 3>&-; wait $!; sleep 100`, "sh", script}, Environment: []string{"PATH=" +
			os.Getenv("PATH")}},
		Sockets: []int{int(write.Fd())}, Ready: ready.Check{Method: ready.Notify},
		Stderr: output.Destination{Kind: output.Null},
	})
	must[life.Spawned](parent)
	write.Close()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, _ = strconv.Atoi(strings.TrimSpace(line))
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		t.Fatal(err)
	}
	return pid, pidfd
}

func adopt(t *testing.T, l *Launcher, a Adoption) *subject {
	t.Helper()
	s := &subject{t: t, events: make(chan life.Event, 100)}
	a.Spec.Ready.Believed = true
	s.w = l.Adopt(a, s.post)
	t.Cleanup(s.end)
	return s
}

func TestForeignChildIsAdoptedByItsPidfd(t *testing.T) {
	l := launcher(t)
	pid, pidfd := stranger(t, l, "trap 'exit 6' TERM; while :; do sleep 0.01; done")
	s := adopt(t, l, Adoption{State: State{PID: pid, Running: true, Ready: true},
		Descriptors: map[string]int{FDProcess: pidfd}})
	state, fds := s.w.State(), s.w.Descriptors() // complete at once, so that a record has them
	if state.PID != pid || !state.Running || !state.Ready || fds[FDProcess] != pidfd {
		t.Errorf("%+v %v", state, fds)
	}
	if e := must[life.Spawned](s); e.PID != pid {
		t.Error(e)
	}
	must[life.ReadySaid](s)
	if !eventually(func() bool { return strings.HasSuffix(status(t, pid, "SigCgt"), "4000") }) { // the trap is set
		t.Error("no trap")
	}
	s.signal(int(syscall.SIGTERM))
	e := must[life.Exited](s)
	if e.Known && e.Status.ExitStatus() != 6 || e.Step != "" {
		t.Errorf("%+v %s", e, e)
	}
	if !e.Known && kernelTellsExits() {
		t.Error("the kernel reports the exit status")
	}
}

// kernelTellsExits: PIDFD_GET_INFO has PIDFD_INFO_EXIT since Linux 6.15.
func kernelTellsExits() bool {
	var u unix.Utsname
	unix.Uname(&u)
	major, rest, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a > 6 || a == 6 && b >= 15
}

func TestGroupOfAnAdoptedProcessDoesNotOutliveIt(t *testing.T) {
	l := launcher(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	pid, pidfd := stranger(t, l, "sleep 100 & echo $! >"+file+"; wait")
	s := adopt(t, l, Adoption{State: State{PID: pid, Running: true}, Descriptors: map[string]int{FDProcess: pidfd},
		Spec: Spec{Ready: ready.Check{Method: ready.Notify}}})
	must[life.Spawned](s)
	var grandchild int
	if !eventually(func() bool {
		data, _ := os.ReadFile(file)
		grandchild, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return grandchild > 0
	}) {
		t.Fatal("no grandchild")
	}
	s.signal(int(syscall.SIGKILL))
	must[life.Exited](s)
	if !eventually(func() bool { return syscall.Kill(grandchild, 0) == syscall.ESRCH }) {
		t.Error("the grandchild lives")
		syscall.Kill(grandchild, syscall.SIGKILL)
	}
}

func TestAdoptionThatWouldBeAGuessIsRefused(t *testing.T) {
	l := launcher(t)
	pid, pidfd := stranger(t, l, "exec sleep 100")
	other, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []Adoption{
		{State: State{PID: pid, Running: true}},
		{State: State{PID: pid, Running: true}, Descriptors: map[string]int{FDProcess: other}},
		{State: State{PID: 1, Running: true}},
	} {
		if e := must[life.Exited](adopt(t, l, a)); e.Step != "adopt" ||
			!strings.HasPrefix(e.String(), "cannot adopt process") {
			t.Errorf("%s", e)
		}
	}
	unix.PidfdSendSignal(pidfd, syscall.SIGKILL, nil, 0)
	unix.Close(pidfd)
}

func TestForeignChildIsAdoptedWithoutADescriptorToSpare(t *testing.T) {
	l := launcher(t)
	pid, pidfd := stranger(t, l, "exec sleep 100")
	if !eventually(func() bool { return leadsSession(pid) }) { // setsid has run
		t.Fatal("it leads no session, as a worker does")
	}
	var usual unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &usual),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: usual.Max})); err != nil {
		t.Fatal(err)
	}
	s := adopt(t, l, Adoption{State: State{PID: pid, Running: true, Ready: true},
		Descriptors: map[string]int{FDProcess: pidfd}})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	if e := must[life.Spawned](s); e.PID != pid {
		t.Error(e)
	}
	must[life.ReadySaid](s)
	s.signal(int(syscall.SIGKILL))
	must[life.Exited](s)
}

// handOver detaches a worker from its launcher, as an execve does: copies of the descriptors survive, and the process
// stays a child.
func handOver(t *testing.T, w *Worker) Adoption {
	t.Helper()
	a := Adoption{Descriptors: map[string]int{}}
	data, err := json.Marshal(w.State())
	if err == nil {
		err = json.Unmarshal(data, &a.State)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, fd := range w.Descriptors() {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		a.Descriptors[name] = copied
	}
	return a
}

func freeze(t *testing.T, l *Launcher) {
	t.Helper()
	if err := l.Freeze(time.Minute); err != nil {
		t.Fatal(err)
	}
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
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	spec := toFile(log, `printf 'unfinished '; read x <&3; echo out; echo err >&2; echo >&$NOTIFY_FD; exit 8`)
	spec.Sockets = []int{int(read.Fd())}
	old := start(t, l, spec)
	must[life.Spawned](old)
	if !eventually(func() bool { return string(old.w.carry()[FDStdout]) == "unfinished " }) {
		t.Error("it is not read")
	}
	if st := old.w.State(); len(st.Carry) > 0 {
		t.Errorf("after a crash %q would be written twice", st.Carry)
	}
	freeze(t, l)
	a := handOver(t, old.w)
	abandon(l, old.w)
	must[life.Exited](old)
	read.Close()
	l.Thaw()
	a.Spec = spec
	s := adopt(t, l, a)
	must[life.Spawned](s)
	write.WriteString("go\n")
	must[life.ReadySaid](s)
	e := must[life.Exited](s)
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
	s := start(t, l, spec)
	must[life.Spawned](s)
	for name, own := range s.w.Descriptors() {
		fd, err := s.w.Duplicate(name)
		if err != nil || fd == own || !isSameFile(t, fd, own) {
			t.Errorf("%s: %d is no duplicate of %d (%v)", name, fd, own, err)
		}
		unix.Close(fd)
	}
	if err := s.w.Signal(syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	must[life.Exited](s)
	for _, name := range []string{FDProcess, FDNotify, FDStdout, "nothing"} {
		if fd, err := s.w.Duplicate(name); fd != -1 || err != nil {
			t.Errorf("%s of a worker that has ended: %d, %v", name, fd, err)
		}
	}
}

func isSameFile(t *testing.T, a, b int) bool {
	t.Helper()
	var first, second unix.Stat_t
	if err := errors.Join(unix.Fstat(a, &first), unix.Fstat(b, &second)); err != nil {
		t.Fatal(err)
	}
	return first.Dev == second.Dev && first.Ino == second.Ino
}

// A supervisor may die after it has received READY=1 from a worker and before it has recorded that.
func TestReadinessMessageIsKeptForTheNextSupervisorUntilRecorded(t *testing.T) {
	t.Run("socket", func(t *testing.T) {
		s := deadBeforeRecorded(t, func(s *subject) {
			for _, m := range []string{"STATUS=booting", "READY=1\nSTATUS=up", "STATUS=still up"} {
				if err := sendTo(notifyPath(t, s.w), []byte(m)); err != nil {
					t.Fatal(err)
				}
			}
		})
		for must[life.StatusText](s).Text != "still up" { // of several unread texts only the last one is kept
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
	spec.Environment = []string{"PATH=" + os.Getenv("PATH")}
	old := start(t, l, spec)
	old.unsaved = true
	must[life.Spawned](old)
	trapped := func() bool {
		caught, _ := strconv.ParseUint(status(t, old.w.State().PID, "SigCgt"), 16, 64)
		return caught&(1<<(unix.SIGUSR1-1)) != 0
	}
	if !eventually(trapped) {
		t.Fatal("no trap")
	}
	before := old.w.State()
	say(old)
	for e := old.next(); e != (life.ReadySaid{}); e = old.next() {
	}
	a := handOver(t, old.w)
	// the dead supervisor reads no more
	old.w.do(func() { old.w.drop(FDNotify); old.w.drop(FDPipe) })
	abandon(l, old.w)
	must[life.Exited](old)
	a.State, a.Spec = before, spec
	s := adopt(t, l, a)
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	return s
}

// A supervisor may die after it has received the filter of a worker and before it has recorded that.
func TestFilterIsKeptForTheNextSupervisorUntilRecorded(t *testing.T) {
	l := launcher(t)
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	spec := Spec{Sockets: []int{socket}, Listeners: []string{"http"}, Binds: []bind.Claim{{Network: "tcp"}},
		Ready: ready.Check{Method: ready.Notify}}
	spec.Command, spec.Limits.NoNewPrivileges = []string{"sleep", "100"}, true
	old := start(t, l, spec)
	old.unsaved = true
	must[life.Filtered](old)
	a := handOver(t, old.w)
	unix.Close(a.Descriptors[FDBind])
	delete(a.Descriptors, FDBind)
	abandonUnread(old.w)
	must[life.Exited](old)
	a.Spec = spec
	s := adopt(t, l, a)
	must[life.Filtered](s)
	must[life.Spawned](s)
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
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	spec := shell(`read x <&3; echo >&$NOTIFY_FD; exit 0`)
	spec.Sockets = []int{int(read.Fd())}
	s := start(t, l, spec)
	pid := must[life.Spawned](s).PID
	freeze(t, l)
	write.Close()
	if !eventually(func() bool { return strings.HasPrefix(status(t, pid, "State"), "Z") }) {
		t.Error("it does not end")
	}
	if st := s.w.State(); st.Ready || st.PID != pid || len(s.events) > 0 {
		t.Errorf("%+v, %d events", st, len(s.events))
	}
	l.Thaw()
	must[life.ReadySaid](s)
	must[life.Exited](s)
}

func TestChildThatEndedBeforeItWasAdoptedKeepsItsStatus(t *testing.T) {
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 12"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := launcher(t, Needs{Expected: []int{pid}})
	if !eventually(noChildren) {
		t.Fatal("it was not reaped: ", children())
	}
	s := adopt(t, l, Adoption{State: State{PID: pid, Running: true}, Spec: Spec{Ready: ready.Check{Method: ready.Notify}}})
	must[life.Spawned](s)
	if e := must[life.Exited](s); !e.Known || e.Status.ExitStatus() != 12 {
		t.Errorf("%s", e)
	}
}

// The handover includes the report of a worker between fork and exec.
func TestWorkerIsAdoptedBetweenForkAndExec(t *testing.T) {
	l := launcher(t)
	s := &subject{t: t, events: make(chan life.Event, 10)}
	s.w = newWorker(l, Spec{Execution: spawn.Execution{Command: []string{"sleep", "100"}},
		Ready: ready.Check{Method: ready.Notify}}, s.post)
	freeze(t, l) // the launcher reads nothing: the report stays in its pipe
	if err := s.w.spawnNow(); err != nil {
		t.Fatal(err)
	}
	s.w.Signal(syscall.SIGUSR2, false)
	a := handOver(t, s.w)
	a.Spec = s.w.spec
	if a.State.Running || a.Descriptors[FDReport] == 0 || len(a.State.Pending) != 1 {
		t.Errorf("%+v", a)
	}
	abandonUnread(s.w)
	l.workers.Go(s.w.postAll)
	must[life.Exited](s)
	if s.changed.Load() == 0 {
		t.Error("nothing says that there is a process before its command runs: a record of this time would not have it")
	}
	l.Thaw()
	next := adopt(t, l, a)
	must[life.Spawned](next)
	if e := must[life.Exited](next); e.Status.Signal() != syscall.SIGUSR2 {
		t.Errorf("%s", e)
	}
}

// A supervisor may die after it has read the report of a new process and before it has recorded that: of the report
// only the end is left.
func TestCommandRunsWhoseReportADeadSupervisorHasRead(t *testing.T) {
	l := launcher(t)
	pid, pidfd := stranger(t, l, "trap 'exit 6' TERM; while :; do sleep 0.01; done")
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	unix.Close(report[1])
	if !eventually(func() bool { return strings.HasSuffix(status(t, pid, "SigCgt"), "4000") }) {
		t.Fatal("no trap")
	}
	s := adopt(t, l, Adoption{State: State{PID: pid, Pending: []Pending{{Signal: syscall.SIGTERM}}},
		Descriptors: map[string]int{FDProcess: pidfd, FDReport: report[0]}})
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	if e := must[life.Exited](s); e.Err != nil || e.Known && e.Status.ExitStatus() != 6 {
		t.Errorf("%s", e)
	}
}

func abandonUnread(w *Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(FDReport)
	w.process.NotifyPath = ""
	w.finish(0, false)
}
