package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// The names of a worker's descriptors in Descriptors and Adoption.
const (
	FDProcess = "pidfd"
	FDNotify  = "notify"      // the socket at NotifyPath
	FDPipe    = "notify-pipe" // the read end of NOTIFY_FD
	FDReport  = "report"      // of the new process, while the command does not run yet
	FDBind    = "bind"        // the notifications of its filter: see package bind
	FDStdout  = output.Stdout // the read end of the pipe
	FDStderr  = output.Stderr
)

// What a supervisor that dies at any moment leaves of a worker, besides the last State that was recorded:
//
//	the process   systemd has a duplicate of its pidfd; the process reads its pipes' other ends itself, so that it
//	              neither ends by SIGPIPE nor sees an end of file
//	the sockets   what was not read waits in them: they have duplicates in the store, too
//	READY=1       peeked at, and in its socket or pipe until Recorded
//	the filter    peeked at, and in the report until Recorded
//	a bind(2)     received and not answered: package bind finds its number (rescue)
//
// State is what the next supervisor must know about a worker, besides its Spec: plain data for JSON, without
// descriptors.
type State struct {
	PID        int
	Running    bool      // Spawned was posted, or is about to be
	Ready      bool      // ReadySaid was posted, or is about to be
	Leaving    bool      // likewise
	Killed     bool      // KILL was sent
	NotifyPath string    // what NOTIFY_SOCKET says
	Group      string    // the directory of its control group; "": it has none
	Report     []byte    // of the new process so far, while not Running
	Pending    []Pending // signals that wait for Running
	Stop       Pending   // the step of the stop plan that was sent last; zero: none
	Rest       *Rest     // nil: the process with PID has not ended

	Carry map[string][]byte `json:",omitempty"` // by stream: the beginning of an unfinished line
}

// Pending is a signal, such as one that waits until the command runs.
type Pending struct {
	Signal syscall.Signal
	Group  bool
	Stops  bool // it is a step of the stop plan
}

// State returns the state of the worker; it never waits for a disk. Between Freeze and Thaw the state stays right and
// includes everything that was read; at other times it may be outdated at once. PID is 0 if there is nothing to adopt:
// the worker has no process yet, or none any more. State has Carry only between Freeze and Thaw: a supervisor that
// adopts after a crash would write those lines a second time.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.adoptable() {
		return State{}
	}
	state := w.process.State
	if r := state.Rest; r != nil {
		copied := *r
		copied.Tops = maps.Clone(r.Tops)
		state.Rest = &copied
	}
	if w.launcher.gate.Locked() {
		state.Carry = w.carry()
	}
	return state
}

// adoptable reports whether there is a process. w.mu is held.
func (w *Worker) adoptable() bool { return w.process.PID != 0 && !w.process.ended }

// carry returns what each stream has said since its last newline. The gate is locked, so that no pump reads meanwhile.
func (w *Worker) carry() map[string][]byte {
	carry := map[string][]byte{}
	for _, p := range w.pumps {
		if line := p.Unfinished(); len(line) > 0 {
			carry[p.Stream()] = line
		}
	}
	return carry
}

// Descriptors returns the descriptors that the next supervisor needs besides State, by name. The worker keeps owning
// them, and they stay close-on-exec. Between Freeze and Thaw the numbers stay right; at other times a number may belong
// to another file at once: use Duplicate then.
func (w *Worker) Descriptors() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	fds := map[string]int{}
	for _, name := range []string{FDProcess, FDReport, FDNotify, FDPipe, FDBind, FDStdout, FDStderr} {
		w.control(name, func(fd int) { fds[name] = fd })
	}
	return fds
}

// Duplicate returns a close-on-exec duplicate of the descriptor with this name in Descriptors, which the caller closes,
// or -1 if the worker does not have the descriptor any more.
func (w *Worker) Duplicate(name string) (dup int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dup = -1
	w.control(name, func(fd int) { dup, err = duplicate(fd) })
	return dup, err
}

// control calls use with the descriptor of this name, if the worker may be adopted and has it. w.mu is held.
func (w *Worker) control(name string, use func(fd int)) {
	if s := w.channels.open[name]; s != nil && !w.process.ended {
		use(s.FD)
	}
	if !w.adoptable() {
		return
	}
	if name == FDProcess && w.process.pidfd >= 0 {
		use(w.process.pidfd)
	}
	for _, p := range w.pumps {
		if p.Stream() == name {
			p.Control(use)
		}
	}
}

