package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// Spec is everything that is needed to start one worker: complete plain data, so that nothing is looked up later. The
// descriptors in it stay the caller's.
type Spec struct {
	// Execution is what the process becomes: Command[0] without a slash is looked up in the PATH of Environment, with
	// one relative to Directory, which is absolute. Start adds LISTEN_PID, NOTIFY_SOCKET, NOTIFY_FD, WATCHDOG_USEC and
	// WATCHDOG_PID to Environment, and fills in Files and Filter.
	spawn.Execution

	Told []string // more of the environment, which describes the sockets: for the worker, not for a command that probes it

	// Sockets are descriptors of the caller, who keeps them open until Exited. The worker gets them as fd 3 and up, or
	// under the numbers in Places: 0 (stdin) or from 3. Start neither changes nor closes them.
	Sockets   []int
	Places    []int
	Listeners []string // the listener of each of Sockets, for Dial

	// Binds is what the worker may bind itself to get each of Sockets: see package bind. None: its bind(2) is not
	// answered. Unbound says why, and what to do, for people; "": it is answered, or there are no listeners.
	Binds   []bind.Claim
	Unbound string

	Stdin  []byte // what it reads there, of any size; none: /dev/null
	Stdout output.Destination
	Stderr output.Destination

	// Captured gets the output of the streams of the kind Capture, in whole lines where possible. The goroutine that
	// reads from all workers calls it: it must not wait, nor keep lines. Without it the output is dropped.
	Captured func(stream string, pid int, lines []byte) `json:"-"`

	Watchdog time.Duration // told to the worker as WATCHDOG_USEC; 0: none
	Ready    ready.Check

	// Widen makes the socket of a UDP listener one of IPv6, for a worker that binds one: see socket.Lane.Widen. It
	// changes what is behind the descriptor in Sockets.
	Widen func(ctx context.Context, listener string) error `json:"-"`

	// Dial connects a probe to the socket that this worker has of a listener: see ready.Asked.
	Dial func(ctx context.Context, listener string) (net.Conn, error) `json:"-"`
}

// Inheritable returns the part of the supervisor's own environment that its workers get: it leaves out the variables by
// which systemd or another supervisor addresses the supervisor itself. It does not change environ. JOURNAL_STREAM and
// CREDENTIALS_DIRECTORY stay, because they are right for a worker that shares the supervisor's stderr or user; Start
// removes them for any other worker.
func Inheritable(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return reserved.ForSupervisor(name)
	})
}

// withoutOwn leaves out the variables that Start sets itself, and the variables of systemd that this worker must not
// use.
func (s *Spec) withoutOwn() []string {
	return slices.DeleteFunc(slices.Clone(s.Environment), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "NOTIFY_SOCKET", "NOTIFY_FD", "LISTEN_PID", "LISTEN_PIDFDID", "WATCHDOG_USEC", "WATCHDOG_PID":
			return true
		case "JOURNAL_STREAM": // "device:inode" of our stderr
			return s.Stderr.Kind != output.Inherit && s.Stderr.Kind != "" && value == os.Getenv(name)
		case "CREDENTIALS_DIRECTORY": // only our user may read it
			return s.Credential != nil && int(s.Credential.UID) != os.Geteuid() && value == os.Getenv(name)
		}
		return false
	})
}

// firstSocket is the number of the first socket in a worker (sd_listen_fds(3)).
const firstSocket = 3

