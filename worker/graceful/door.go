package graceful

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errShut is what Accept returns to a server once the door is shut.
var errShut = errors.New("no more connections are accepted")

// How long after the stop began a door may still accept what was on its way then.
const (
	lastQueued    = time.Second     // if the queue never gets empty: a shared socket under load
	lastHandshake = 3 * time.Second // if a handshake continues: the kernel sends its part again after one second
)

// afterLast is how many a door accepts after that, of those that wait then: as many as fit into a queue. A process that
// was stopped, or got no processor, finds the time over and what came meanwhile in the queue.
const afterLast = 4096

// door is the listener that a server accepts from. Shutting it loses no connection that was already accepted, nor one
// that was on its way.
type door struct {
	net.Listener
	accepting func()
	open      *conns
	shared    bool
	tls       bool // the server wraps accepted connections in TLS

	mu    sync.Mutex
	stops time.Time // zero: not yet

	// Of the one goroutine that accepts, after the stop.
	handshakes *handshakes
	ended      bool          // no handshake is left
	pause      time.Duration // until the handshakes are looked at again
	late       int           // looks after the last moment
}

// deadlined is a listener whose Accept can be interrupted without closing its socket.
type deadlined interface {
	net.Listener
	SetDeadline(time.Time) error
}

// newDoor returns the door of ln, which it takes over. accepting is called before each accept(2), also before the
// first, when the server is ready.
func newDoor(ln net.Listener, st *stop, accepting func()) *door {
	if _, is := ln.(deadlined); !is {
		st.abrupt.Store(true) // such a listener has to be closed, and what its queue holds is lost
	}
	return &door{Listener: ln, accepting: accepting, open: newConns(), shared: started().isShared(ln)}
}

// Accept returns the next connection, and errShut after shut.
func (d *door) Accept() (net.Conn, error) {
	d.accepting()
	if !d.stopped().IsZero() {
		return d.last()
	}
	c, err := d.Listener.Accept()
	switch {
	case err == nil:
		return d.open.add(c, d.tls), nil
	case !d.stopped().IsZero():
		return d.last()
	}
	return nil, err
}

func (d *door) stopped() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stops
}

// shut wakes Accept without closing its socket: accept(2) has either returned a connection or left it queued.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = time.Now()
	if dl, ok := d.Listener.(deadlined); ok {
		_ = dl.SetDeadline(time.Unix(1, 0))
		return
	}
	_ = d.Listener.Close()
}

// last accepts what was on its way when the stop began: what is queued, and what the handshakes under way become. It
// ends when the queue is empty and those handshakes are over. The socket may be this worker's lane, whose queue no
// other process takes. On a socket that the next worker accepts from as well, the little that last takes is served like
// everything else.
func (d *door) last() (net.Conn, error) {
	if c := d.queued(); c != nil {
		return d.open.add(c, d.tls), nil
	}
	if err := d.Close(); err != nil {
		return nil, errors.Join(errShut, err)
	}
	return nil, errShut
}

// queued returns the next connection that was on its way when the stop began, or nil when there is none left. It is
// called by the one goroutine that accepts, so the fields of door after the stop need no lock.
func (d *door) queued() net.Conn {
	dl, ok := d.Listener.(deadlined)
	if !ok {
		return nil
	}
	if d.handshakes == nil {
		d.handshakes = underWay(d.Listener)
		d.ended, d.pause = !d.handshakes.left(), time.Millisecond
	}
	since := d.stopped()
	for {
		over := since.Add(lastQueued)
		if !d.ended {
			over = since.Add(lastHandshake)
		}
		if time.Now().After(over) {
			d.late++
		}
		if blocks(d.Listener) || d.late > 0 && (d.late > afterLast || !waits(d.Listener)) {
			return nil
		}
		d.pause = min(2*d.pause, 100*time.Millisecond)
		_ = dl.SetDeadline(time.Now().Add(d.pause)) // with a deadline in the past, Accept would not look at the queue
		c, err := d.Listener.Accept()
		switch {
		case err == nil:
			return c
		case !errors.Is(err, os.ErrDeadlineExceeded), d.ended && !waits(d.Listener):
			return nil
		}
		if d.ended = !d.handshakes.left(); d.ended {
			d.pause = time.Millisecond // the last of them may have been queued since
		}
	}
}

// waits reports whether a connection waits in the queue of a socket. Accept does not look again when its deadline has
// passed, however late the runtime has noticed that: a process that got no processor meanwhile would leave behind what
// has come.
func waits(ln net.Listener) (found bool) {
	_ = onDescriptor(ln, func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		found = n > 0
		return err
	})
	return found
}

// blocks reports whether accept(2) on the socket could hang although the runtime polls it: another process that has the
// socket has made it blocking.
func blocks(ln net.Listener) bool {
	flags := unix.O_NONBLOCK
	err := onDescriptor(ln, func(fd int) (err error) {
		flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		return err
	})
	return err != nil || flags&unix.O_NONBLOCK == 0
}

// onDescriptor calls f with the descriptor of a listener that has one.
func onDescriptor(ln net.Listener, f func(fd int) error) error {
	s, is := ln.(syscall.Conn)
	if !is {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	if refused := raw.Control(func(fd uintptr) { err = f(int(fd)) }); refused != nil {
		return refused
	}
	return err
}

// Close closes this process's descriptor of the socket. Servers call it more than once.
func (d *door) Close() error {
	if err := d.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