// duplicate returns a close-on-exec duplicate, which the caller closes.
func duplicate(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot duplicate a descriptor: %w", err)
	}
	return dup, nil
}

// Adoption is a worker that another supervisor started: the image before an execve, whose children are ours, or one
// that died, whose children are not. Adopt takes over the descriptors in it.
type Adoption struct {
	State       State
	Descriptors map[string]int // by FD…; Adopt takes them over. A process that is not a child needs its FDProcess.
	Spec        Spec           // as it was started; of a delay the whole time begins again
}

// Adopt makes a running process a Worker again and takes over the descriptors in a. When Adopt returns, State and
// Descriptors are complete, so a record written now includes this worker. Adopt posts again what was posted once
// (Spawned, ReadySaid, Leaving), so that post gets all events, and Exited if the process has ended meanwhile. For a
// process that is not a child, the kernel tells the exit status since Linux 6.15; before, the status is unknown. The
// caller must have given every PID to Expect.
func (l *Launcher) Adopt(a Adoption, post func(life.Event)) *Worker {
	w := newWorker(l, a.Spec, post)
	for _, fd := range a.Descriptors {
		unix.CloseOnExec(fd) // at once: an image that gives its place back to the one before opens them up again
	}
	if err := w.adopt(a); err != nil {
		for kind, fd := range a.Descriptors {
			if kind == FDBind {
				l.KeepFilter("", fd)
				continue
			}
			w.aside.Do(func() { unix.Close(fd) })
		}
		w.mu.Lock()
		w.process.ended = true
		w.events.put(life.Exited{PID: a.State.PID, Step: spawn.StepAdopt, Err: err, Unadopted: true})
		w.mu.Unlock()
	}
	l.workers.Go(w.postAll)
	return w
}

// ReadOn takes over the pipes of a worker that is not adopted, by the names of its streams, and passes their output to
// the destinations in spec, until the ends of the pipes or until the caller calls finish.
func (l *Launcher) ReadOn(pid int, streams map[string]int, spec Spec) (finish func()) {
	w := &Worker{launcher: l, spec: spec}
	w.process.PID = pid
	for name, to := range map[string]output.Destination{FDStdout: spec.Stdout, FDStderr: spec.Stderr} {
		if fd, has := streams[name]; has {
			p, _ := w.newPump(fd, to, name) // what cannot be watched is read once
			w.pumps = append(w.pumps, p)
			l.workers.Go(p.Run)
		}
	}
	return func() {
		for _, p := range w.pumps {
			p.Finish()
		}
	}
}

// fd returns the descriptor with this name, or -1.
func (a *Adoption) fd(name string) int {
	if fd, ok := a.Descriptors[name]; ok {
		return fd
	}
	return -1
}