// attempt is what is opened to start one process:
//
//	number in the worker  what                                        our end
//	0                     /dev/null, a memfd, or a listener           none
//	1, 2                  a pipe, /dev/null, or our own stream        the Pump reads the pipe
//	3 and up, or Places   the listeners                               the caller's
//	the next, or Ready.FD NOTIFY_FD, a pipe                           FDPipe
//	none                  NOTIFY_SOCKET, by its path                  FDNotify
//	the next, close-exec  the report, a pipe or a socket              FDReport, and FDBind comes through it
//
// It belongs to the goroutine of the worker, which holds
// Launcher.spawning. It owns the descriptors theirs and ours: after the fork the worker takes ours (handOver), and the
// attempt closes theirs; after a failure it closes both (undo). The sockets in files stay the caller's.
type attempt struct {
	w        *Worker
	files    []int  // the worker's descriptors, by number
	theirs   []int  // the worker's ends, closed as soon as it has them
	ours     []int  // closed unless the worker is started
	group    int    // the descriptor of the control group, -1: none
	dir      string // of the control group
	socket   int    // behind NOTIFY_SOCKET; -1: none
	notify   int    // our end of NOTIFY_FD; -1: none
	number   int    // the worker's number of NOTIFY_FD
	prepared *spawn.Launch
}

// spawn makes the process when it is its turn, and nothing is frozen.
func (w *Worker) spawn() *spawn.StepError {
	w.launcher.spawning.Lock()
	defer w.launcher.spawning.Unlock()
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	return w.spawnNow()
}

// spawnNow makes the process. On error there is none, and nothing is left of the attempt.
func (w *Worker) spawnNow() *spawn.StepError {
	a := &attempt{w: w, group: -1, socket: -1, notify: -1}
	err := a.prepare()
	if err == nil {
		err = a.fork()
	}
	a.closeTheirs()
	if err != nil {
		a.undo()
	}
	return err
}

// prepare opens everything, in the order of the descriptors' numbers: streams, sockets, readiness. An error names the
// step that failed.
func (a *attempt) prepare() *spawn.StepError {
	if err := a.openStreams(); err != nil {
		return spawn.Failed(spawn.StepOutput, err)
	}
	if err := a.passSockets(); err != nil {
		return spawn.Failed(spawn.StepSockets, err)
	}
	if err := a.openNotify(); err != nil {
		return spawn.Failed(spawn.StepNotify, err)
	}
	return a.prepareCommand()
}

// openStreams opens stdin, stdout and stderr, which are 0 to 2 in the worker.
func (a *attempt) openStreams() error {
	a.openGroup()
	stdin, err := a.stdin()
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	stdout, err := a.stream(a.w.spec.Stdout, 1, FDStdout)
	if err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	stderr, err := a.stream(a.w.spec.Stderr, 2, FDStderr)
	if err != nil {
		return fmt.Errorf("stderr: %w", err)
	}
	a.files = []int{stdin, stdout, stderr}
	return nil
}

// openGroup gives the worker a control group of its own, where that is possible. A helper command needs none.
func (a *attempt) openGroup() {
	if a.w.helper {
		return
	}
	if a.group, a.dir = a.w.launcher.groups.Make(); a.group >= 0 {
		a.theirs = append(a.theirs, a.group)
	}
}

// stdin is a file, so that a worker that does not read it cannot block another process.
func (a *attempt) stdin() (int, error) {
	if len(a.w.spec.Stdin) == 0 {
		return a.w.launcher.null, nil
	}
	fd, err := spawn.Sealed("stdin", a.w.spec.Stdin)
	if err != nil {
		return -1, err
	}
	a.theirs = append(a.theirs, fd)
	return fd, nil
}

// stream opens the descriptor for a stream of the worker; own is our own one. The stderr of a helper command is always
// read.
func (a *attempt) stream(o output.Destination, own int, name string) (int, error) {
	switch {
	case o.Kind == output.ToFile && o.File == nil:
		return -1, errors.New("no log file was given")
	case o.Kind == output.ToFile, o.Kind == output.Capture, a.w.helper && name == FDStderr:
		read, theirs, err := a.pipe()
		if err != nil {
			return -1, err
		}
		unix.FcntlInt(uintptr(read), unix.F_SETPIPE_SZ, pipeSize) //nolint:errcheck // our user has a limit
		p, err := a.w.newPump(read, o, name)
		a.w.pumps = append(a.w.pumps, p)
		return theirs, err
	case o.Kind == output.Null:
		return a.w.launcher.null, nil
	case o.Kind == output.Inherit, o.Kind == "":
		return a.inherited(own), nil
	}
	return -1, fmt.Errorf("unknown kind of output %q", o.Kind)
}

