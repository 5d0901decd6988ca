package graceful

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// errShut is what a server's Accept gets once the door is shut.
var errShut = errors.New("no more connections are accepted")

// door is the listener that a server gets. It can be shut without losing a connection that was already accepted.
type door struct {
	net.Listener
	accepting func()
	open      *conns
	shared    bool
	tls       bool // the server makes TLS of what it accepts

	mu    sync.Mutex
	stops bool
	rest  time.Time // our own socket: until when the rest of its queue is taken
}

func newDoor(ln net.Listener, accepting func()) *door {
	return &door{Listener: ln, accepting: accepting, open: newConns(), shared: started().isShared(ln)}
}

// Accept gives the next connection, and errShut after shut.
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

// shut wakes Accept without closing anything under it: accept(2) either gave a connection to the server or left it queued.
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

// last takes what the kernel already queued on a socket of our own: it would be reset with the socket. A shared
// socket stays open elsewhere, and its queue belongs to the next worker.
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
	_ = dl.SetDeadline(time.Now().Add(2 * time.Millisecond)) // with one in the past Accept would not even look
	c, err := d.Listener.Accept()
	if err != nil {
		return nil
	}
	return c
}

// Close closes this process's descriptor of the socket; servers do it more than once.
func (d *door) Close() error {
	if err := d.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