// adopt registers the process as fork does, so that the reaper cannot miss its end. If adopt returns an error, the
// descriptors are still the caller's.
func (w *Worker) adopt(a Adoption) error {
	l, pid, pidfd := w.launcher, a.State.PID, a.fd(FDProcess)
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.expected[pid]
	if a.State.Rest != nil {
		status = nil // by now the number may be another child's
	}
	child := status != nil || isChild(pid) && a.State.Rest == nil
	if err := mayAdopt(pid, pidfd, child); err != nil {
		return err
	}
	delete(l.expected, pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process.State, w.process.pidfd, w.process.child = a.State, pidfd, child
	switch {
	case a.State.Rest != nil:
		w.adoptRest()
		w.resume(a)
		return nil
	case status != nil:
		w.resume(a)
		w.ends(*status, true)
		return nil
	case child:
		w.watchChild()
	default:
		if err := w.watchEnd(); err != nil {
			return err
		}
	}
	w.resume(a)
	l.children[pid] = w
	l.pids.Store(pid, w)
	l.wakeReaper() // it may be a zombie whose worker the reaper did not know
	return nil
}

// resume takes over the descriptors in a, and posts what was known. w.mu is held.
func (w *Worker) resume(a Adoption) {
	w.channels.adopted, w.process.Carry = true, nil
	for _, name := range []string{FDReport, FDNotify, FDPipe, FDBind} {
		w.open(name, a.fd(name))
	}
	if a.State.Killed {
		w.deliver(Pending{Signal: syscall.SIGKILL, Group: true}) //nolint:errcheck // the image before this one reported it
	}
	for name, to := range map[string]output.Destination{FDStdout: a.Spec.Stdout, FDStderr: a.Spec.Stderr} {
		if fd := a.fd(name); fd >= 0 {
			unix.SetNonblock(fd, true)
			p, _ := w.newPump(fd, to, name) // what cannot be watched is read once
			p.Resume(a.State.Carry[name])
			w.pumps = append(w.pumps, p)
		}
	}
	for _, p := range w.pumps {
		w.side.Go(p.Run)
	}
	if !a.State.Running && w.channels.open[FDReport] != nil {
		w.watch(FDReport, epoll.Readable, w.readReport)
		return
	}
	w.spawned()
	if a.State.Ready {
		w.events.put(life.ReadySaid{})
	}
	if a.State.Leaving {
		w.events.put(life.Leaving{})
	}
}

// isChild reports whether this process can wait for pid.
func isChild(pid int) bool {
	var si unix.Siginfo
	return unix.Waitid(unix.P_PID, pid, &si, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}

// mayAdopt refuses to guess: without a pidfd, a PID may belong to another process by now.
func mayAdopt(pid, pidfd int, child bool) error {
	if pid <= 1 {
		return fmt.Errorf("process %d: not a worker", pid)
	}
	if pidfd < 0 {
		if child {
			return nil
		}
		return fmt.Errorf("process %d: it is not a child of the supervisor, and there is no pidfd to know it by", pid)
	}
	of, err := proc.PIDOf(pidfd)
	if _, unseen := errors.AsType[*fs.PathError](err); unseen && (child || proc.Exists(pidfd) && leadsSession(pid)) {
		// an old kernel and no descriptor to spare, say: only this process can reap a child, and a worker leads a session
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: its pidfd: %w", pid, err)
	}
	if of != pid && of != -1 { // -1: it was reaped
		return fmt.Errorf("process %d: its pidfd is that of another process", pid)
	}
	return nil
}

// leadsSession reports whether a process leads a session, as every worker does since its fork.
func leadsSession(pid int) bool {
	session, err := unix.Getsid(pid)
	return err == nil && session == pid
}

// reapedWithin is how long to wait for the status of a process that is not a child: its parent has to reap it first.
const reapedWithin = 200 * time.Millisecond

// watchEnd watches a process that is not a child. w.mu is held.
func (w *Worker) watchEnd() error {
	s, err := w.launcher.poll.Add(w.process.pidfd, epoll.Readable, func(events uint32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gone(events&unix.EPOLLHUP != 0)
	})
	w.process.exit = s
	return err
}

// gone ends a worker whose process, not a child, has ended. reaped says that its parent has reaped it. w.mu is held.
func (w *Worker) gone(reaped bool) {
	if w.process.ended {
		return
	}
	status, known := proc.ExitStatus(w.process.pidfd)
	if !known && !reaped {
		w.launcher.poll.OnlyHangup(w.process.exit)
		w.process.grace = time.AfterFunc(reapedWithin, func() {
			w.launcher.gate.RLock() // nothing is closed while Freeze holds it
			defer w.launcher.gate.RUnlock()
			w.do(func() { w.gone(true) })
		})
		return
	}
	w.ends(status, known)
}

// ends ends a worker whose process is not a zombie any more, or not ours. w.mu is held.
func (w *Worker) ends(status syscall.WaitStatus, known bool) {
	if !w.leavesRest() {
		w.killRest()
	}
	w.end(status, known)
}

// killRest kills what is left of the process group of a process that is not a child. A group keeps its number from
// being reused: if the process is still there as a zombie, or no process has the PID, the group is the worker's. In any
// other case killRest does nothing.
func (w *Worker) killRest() {
	if w.ownsNumber() {
		unix.Kill(-w.process.PID, unix.SIGKILL)
	}
}

// ownsNumber reports whether a session or process group with the number of the first process is the worker's. w.mu is
// held.
func (w *Worker) ownsNumber() bool {
	return w.pinned() || errors.Is(unix.Kill(w.process.PID, 0), unix.ESRCH)
}
