package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/output"
)

// firstSocket is the number of the first socket in a worker (sd_listen_fds(3)).
const firstSocket = 3

// closed stands for a descriptor that the child does not have.
const closed = -1

// The steps that the master itself takes.
const (
	stepSockets = "sockets"
	stepNotify  = "notify"
	stepOutput  = "output"
	stepFork    = "fork"
	stepWatch   = "watch"
	stepStart   = "start" // the shim ended before the exec, without a word
	stepAdopt   = "adopt"
)

// stepError is a step on the way to a running command that failed. It travels from the shim as JSON.
type stepError struct {
	Step  string
	Text  string
	Errno syscall.Errno
}

func (e *stepError) Error() string { return e.Text }

func (e *stepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

func failed(step string, err error) *stepError {
	e := &stepError{Step: step, Text: err.Error()}
	errors.As(err, &e.Errno)
	return e
}

// birth is what is opened for one fork.
type birth struct {
	w      *Worker
	files  []int // by number in the child
	theirs []int // the child's ends, closed as soon as it has them
	ours   []int // closed unless the worker took them over
	group  int   // the descriptor of the control group, -1: none
	notify int   // the socket behind NOTIFY_SOCKET, -1: none
	pipe   int   // our end of NOTIFY_FD, -1: none
	place  int   // the number of NOTIFY_FD in the child
	status int   // our end of the shim's report

	// Of einhorn's control socket: our ends, and the number of the connection in the child. -1: there is none.
	listener, line, theirLine int
}

// spawn makes the process. On error there is none, and nothing is left of the attempt.
func (w *Worker) spawn() *stepError {
	l := w.launcher
	l.spawning.Lock()
	defer l.spawning.Unlock()
	b := &birth{w: w, group: -1, notify: -1, pipe: -1, listener: -1, line: -1, theirLine: -1}
	err := b.prepare()
	if err == nil {
		err = b.fork()
	}
	closeAll(b.theirs)
	if err != nil {
		b.undo()
	}
	return err
}

func (b *birth) prepare() *stepError {
	for _, step := range []func() *stepError{b.controlGroup, b.streams, b.sockets, b.voice, b.control, b.orders} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (b *birth) streams() *stepError {
	stdin, err := b.stdin()
	if err != nil {
		return failed(stepOutput, fmt.Errorf("stdin: %w", err))
	}
	stdout, err := b.stream(b.w.spec.Stdout, 1, FDStdout)
	if err != nil {
		return failed(stepOutput, fmt.Errorf("stdout: %w", err))
	}
	stderr, err := b.stream(b.w.spec.Stderr, 2, FDStderr)
	if err != nil {
		return failed(stepOutput, fmt.Errorf("stderr: %w", err))
	}
	b.files = []int{stdin, stdout, stderr}
	return nil
}

// stdin is what the child reads: a file, so that a child that does not read it makes nobody wait.
func (b *birth) stdin() (int, error) {
	if len(b.w.spec.Stdin) == 0 {
		return b.w.launcher.null, nil
	}
	fd, err := sealed("stdin", b.w.spec.Stdin)
	if err != nil {
		return -1, err
	}
	b.theirs = append(b.theirs, fd)
	return fd, nil
}

// controlGroup gives the worker a group of its own, where that is possible. A command of Run needs none.
func (b *birth) controlGroup() *stepError {
	if b.w.mute {
		return nil
	}
	if b.group, b.w.process.group = b.w.launcher.groups.make(); b.group >= 0 {
		b.theirs = append(b.theirs, b.group)
	}
	return nil
}

// stream is the descriptor for a stream of the child. What is kept of stderr goes through a pipe.
func (b *birth) stream(o output.Destination, own int, name string) (int, error) {
	switch {
	case o.Kind == output.ToFile && o.File == nil:
		return -1, errors.New("no log file was given")
	case o.Kind == output.ToFile, o.Kind == output.Capture, b.w.mute && name == FDStderr:
		read, write, err := pipe()
		if err != nil {
			return -1, err
		}
		b.theirs = append(b.theirs, write)
		b.give(write)
		b.w.pumps = append(b.w.pumps, b.w.newPump(read, o, name))
		return write, nil
	case o.Kind == output.Null:
		return b.w.launcher.null, nil
	case o.Kind == output.Inherit, o.Kind == "":
		return own, nil
	}
	return -1, fmt.Errorf("unknown kind of output %q", o.Kind)
}

// sockets only looks at the flags of the descriptors: the open file descriptions are shared with workers that serve.
func (b *birth) sockets() *stepError {
	for i, fd := range b.w.spec.Sockets {
		if fd < 0 {
			return failed(stepSockets, fmt.Errorf("listener %d is not open: the log says why; mend it and reload", i+1))
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return failed(stepSockets, fmt.Errorf("socket %d (descriptor %d): %w", i, fd, err))
		}
		place := firstSocket + i
		if b.w.spec.Places != nil {
			place = b.w.spec.Places[i]
		}
		b.put(fd, place)
	}
	return nil
}

// put gives the child a descriptor in this place.
func (b *birth) put(fd, place int) {
	for len(b.files) <= place {
		b.files = append(b.files, closed)
	}
	b.files[place] = fd
}

func (b *birth) voice() *stepError {
	if b.w.mute {
		return nil
	}
	socket, path, err := b.w.launcher.notify.Socket(b.w.spec.Credential.owner())
	if err != nil {
		return failed(stepNotify, err)
	}
	b.notify, b.w.said.path = socket, path
	b.ours = append(b.ours, socket)
	read, write, err := pipe()
	if err != nil {
		return failed(stepNotify, err)
	}
	b.pipe = read
	b.ours = append(b.ours, read)
	b.theirs = append(b.theirs, write)
	b.give(write)
	return b.voiceAt(write)
}

// voiceAt puts NOTIFY_FD where it was asked for, else behind all others.
func (b *birth) voiceAt(write int) *stepError {
	b.place = len(b.files)
	if asked := b.w.spec.Ready.FD; asked > 0 {
		if asked < len(b.files) && b.files[asked] != closed {
			return failed(stepNotify, fmt.Errorf("descriptor %d cannot be for the readiness: it is a socket's, or a stream's", asked))
		}
		b.place = asked
	}
	b.put(write, b.place)
	return nil
}

// orders puts the two descriptors that only the shim sees after all others.
func (b *birth) orders() *stepError {
	spec, keep := &b.w.spec, len(b.files)
	environment := append(spec.withoutOwn(), spec.Told...)
	if !b.w.mute {
		environment = append(environment, "NOTIFY_SOCKET="+b.w.said.path, "NOTIFY_FD="+strconv.Itoa(b.place))
		environment = append(environment, b.controlVariables()...)
	}
	if spec.Watchdog > 0 {
		environment = append(environment, "WATCHDOG_USEC="+strconv.FormatInt(spec.Watchdog.Microseconds(), 10))
	}
	o := orders{Group: b.w.process.group, Keep: keep, Directory: []byte(spec.Directory), Credential: spec.Credential, Limits: spec.Limits}
	var err error
	if o.Command, err = pack(spec.Command); err == nil {
		o.Environment, err = pack(environment)
	}
	if err == nil && len(spec.Command) == 0 {
		err = errors.New("no command was given")
	}
	if err != nil {
		return failed(stepExec, err)
	}
	paper, err := writeOrders(&o)
	if err != nil {
		return failed(stepFork, err)
	}
	b.theirs = append(b.theirs, paper)
	read, write, err := pipe()
	if err != nil {
		return failed(stepFork, err)
	}
	b.status = read
	b.ours = append(b.ours, read)
	b.theirs = append(b.theirs, write)
	b.files = append(b.files, paper, write)
	return nil
}

// fork starts the shim. From here on the process is known to the reaper, and its end is the only way out.
func (b *birth) fork() *stepError {
	w, l := b.w, b.w.launcher
	pidfd := -1
	attr := &syscall.ProcAttr{
		Env: []string{"GOMAXPROCS=1", "GOGC=off"}, // the shim's own: it lives for a millisecond
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	}
	for _, fd := range b.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	argv := []string{shimName, filepath.Base(w.spec.Command[0]), strconv.Itoa(len(b.files))}
	l.mu.Lock()
	defer l.mu.Unlock()
	pid, err := b.forkInto(argv, attr)
	if err != nil {
		return failed(stepFork, fmt.Errorf("the supervisor's own binary, /proc/self/exe: %w", err))
	}
	closeAll(b.theirs) // before anybody may learn of an end: a pipe that we hold open ourselves has none
	b.theirs = nil
	l.children[pid] = w
	l.pids.Store(pid, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forked(pid, pidfd)
	b.handOver()
	return nil
}

// forkInto forks into the control group. Where clone3(2) is not allowed, as under RestrictNamespaces= of systemd, the shim moves
// itself.
func (b *birth) forkInto(argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	if b.group >= 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, b.group
		if pid, err = syscall.ForkExec("/proc/self/exe", argv, attr); err == nil {
			return pid, nil
		}
		attr.Sys.UseCgroupFD = false
	}
	return syscall.ForkExec("/proc/self/exe", argv, attr)
}

// handOver gives our ends to the worker. w.mu is held.
func (b *birth) handOver() {
	w := b.w
	w.said.socket = w.idle(b.notify)
	w.said.pipe = w.idle(b.pipe)
	w.said.control.socket = w.idle(b.listener)
	w.said.control.lines[0].source = w.idle(b.line)
	w.said.status = w.idle(b.status)
	for _, p := range w.pumps {
		w.side.Go(p.Run)
	}
	w.watch(&w.said.status, w.readReport)
}

// idle is a source that nobody watches yet.
func (w *Worker) idle(fd int) *source {
	if fd < 0 {
		return nil
	}
	return &source{fd: fd}
}

func (w *Worker) locked(read func()) func(uint32) {
	return func(uint32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		read()
	}
}

func (b *birth) undo() {
	ours := b.ours
	b.w.aside.Do(func() { closeAll(ours) })
	for _, p := range b.w.pumps {
		p.Close()
	}
	b.w.pumps = nil
	b.w.launcher.groups.end(b.w.process.group)
	if b.w.said.path != "" {
		b.w.launcher.notify.Unlink(b.w.said.path)
	}
	b.w.mu.Lock()
	b.w.process.ended = true
	b.w.mu.Unlock()
}

// pipe makes a pipe whose end for reading does not block; the other end blocks, as a program expects of it.
func pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		closeAll(p[:])
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	return p[0], p[1], nil
}

// give makes a pipe the worker's, so that it can open /dev/stdout (/proc/self/fd/1): nginx, Apache and php-fpm do.
func (b *birth) give(pipe int) {
	if owner := b.w.spec.Credential.owner(); owner >= 0 {
		unix.Fchown(pipe, owner, -1) //nolint:errcheck // without CAP_CHOWN only that is missing
	}
}

// owner returns whom a worker's files belong to; -1: the supervisor's own user.
func (c *Credential) owner() int {
	if c == nil || c.UID == unchanged {
		return -1
	}
	return int(c.UID)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// orders is what the shim is to do. Strings travel as bytes: they need not be UTF-8.
type orders struct {
	Command, Environment []byte // each string ends with a NUL
	Directory            []byte
	Group                string // the path of its control group; "": it stays where it is
	Keep                 int    // the first descriptor that the command must not see
	Credential           *Credential
	Limits               Limits
}

const orderSeals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// writeOrders puts o into a sealed memfd, by which the shim knows that it is one.
func writeOrders(o *orders) (int, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return -1, err
	}
	return sealed("orders", data)
}

// sealed makes a memfd, which holds any size, that nobody can change, and that is read from its beginning.
func sealed(name string, data []byte) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	for at := 0; at < len(data) && err == nil; {
		var n int
		n, err = unix.Pwrite(fd, data[at:], int64(at))
		at += max(n, 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, orderSeals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("cannot write to a memfd: %w", err)
	}
	return fd, nil
}

func pack(list []string) ([]byte, error) {
	var packed []byte
	for _, s := range list {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("%q contains a NUL byte: %w", s, syscall.EINVAL)
		}
		packed = append(append(packed, s...), 0)
	}
	return packed, nil
}

func unpack(packed []byte) []string {
	if len(packed) == 0 {
		return nil
	}
	return strings.Split(string(packed[:len(packed)-1]), "\x00")
}
