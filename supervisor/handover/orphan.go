package handover

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/spawn"
)

// Orphan is a worker without a supervisor: its process, and those that it has started.
type Orphan struct {
	Program string // whose worker it was

	pid     int
	pidfd   *os.File       // so that it cannot be another process
	uid     int            // whom it runs as
	path    string         // of its NOTIFY_SOCKET, which no other worker has
	leads   bool           // a session, and a process group
	began   time.Duration  // after the start of the machine
	rest    []*Orphan      // the other processes with its NOTIFY_SOCKET; they end with it
	sockets []uint64       // the inodes of the sockets that these processes have
	streams map[string]int // our ends of its pipes, until Streams
	waits   []string       // the programs that it serves for; empty: it can go
	asked   bool           // the supervisor before this one has told it to go
	told    atomic.Bool
	due     atomic.Bool // Await is over
	now     atomic.Bool // End is over
}

// openOrphan returns nil if there is no such process.
func openOrphan(pid int) *Orphan {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return newOrphan(pid, fd)
}

func newOrphan(pid, pidfd int) *Orphan {
	unix.SetNonblock(pidfd, true) //nolint:errcheck // so that os.NewFile gives it to the poller
	return &Orphan{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "process "+strconv.Itoa(pid)), streams: map[string]int{}}
}

// socket returns a duplicate of one of the process's descriptors, if it is a listening socket that our user has opened. An error says that it
// may be one.
func (o *Orphan) socket(number int) (s inherit.Socket, ok bool, err error) {
	fd := -1
	o.use(func(pidfd int) { fd, err = unix.PidfdGetfd(pidfd, number, 0) })
	if err != nil || fd < 0 {
		return inherit.Socket{}, false, err
	}
	var st unix.Stat_t // of the socket's inode, which belongs to its creator
	i, err := inherit.Examine(fd, "orphan")
	if err != nil || !i.Listens || i.Network == "unixgram" || unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() {
		unix.Close(fd)
		return inherit.Socket{}, false, nil
	}
	i.Ours, i.InUse = true, true
	return i, true, nil
}

// takeStreams opens the pipes of the worker's output, so that it does not wait for somebody who reads. links are its descriptors.
func (o *Orphan) takeStreams(links map[int]string) {
	for number, name := range map[int]string{1: worker.FDStdout, 2: worker.FDStderr} {
		if strings.HasPrefix(links[number], "pipe:") {
			if fd := o.pipe(number); fd >= 0 {
				o.streams[name] = fd
			}
		}
	}
}

// pipe opens the reading end of a pipe that a supervisor has made: it is open for reading and writing in the worker. -1: it is another one.
func (o *Orphan) pipe(number int) int {
	fd, err := -1, error(nil)
	o.use(func(pidfd int) { fd, err = unix.PidfdGetfd(pidfd, number, 0) })
	if err != nil || fd < 0 {
		return -1
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return -1
	}
	read, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return read
}

// PID returns the process of the worker.
func (o *Orphan) PID() int { return o.pid }

// Credential says whom the worker runs as, and who owns its log files.
func (o *Orphan) Credential() *spawn.Credential { return &spawn.Credential{UID: uint32(o.uid)} }

// Streams returns the pipes of the worker's output by their names, worker.FDStdout and worker.FDStderr, once: they are the caller's.
func (o *Orphan) Streams() (streams map[string]int) {
	streams, o.streams = o.streams, nil
	return streams
}

// use calls f with the pidfd, unless it is closed.
func (o *Orphan) use(f func(pidfd int)) {
	if conn, err := o.pidfd.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { f(int(fd)) }) //nolint:errcheck // closed: then it has ended
	}
}

// orphanTimeout is how long an orphan whose program is gone may drain.
const orphanTimeout = 30 * time.Second

// Sockets returns the inodes of the sockets that the worker has.
func (o *Orphan) Sockets() []uint64 { return o.sockets }

// Await waits until the process has nothing in hand, has ended, or was told to stop before, for this time at most. Call it before End.
// look finds out whether the process has nothing in hand, or when to look again, given how long ago the first look was.
func (o *Orphan) Await(look func(age time.Duration) (quiet bool, again time.Duration), limit time.Duration) {
	for began := time.Now(); !o.asked; {
		age := time.Since(began)
		quiet, again := look(age)
		if quiet || age >= limit {
			return
		}
		o.pidfd.SetReadDeadline(time.Now().Add(min(again, limit-age))) //nolint:errcheck // a pidfd is in the poller
		if o.due.Load() || o.ended() {
			return
		}
	}
}

// End sends the signals of a stop plan to the worker, as to one that is not an orphan, until its process has ended, and KILL after the
// last step or when there is no more time. It waits for the end, and kills what is left of the worker.
func (o *Orphan) End(stop config.StopPolicy) {
	defer o.pidfd.Close()
	defer o.killRest()
	for i, step := range stop.Steps {
		o.told.Store(true)
		if i > 0 || !o.asked { // a second TERM means now to many programs
			o.signal(step.Signal, stop.Group)
		}
		var deadline time.Time
		if step.Wait != config.Forever {
			deadline = time.Now().Add(step.Wait)
		}
		o.pidfd.SetReadDeadline(deadline) //nolint:errcheck // a pidfd is in the poller
		if o.now.Load() {
			break
		}
		if o.ended() {
			return
		}
	}
	o.signal(syscall.SIGKILL, false)
	o.pidfd.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // likewise
	o.ended()
}

// DefaultStop is the stop plan of an orphan whose program is gone.
func DefaultStop() config.StopPolicy {
	return config.StopPolicy{Steps: []config.StopStep{{Signal: syscall.SIGTERM, Wait: orphanTimeout}}}
}

// killRest kills what is left of a worker whose process has ended: its process group, and what else has its NOTIFY_SOCKET.
func (o *Orphan) killRest() {
	// A group keeps its number from being reused. If the process is still there as a zombie, or none has its number, the group is its own.
	if o.leads && (o.lives() || errors.Is(unix.Kill(o.pid, 0), unix.ESRCH)) {
		unix.Kill(-o.pid, syscall.SIGKILL) //nolint:errcheck // nothing may be left
	}
	for _, p := range o.rest {
		p.End(config.StopPolicy{})
	}
}

// hurry makes End kill the process now.
func (o *Orphan) hurry() {
	o.due.Store(true)
	o.now.Store(true)
	o.pidfd.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // closed: it has ended
}

func (o *Orphan) signal(sig syscall.Signal, group bool) {
	o.use(func(pidfd int) {
		if group && o.leads && proc.Exists(pidfd) {
			unix.Kill(-o.pid, sig) //nolint:errcheck // it may have ended
			return
		}
		unix.PidfdSendSignal(pidfd, sig, nil, 0) //nolint:errcheck // likewise
	})
}

// ended waits until the process has ended, or for the deadline.
func (o *Orphan) ended() bool {
	conn, err := o.pidfd.SyscallConn()
	if err != nil {
		return true
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	}) == nil
}

// lives reports whether the process has not ended.
func (o *Orphan) lives() bool {
	lives := false
	o.use(func(pidfd int) { lives = proc.Exists(pidfd) })
	return lives
}
