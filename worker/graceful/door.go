package graceful

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// errShut is what Accept returns to a server once the door is shut.
var errShut = errors.New("no more connections are accepted")

// door is the listener that a server accepts from. Shutting it loses no connection that was already accepted.
type door struct {
	net.Listener
	accepting func()
	open      *conns
	shared    bool
	tls       bool // the server wraps accepted connections in TLS

	mu    sync.Mutex
	stops bool
	rest  time.Time // for a socket of our own: when to stop accepting the rest of its queue
}

func newDoor(ln net.Listener, accepting func()) *door {
	return &door{Listener: ln, accepting: accepting, open: newConns(), shared: started().isShared(ln)}
}

// Accept returns the next connection, and errShut after shut.
func (d *door) Accept() (net.Conn, error) {
	d.accepting()
	if d.stopped() {
		return d.last()
	}
	c, err := d.Listener.Accept()
	switch {
	case err == nil:
		return d.open.add(c, d.tls), nil
	case d.stopped():
		return d.last()
	}
	return nil, err
}

func (d *door) stopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stops
}

// shut wakes Accept without closing its socket: accept(2) has either returned a connection or left it queued.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = true
	d.rest = time.Now().Add(time.Second)
	if dl, ok := d.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		_ = dl.SetDeadline(time.Unix(1, 0))
		return
	}
	_ = d.Listener.Close()
}

// last accepts what the kernel has already queued on a socket of our own, because closing the socket would reset these
// connections. A shared socket stays open elsewhere, and its queue belongs to the next worker.
func (d *door) last() (net.Conn, error) {
	if c := d.queued(); c != nil {
		return d.open.add(c, d.tls), nil
	}
	if err := d.Close(); err != nil {
		return nil, errors.Join(errShut, err)
	}
	return nil, errShut
}

func (d *door) queued() net.Conn {
	dl, ok := d.Listener.(interface{ SetDeadline(time.Time) error })
	if d.shared || !ok || time.Now().After(d.rest) {
		return nil
	}
	_ = dl.SetDeadline(time.Now().Add(2 * time.Millisecond)) // with a deadline in the past, Accept would not look at the queue
	c, err := d.Listener.Accept()
	if err != nil {
		return nil
	}
	return c
}

// Close closes this process's descriptor of the socket. Servers call it more than once.
func (d *door) Close() error {
	if err := d.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
