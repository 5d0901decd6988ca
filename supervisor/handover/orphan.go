package handover

import (
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/inherit"
)

// Orphan is one process without a supervisor.
type Orphan struct {
	Program string // whose worker it was

	pid     int
	pidfd   *os.File // so that it cannot be another process
	sockets []uint64 // the inodes of the sockets that it has
	waits   []string // the programs that it serves for; empty: it can go
	asked   bool     // the supervisor before this one has told it to go
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
	return &Orphan{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "process "+strconv.Itoa(pid))}
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

// use calls f with the pidfd, unless it is closed.
func (o *Orphan) use(f func(pidfd int)) {
	if conn, err := o.pidfd.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { f(int(fd)) }) //nolint:errcheck // closed: then it has ended
	}
}

// orphanTimeout is how long an orphan whose program is gone may drain.
const orphanTimeout = 30 * time.Second

// Sockets returns the inodes of the listening sockets that the process has.
func (o *Orphan) Sockets() []uint64 { return o.sockets }

// How long Await waits between two looks.
const (
	lookFirst = time.Millisecond
	lookLast  = 250 * time.Millisecond
)

// Await waits until the process has nothing in hand, has ended, or was told to stop before, for this time at most. Call it before End.
func (o *Orphan) Await(quiet func() bool, limit time.Duration) {
	end := time.Now().Add(limit)
	for pause := lookFirst; !o.asked && time.Now().Before(end) && !quiet(); pause = min(2*pause, lookLast) {
		o.pidfd.SetReadDeadline(time.Now().Add(pause)) //nolint:errcheck // a pidfd is in the poller
		if o.due.Load() || o.ended() {
			return
		}
	}
}

// End sends the signals of a stop plan until the process has ended, and KILL after the last step or
// when there is no more time. It waits for the end.
func (o *Orphan) End(steps []config.StopStep) {
	defer o.pidfd.Close()
	for i, step := range steps {
		o.told.Store(true)
		if i > 0 || !o.asked { // a second TERM means now to many programs
			o.signal(step.Signal)
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
	o.signal(syscall.SIGKILL)
	o.pidfd.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // likewise
	o.ended()
}

// DefaultStop is the stop plan of an orphan whose program is gone.
func DefaultStop() []config.StopStep {
	return []config.StopStep{{Signal: syscall.SIGTERM, Wait: orphanTimeout}}
}

// hurry makes End kill the process now.
func (o *Orphan) hurry() {
	o.due.Store(true)
	o.now.Store(true)
	o.pidfd.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // closed: it has ended
}

func (o *Orphan) signal(sig syscall.Signal) {
	o.use(func(pidfd int) { unix.PidfdSendSignal(pidfd, sig, nil, 0) }) //nolint:errcheck // it may have ended
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
