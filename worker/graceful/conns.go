package graceful

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conns are the open connections of one server.
type conns struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	sealed bool          // no connection will be added
	gone   chan struct{} // closed when sealed and none is open
	early  sync.WaitGroup
}

func newConns() *conns {
	return &conns{open: make(map[*conn]struct{}), gone: make(chan struct{})}
}

// add takes a connection that was just accepted. It belongs to the server that serves it; conn.Close removes it. The
// goroutine that accepts calls add, so none comes after seal.
func (o *conns) add(c net.Conn, tls bool) *conn {
	n := &conn{Conn: c, all: o, tls: tls, doing: Fresh, since: time.Now()}
	o.early.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[n] = struct{}{}
	return n
}

// remove forgets a connection that was closed. It may be called twice, and by any goroutine: a server may close a
// connection while cut does.
func (o *conns) remove(c *conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.open[c]; !ok {
		return
	}
	delete(o.open, c)
	if o.sealed && len(o.open) == 0 {
		close(o.gone)
	}
}

// seal promises that no connection will be added.
func (o *conns) seal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	o.sealed = true
	if len(o.open) == 0 {
		close(o.gone)
	}
}

func (o *conns) list() []*conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]*conn, 0, len(o.open))
	for c := range o.open {
		list = append(list, c)
	}
	return list
}

// linger closes each connection that has been idle for longer than patience, until all are gone (true) or over is
// closed.
func (o *conns) linger(patience time.Duration, gone, over <-chan struct{}) bool {
	for {
		timer := time.NewTimer(time.Until(o.sweep(patience, time.Now())))
		select {
		case <-gone:
			timer.Stop()
			return true
		case <-over:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// sweep closes connections that have lingered long enough and returns when to look again. A connection that becomes
// idle later lingers for at least patience, so sweep need not look at it before that.
func (o *conns) sweep(patience time.Duration, now time.Time) (next time.Time) {
	const finest = 10 * time.Millisecond
	next = now.Add(max(patience, finest))
	for _, c := range o.list() {
		until, limited := c.lingersUntil(patience)
		switch {
		case !limited:
		case until.After(now):
			if until.Before(next) {
				next = until
			}
		case !c.closeIdle():
			next = now.Add(finest)
		}
	}
	return next
}

// cut closes everything. It returns a *CutOff that lists what was not finished, or nil.
func (o *conns) cut(st *stop) error {
	cut := &CutOff{After: time.Since(st.at)}
	for _, c := range o.list() {
		if doing, since := c.now(); doing == Active || doing == Hijacked {
			cut.Conns = append(cut.Conns, CutConn{c.LocalAddr(), c.RemoteAddr(), doing, time.Since(since)})
		}
		_ = c.Close()
	}
	if len(cut.Conns) == 0 {
		return nil
	}
	return cut
}

// conn is an accepted connection that records its use. NetConn returns the underlying connection.
type conn struct {
	net.Conn
	all     *conns
	tls     bool        // before the first request the bytes are a handshake
	streams atomic.Bool // HTTP/2: incoming bytes need not belong to a request
	heard   atomic.Bool // bytes have arrived since it was last fresh or idle
	touched sync.Once

	greeted, unasked bool // HTTP/2: see there; of the goroutine that serves it

	mu    sync.Mutex
	doing Doing
	since time.Time
	pause time.Duration // the longest that it was idle before a request
}

// touch records that the server has taken up the connection.
func (c *conn) touch() { c.touched.Do(c.all.early.Done) }

// is records what the connection is doing from now on.
func (c *conn) is(doing Doing) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doing == Idle && doing == Active {
		c.pause = max(c.pause, now.Sub(c.since))
	}
	if doing == Idle && c.doing != Idle {
		c.heard.Store(false)
	}
	c.doing, c.since = doing, now
}

// now returns what the connection is doing, and since when.
func (c *conn) now() (Doing, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

// nowLocked is now for a caller that holds mu.
func (c *conn) nowLocked() (Doing, time.Time) {
	if c.arriving() {
		return Active, c.since
	}
	return c.doing, c.since
}

// arriving reports whether part of a request has been read that net/http has not reported yet. The caller holds mu.
func (c *conn) arriving() bool {
	between := c.doing == Idle || c.doing == Fresh && !c.tls
	return between && c.heard.Load() && !c.streams.Load()
}

// lingersUntil returns when a connection without a request in flight may be closed; false while a request is in flight.
// If the client has come back before, the connection may stay idle for twice the client's longest pause.
func (c *conn) lingersUntil(patience time.Duration) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing, since := c.nowLocked()
	if doing == Active || doing == Hijacked {
		return time.Time{}, false
	}
	return since.Add(max(patience, 2*c.pause)), true
}

// closeIdle closes the connection unless the kernel has an unread request for it.
func (c *conn) closeIdle() bool {
	if doing, _ := c.now(); doing == Active || doing == Hijacked || c.unread() {
		return false
	}
	_ = c.Close()
	return true
}

// unread reports whether unread bytes wait in the kernel.
func (c *conn) unread() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		n, _, _ = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return n > 0
}

// NetConn returns the accepted connection, for callers that need its concrete type.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Read records that the client has sent something.
func (c *conn) Read(p []byte) (int, error) {
	c.touch()
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Write counts as a sign that the server has taken the connection up, as Read does: see touch.
func (c *conn) Write(p []byte) (int, error) {
	c.touch()
	return c.Conn.Write(p)
}

// SetDeadline is the first thing that gRPC does with a connection that it takes up: see touch.
func (c *conn) SetDeadline(t time.Time) error {
	c.touch()
	return c.Conn.SetDeadline(t)
}

// ReadFrom keeps sendfile(2) and splice(2) for what the server sends.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	c.touch()
	if to, ok := c.Conn.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}

// CloseWrite closes the sending side, if the connection supports that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn gives access to the descriptor.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Close closes the connection and removes it from its conns.
func (c *conn) Close() error {
	c.touch()
	err := c.Conn.Close()
	c.all.remove(c)
	return err
}

// ours finds the conn beneath the wrapper that a server made around it (TLS).
func ours(c net.Conn) *conn {
	for c != nil {
		switch t := c.(type) {
		case *conn:
			return t
		case interface{ NetConn() net.Conn }:
			c = t.NetConn()
		case interface{ UnencryptedNetConn() net.Conn }: // how net/http hands an h2c connection over
			c = t.UnencryptedNetConn()
		default:
			return nil
		}
	}
	return nil
}