// inherited returns our own stream, with a new open file description where the kernel can open one: for a FIFO, a pipe
// or a terminal. Then O_NONBLOCK, which Node sets for example, concerns this worker only, not the others and us. On a
// file the flag means nothing and the offset should be shared; the kernel cannot open a socket, such as the journal's,
// again.
func (a *attempt) inherited(own int) int {
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO && !isTerminal(own) {
		return own
	}
	flags, err := unix.FcntlInt(uintptr(own), unix.F_GETFL, 0)
	if err != nil {
		return own
	}
	flags &= unix.O_ACCMODE | unix.O_APPEND
	// O_NONBLOCK: a FIFO without a reader would make us wait.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(own), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil { // another user's, say
		return own
	}
	if unix.SetNonblock(fd, false) != nil {
		unix.Close(fd)
		return own
	}
	a.theirs = append(a.theirs, fd)
	return fd
}

// isTerminal reports whether a descriptor is a terminal. The other end of a pseudoterminal is not one: each open of it
// makes a new pseudoterminal.
func isTerminal(fd int) bool {
	_, notTerminal := unix.IoctlGetTermios(fd, unix.TCGETS)
	_, notMaster := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	return notTerminal == nil && notMaster != nil
}

// pipeSize is the capacity of a stream's pipe, in bytes: the pipe takes the worker's output between the death of a
// supervisord and the start of the next one. It is not larger because the pipes of an unprivileged user share 64 MiB
// (pipe-user-pages-soft, pipe(7)).
const pipeSize = 256 << 10

// pipe returns a pipe for the worker's output: our end and the worker's end, both for the attempt to close. The
// worker's end is open for reading, too: when supervisord, which has the only other reading end, dies, a write waits
// instead of ending the worker by SIGPIPE. Our end reads the end of the pipe when every process has closed the worker's
// end. The worker can open its end again as /dev/stdout (/proc/self/fd/1), as nginx, Apache and php-fpm do.
func (a *attempt) pipe() (ours, theirs int, err error) {
	ours, write, err := spawn.Pipe()
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(write)
	theirs, err = unix.Open("/proc/self/fd/"+strconv.Itoa(write), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(ours)
		return -1, -1, fmt.Errorf("cannot open a pipe for reading and writing: %w", err)
	}
	a.theirs = append(a.theirs, theirs)
	if owner := a.w.spec.Credential.Owner(); owner >= 0 {
		unix.Fchown(theirs, owner, -1) //nolint:errcheck // without CAP_CHOWN the worker only cannot open it again
	}
	return ours, theirs, nil
}

// passSockets reads the flags of the sockets and changes nothing: workers that serve share the open file descriptions.
func (a *attempt) passSockets() error {
	for i, fd := range a.w.spec.Sockets {
		if fd < 0 {
			return fmt.Errorf("listener %d is not open: the log says why; fix that and reload", i+1)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return fmt.Errorf("socket %d (descriptor %d): %w", i, fd, err)
		}
		number := firstSocket + i
		if a.w.spec.Places != nil {
			number = a.w.spec.Places[i]
		}
		a.put(fd, number)
	}
	return nil
}

// put gives the worker a descriptor under this number.
func (a *attempt) put(fd, number int) {
	for len(a.files) <= number {
		a.files = append(a.files, spawn.Closed)
	}
	a.files[number] = fd
}

