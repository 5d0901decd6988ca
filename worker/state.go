package worker

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/output"
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

// State is what the next image of the supervisor must know about a worker, besides its Spec. It is plain data for JSON.
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

// State returns the state of the worker. Between Freeze and Thaw it stays right, and says everything that was read; at other times it
// may be outdated at once. PID is 0 if there is nothing to adopt: the worker has no process yet, or none any more. State never waits for
// a disk. It has Carry between Freeze and Thaw only: a supervisor that adopts after a crash would write it a second time.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.adoptable() {
		return State{}
	}
	state := State{
		PID: w.process.pid, Running: w.process.running, Ready: w.ready.posted, Leaving: w.channels.leaving, Killed: w.process.killed,
		NotifyPath: w.channels.path, Group: w.process.group, Report: w.channels.begun, Pending: w.process.early,
		Stop: w.process.stop, Rest: w.restState(),
	}
	if w.launcher.gate.Locked() {
		state.Carry = w.carry()
	}
	return state
}

// adoptable reports whether there is a process. w.mu is held.
func (w *Worker) adoptable() bool { return w.process.pid != 0 && !w.process.ended }

func (w *Worker) carry() map[string][]byte {
	carry := map[string][]byte{}
	for _, p := range w.pumps {
		if line := p.Unfinished(); len(line) > 0 {
			carry[p.Stream()] = line
		}
	}
	return carry
}

// Descriptors returns what the next image must inherit, by name, besides State. They stay the worker's, and close-on-exec. Between Freeze
// and Thaw the numbers stay right; at other times they may belong to something else at once: use Duplicate.
func (w *Worker) Descriptors() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	fds := w.descriptors()
	for _, p := range w.livePumps() {
		p.Control(func(fd int) { fds[p.Stream()] = fd })
	}
	return fds
}

// Duplicate returns a duplicate of the descriptor that Descriptors has under this name, close-on-exec and for the caller to close, or -1
// if the worker does not have it any more.
func (w *Worker) Duplicate(name string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if fd, ok := w.descriptors()[name]; ok {
		return duplicate(fd)
	}
	for _, p := range w.livePumps() {
		if p.Stream() == name {
			fd, err := -1, error(nil)
			p.Control(func(own int) { fd, err = duplicate(own) })
			return fd, err
		}
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

// livePumps returns the pumps of a worker that may be adopted. w.mu is held.
func (w *Worker) livePumps() []*output.Pump {
	if !w.adoptable() {
		return nil
	}
	return w.pumps
}

// descriptors is Descriptors without the pumps'. w.mu is held.
func (w *Worker) descriptors() map[string]int {
	fds := map[string]int{}
	if !w.adoptable() {
		return fds
	}
	for name, at := range w.channels.sources() {
		if *at != nil {
			fds[name] = (*at).FD
		}
	}
	if w.process.pidfd >= 0 {
		fds[FDProcess] = w.process.pidfd
	}
	return fds
}
