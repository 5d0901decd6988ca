package worker

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/output"
)

// The names of a worker's descriptors in Descriptors and Adoption.
const (
	FDProcess = "pidfd"
	FDNotify  = "notify"      // the socket at NotifyPath
	FDPipe    = "notify-pipe" // the read end of NOTIFY_FD
	FDReport  = "report"      // the shim's report, while the command does not run yet
	FDControl = "einhorn"     // the listening socket behind EINHORN_SOCK_PATH; its connections are ControlFDs
	FDStdout  = output.Stdout // the read end of the pipe
	FDStderr  = output.Stderr
)

// State is what the next image of the supervisor must know about a worker, besides its Spec. It is plain data for JSON.
type State struct {
	PID        int
	Running    bool      // Spawned was posted, or is about to be
	Ready      bool      // ReadySaid was posted, or is about to be
	Leaving    bool      // likewise
	Killed     bool      // KILL was sent
	NotifyPath string    // what NOTIFY_SOCKET says
	Group      string    // the path of its control group; "": it has none
	Report     []byte    // what came of the shim's report, while not Running
	Pending    []Pending // signals that wait for Running

	Carry   map[string][]byte `json:",omitempty"` // by stream: what was read of a line whose end was not
	Control map[string][]byte `json:",omitempty"` // what came of messages to the control socket that are not complete yet, by ControlFDs
}

// Pending is a signal that waits until the command runs.
type Pending struct {
	Signal syscall.Signal
	Group  bool
}

// State tells how the worker stands. Between Freeze and Thaw it stays right, and nothing was read that it does not tell; at
// other times it may be outdated at once. PID is 0 for a worker that has no process yet, or none any more: there is nothing
// to adopt then. It never waits for a disk. What was read of an unfinished line it tells between Freeze and Thaw only: whoever
// adopts after a crash would write it a second time.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process.pid == 0 || w.process.ended {
		return State{}
	}
	state := State{
		PID: w.process.pid, Running: w.process.running, Ready: w.ready.said, Leaving: w.said.leaving, Killed: w.process.killed,
		NotifyPath: w.said.path, Group: w.process.group, Report: w.said.report, Pending: w.process.early,
		Control: map[string][]byte{},
	}
	if w.launcher.gate.Locked() {
		state.Carry = w.carry()
	}
	for i, l := range w.said.control.lines {
		if l.source != nil && len(l.got) > 0 {
			state.Control[controlFD(i)] = l.got
		}
	}
	return state
}

func (w *Worker) carry() map[string][]byte {
	carry := map[string][]byte{}
	for _, p := range w.pumps {
		if line := p.Unfinished(); len(line) > 0 {
			carry[p.Stream()] = line
		}
	}
	return carry
}

// Descriptors tells what the next image must inherit, by name, besides State. They stay the worker's, and close-on-exec.
// Between Freeze and Thaw the numbers stay right; at other times they may be somebody else's at once: use Duplicate.
func (w *Worker) Descriptors() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	fds := w.descriptors()
	for _, p := range w.livePumps() {
		p.Control(func(fd int) { fds[p.Stream()] = fd })
	}
	return fds
}

// Duplicate returns a duplicate of the descriptor that Descriptors has under this name, close-on-exec and for the caller to
// close, or -1 if the worker does not have it any more.
func (w *Worker) Duplicate(name string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if fd, ok := w.descriptors()[name]; ok {
		return duplicate(fd)
	}
	for _, p := range w.livePumps() {
		if p.Stream() != name {
			continue
		}
		fd, err := -1, error(nil)
		p.Control(func(own int) { fd, err = duplicate(own) })
		return fd, err
	}
	return -1, nil
}

func duplicate(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot duplicate a descriptor: %w", err)
	}
	return dup, nil
}

// livePumps are the pumps of a worker that may be adopted. w.mu is held.
func (w *Worker) livePumps() []*output.Pump {
	if w.process.pid == 0 || w.process.ended {
		return nil
	}
	return w.pumps
}

// descriptors is Descriptors without the pumps'. w.mu is held.
func (w *Worker) descriptors() map[string]int {
	fds := map[string]int{}
	if w.process.pid == 0 || w.process.ended {
		return fds
	}
	for name, s := range map[string]*source{FDNotify: w.said.socket, FDPipe: w.said.pipe, FDReport: w.said.status, FDControl: w.said.control.socket} {
		if s != nil {
			fds[name] = s.fd
		}
	}
	for i, l := range w.said.control.lines {
		if l.source != nil {
			fds[controlFD(i)] = l.source.fd
		}
	}
	if w.process.pidfd >= 0 {
		fds[FDProcess] = w.process.pidfd
	}
	return fds
}

// Adoption is a worker that another image of the supervisor started: the one before an execve, of which it is still a child,
// or one that died, of which it is not.
type Adoption struct {
	State       State
	Descriptors map[string]int // by FD…; Adopt takes them over. A process that is no child needs its FDProcess.
	Spec        Spec           // as it was started; of a delay the whole time begins again
}

// Adopt makes a running process a Worker again. When it returns, State and Descriptors tell all of a: what is written down for
// the next supervisor must not lack a worker that is there. What was posted once (Spawned, ReadySaid, Leaving) is posted again,
// so that post hears the whole story; and Exited if the process ended meanwhile. The status of a process that is not a child is
// known from Linux 6.15 on. Every PID must have been given to Expect.
func (l *Launcher) Adopt(a Adoption, post func(Event)) *Worker {
	w := newWorker(l, a.Spec, post)
	for _, fd := range a.Descriptors {
		unix.CloseOnExec(fd) // at once: an image that gives its place back to the one before opens them up again
	}
	if err := w.adopt(a); err != nil {
		for _, fd := range a.Descriptors {
			w.aside.Do(func() { unix.Close(fd) })
		}
		w.mu.Lock()
		w.process.ended = true
		w.events.put(Exited{PID: a.State.PID, Step: stepAdopt, Err: err})
		w.mu.Unlock()
	}
	l.workers.Go(w.postAll)
	return w
}