// openNotify opens NOTIFY_SOCKET and NOTIFY_FD. NOTIFY_FD has the number that the configuration asks for, else the
// first number after all others.
func (a *attempt) openNotify() (err error) {
	if a.w.helper {
		return nil
	}
	if a.socket, a.w.process.NotifyPath, err = a.w.launcher.notify.Socket(); err != nil {
		return err
	}
	a.ours = append(a.ours, a.socket)
	ours, theirs, err := a.pipe()
	if err != nil {
		return err
	}
	a.notify = ours
	a.ours = append(a.ours, ours)
	a.number = len(a.files)
	if asked := a.w.spec.Ready.FD; asked > 0 {
		if asked < len(a.files) && a.files[asked] != spawn.Closed {
			return fmt.Errorf("descriptor %d cannot be for the readiness: it is a socket's, or a stream's", asked)
		}
		a.number = asked
	}
	a.put(theirs, a.number)
	return nil
}

// environment is that of the Spec and the variables that depend on the attempt. Where the listeners are comes with the
// Spec.
func (a *attempt) environment() []string {
	spec := &a.w.spec
	environment := append(spec.withoutOwn(), spec.Told...)
	if !a.w.helper {
		environment = append(environment, "NOTIFY_SOCKET="+a.w.process.NotifyPath, "NOTIFY_FD="+strconv.Itoa(a.number))
	}
	if spec.Watchdog > 0 {
		environment = append(environment, "WATCHDOG_USEC="+strconv.FormatInt(spec.Watchdog.Microseconds(), 10))
	}
	return environment
}

// prepareCommand allocates everything that the child needs: between fork and exec the child must not allocate.
func (a *attempt) prepareCommand() (err *spawn.StepError) {
	execution := a.w.spec.Execution
	execution.Environment, execution.Files, execution.Filter = a.environment(), a.files, a.w.filter()
	a.prepared, err = spawn.Prepare(&execution)
	if err == nil {
		a.ours = append(a.ours, a.prepared.Report)
	}
	return err
}

// fork starts the process. From here on the reaper knows the process, and its end is the only way out.
func (a *attempt) fork() *spawn.StepError {
	w, l := a.w, a.w.launcher
	l.mu.Lock()
	defer l.mu.Unlock()
	var pid, pidfd int
	var err *spawn.StepError
	foreign.OnMain(func() { pid, pidfd, err = a.prepared.Fork(a.group) })
	if err != nil {
		return err
	}
	a.closeTheirs() // before the end is reported: a pipe whose write end we hold never ends
	l.children[pid] = w
	l.pids.Store(pid, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forked(pid, pidfd)
	a.handOver()
	if !w.helper {
		w.events.put(life.Changed{})
	}
	return nil
}

// handOver gives our ends to the worker. w.mu is held.
func (a *attempt) handOver() {
	w := a.w
	w.process.Group = a.dir
	w.open(FDNotify, a.socket)
	w.open(FDPipe, a.notify)
	w.open(FDReport, a.prepared.Report)
	for _, p := range w.pumps {
		w.side.Go(p.Run)
	}
	w.watch(FDReport, epoll.Readable, w.readReport)
}

// closeTheirs closes our copies of what is the worker's. It may be called twice.
func (a *attempt) closeTheirs() {
	closeAll(a.theirs)
	a.theirs = nil
	if a.prepared != nil {
		a.prepared.Close()
	}
}

// undo closes everything after a failure.
func (a *attempt) undo() {
	w, ours := a.w, slices.Clone(a.ours)
	w.aside.Do(func() { closeAll(ours) })
	for _, p := range w.pumps {
		p.Close()
	}
	w.pumps = nil
	w.launcher.groups.End(a.dir)
	if w.process.NotifyPath != "" {
		w.launcher.notify.Unlink(w.process.NotifyPath)
	}
	w.mu.Lock()
	w.process.ended = true
	w.mu.Unlock()
}

// closeAll closes descriptors that nobody else uses. It may take long if a worker has sent something to one of them:
// then only w.aside may call it.
func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