// adopt registers the process as fork does, so that its end is not missed. On error nothing was taken over.
func (w *Worker) adopt(a Adoption) error {
	l, pid := w.launcher, a.State.PID
	pidfd, has := a.Descriptors[FDProcess]
	if !has {
		pidfd = -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.expected[pid]
	child := status != nil || isChild(pid)
	if err := mayAdopt(pid, pidfd, child); err != nil {
		return err
	}
	delete(l.expected, pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process.pid, w.process.pidfd, w.process.child, w.process.group = pid, pidfd, child, a.State.Group
	switch {
	case status != nil:
	case child:
		w.watchChild()
	default:
		if err := w.watchEnd(); err != nil {
			return err
		}
	}
	w.resume(a)
	if status != nil {
		w.finish(*status, true)
		return nil
	}
	l.children[pid] = w
	l.pids.Store(pid, w)
	l.wakeReaper() // it may be a zombie that the reaper waits to give to somebody
	return nil
}

// resume takes over what a holds and posts what was known. w.mu is held.
func (w *Worker) resume(a Adoption) {
	fd := func(name string) int {
		if fd, ok := a.Descriptors[name]; ok {
			return fd
		}
		return -1
	}
	w.said = said{
		socket: w.idle(fd(FDNotify)), pipe: w.idle(fd(FDPipe)), status: w.idle(fd(FDReport)),
		path: a.State.NotifyPath, report: a.State.Report,
	}
	w.said.control.socket = w.idle(fd(FDControl))
	for i := range w.said.control.lines {
		w.said.control.lines[i] = controlLine{source: w.idle(fd(controlFD(i))), got: a.State.Control[controlFD(i)]}
	}
	if a.State.Killed {
		w.deliver(Pending{syscall.SIGKILL, true}) //nolint:errcheck // the image before this one said it
	}
	w.process.early = append(a.State.Pending, w.process.early...) // and what came before this
	for name, output := range map[string]output.Destination{FDStdout: a.Spec.Stdout, FDStderr: a.Spec.Stderr} {
		if fd := fd(name); fd >= 0 {
			unix.SetNonblock(fd, true)
			p := w.newPump(fd, output, name)
			p.Resume(a.State.Carry[name])
			w.pumps = append(w.pumps, p)
		}
	}
	for _, p := range w.pumps {
		w.side.Go(p.Run)
	}
	if !a.State.Running && w.said.status != nil {
		w.watch(&w.said.status, w.readReport)
		return
	}
	w.ready.said, w.said.leaving = a.State.Ready, a.State.Leaving
	w.spawned()
	if a.State.Ready {
		w.events.put(ReadySaid{})
	}
	if a.State.Leaving {
		w.events.put(Leaving{})
	}
}

// isChild tells whether this process can wait for pid.
func isChild(pid int) bool {
	var si unix.Siginfo
	return unix.Waitid(unix.P_PID, pid, &si, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}

// mayAdopt refuses what would be a guess: a number without a pidfd may be somebody else's by now.
func mayAdopt(pid, pidfd int, child bool) error {
	if pid <= 1 {
		return fmt.Errorf("process %d: not a worker", pid)
	}
	if pidfd < 0 {
		if child {
			return nil
		}
		return fmt.Errorf("process %d: it is no child of the supervisor, and there is no pidfd to know it by", pid)
	}
	of, err := proc.PIDOf(pidfd)
	if err != nil {
		return fmt.Errorf("process %d: its pidfd: %w", pid, err)
	}
	if of != pid && of != -1 { // -1: it was reaped
		return fmt.Errorf("process %d: its pidfd is that of another process", pid)
	}
	return nil
}

// reapedWithin is how long the status of a process that is no child is waited for: its parent has to reap it first.
const reapedWithin = 200 * time.Millisecond

// watchEnd watches a process that is no child. w.mu is held.
func (w *Worker) watchEnd() error {
	s, err := w.launcher.poll.add(w.process.pidfd, false, func(events uint32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gone(events&unix.EPOLLHUP != 0)
	})
	w.process.exit = s
	return err
}

// gone is told that the process ended, and, with reaped, that its parent knows. w.mu is held.
func (w *Worker) gone(reaped bool) {
	if w.process.ended {
		return
	}
	status, known := proc.ExitStatus(w.process.pidfd)
	if !known && !reaped {
		w.launcher.poll.onlyHangup(w.process.exit)
		w.process.grace = time.AfterFunc(reapedWithin, func() {
			w.launcher.gate.RLock() // nothing is closed while Freeze holds it
			defer w.launcher.gate.RUnlock()
			w.locked(func() { w.gone(true) })(0)
		})
		return
	}
	w.killRest()
	w.finish(status, known)
}

// killRest kills what is left of the group of a process that is no child. A group keeps its number from being used again; so
// either the process is still there as a zombie, or nobody has the number, or it is better left alone.
func (w *Worker) killRest() {
	if w.pinned() || errors.Is(unix.Kill(w.process.pid, 0), unix.ESRCH) {
		unix.Kill(-w.process.pid, unix.SIGKILL)
	}
}
