// Package clients shares the connections of an HTTP server among its clients: however many connections one client
// opens, and whatever it does with them, another client gets in.
package clients

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Identity is who is at the other end of a connection, as far as the server tells clients apart.
type Identity struct {
	Name any // comparable; connections with the same name share a part
	Rank int // a client never takes the place of a client with a higher rank
}

// Listener is a *net.TCPListener or a *net.UnixListener, or has one.
type Listener interface {
	net.Listener
	SetDeadline(time.Time) error
}

// Gate lets at most Max connections in. At the limit a new connection takes the place of another: of the clients with
// the lowest rank, not above its own, the client with the most connections loses one that is idle, else one that has
// not sent its first request, else one that is being answered; the oldest of these. A connection that is being answered
// is closed only for its own client, or for a client that would still have fewer connections. If no connection may be
// closed, the new one reads Full and is closed.
//
// The http.Server must use ConnState, and ConnContext if its handlers use Of or Lasts.
type Gate struct {
	Listener
	Max      int
	Identify func(net.Conn) (Identity, error) // an error closes the connection
	Full     string                           // a complete answer in HTTP, short enough for an empty socket buffer

	mu      sync.Mutex
	conns   map[*Conn]bool
	count   map[any]int   // of connections, by client
	shut    chan struct{} // closed by Open; nil: Finish was not called
	parked  bool          // Accept waits until shut is closed
	changed chan struct{} // closed at the next change of the above or of a connection, for Finish; nil: nobody waits
}

// Conn is a connection that was let in.
type Conn struct {
	net.Conn
	Identity

	listener *Gate
	since    time.Time // in this state
	state    http.ConnState
	lasts    bool // see Lasts
	once     sync.Once
}

// Accept returns the next connection that is let in, as a *Conn.
func (l *Gate) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded): // by Finish
			l.park()
			continue
		case err != nil:
			return nil, passing{err}
		}
		who, err := l.Identify(raw)
		if err != nil {
			raw.Close() //nolint:errcheck // the client is gone
			continue
		}
		c, victim := l.enter(&Conn{Conn: raw, Identity: who, listener: l, since: time.Now()})
		if victim != nil {
			victim.Close() //nolint:errcheck // the client is gone either way
		}
		if c != nil {
			return c, nil
		}
		raw.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // it is a socket
		raw.Write([]byte(l.Full))                         //nolint:errcheck // the client may be gone
		raw.Close()                                       //nolint:errcheck // likewise
	}
}

// passing is an error after which net/http accepts again, a little later. net/http gives up a listener after most other
// errors, but accept(2) can fail just because the kernel has no memory for a moment.
type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

// enter lets c in, or returns nil. The caller must close victim, whose place c takes.
func (l *Gate) enter(c *Conn) (in, victim *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.Max {
		if victim = l.victim(c); victim == nil {
			return nil, nil
		}
		l.forget(victim)
	}
	if l.conns == nil {
		l.conns, l.count = map[*Conn]bool{}, map[any]int{}
	}
	l.conns[c] = true
	l.count[c.Name]++
	return c, victim
}

// victim returns the connection whose place c takes, or nil.
func (l *Gate) victim(c *Conn) *Conn {
	var worst *Conn
	for v := range l.conns {
		if l.mayReplace(v, c) && (worst == nil || l.before(v, worst)) {
			worst = v
		}
	}
	return worst
}

func (l *Gate) mayReplace(v, c *Conn) bool {
	switch {
	case v.Rank != c.Rank:
		return v.Rank < c.Rank
	case v.state == http.StateActive && v.Name != c.Name:
		return l.count[v.Name] > l.count[c.Name]+1
	}
	return true
}

// before reports whether v is closed rather than w.
func (l *Gate) before(v, w *Conn) bool {
	switch {
	case v.Rank != w.Rank:
		return v.Rank < w.Rank
	case l.count[v.Name] != l.count[w.Name]:
		return l.count[v.Name] > l.count[w.Name]
	case v.state != w.state:
		return loss(v.state) < loss(w.state)
	}
	return v.since.Before(w.since)
}

// loss orders the states of connections by how much is lost when they are closed.
func loss(s http.ConnState) int {
	switch s {
	case http.StateIdle:
		return 0
	case http.StateNew:
		return 1
	}
	return 2
}

// Finish lets no more connections in, and returns when the requests on those that are in have been answered, at the
// latest when ctx ends. A connection without a request counts as one whose request is on its way. New connections wait
// in the kernel, for the next process that accepts or until Open.
func (l *Gate) Finish(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut == nil {
		l.shut = make(chan struct{})
		l.deadline(time.Unix(1, 0)) // Accept returns, and parks
	}
	for l.shut != nil && (!l.parked || l.unanswered()) && ctx.Err() == nil {
		changed := make(chan struct{})
		l.changed = changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// Open lets connections in again after Finish.
func (l *Gate) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut != nil {
		l.deadline(time.Time{})
		close(l.shut)
		l.shut = nil
		l.change()
	}
}

// Close closes the listener, also after Finish.
func (l *Gate) Close() error {
	err := l.Listener.Close()
	l.Open()
	return err
}

func (l *Gate) deadline(t time.Time) {
	l.Listener.SetDeadline(t) //nolint:errcheck // the listener is closed
}

// park waits until Open.
func (l *Gate) park() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.shut != nil {
		opened := l.shut
		l.parked = true
		l.change()
		l.mu.Unlock()
		<-opened
		l.mu.Lock()
	}
	l.parked = false
}

// unanswered reports whether a request is on its way or has no answer yet. l.mu is held.
func (l *Gate) unanswered() bool {
	for c := range l.conns {
		if !c.lasts && (c.state == http.StateNew || c.state == http.StateActive) {
			return true
		}
	}
	return false
}

// change wakes Finish. l.mu is held.
func (l *Gate) change() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

type connKey struct{}

// ConnContext makes the connection known to the handlers of its requests.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c.(*Conn))
}

// Of returns the connection of a request, or nil if the http.Server does not use ConnContext.
func Of(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Lasts says that the rest of the answer to a request has no end of its own, and that the client takes the rest up
// again after a break: Finish does not wait for it.
func Lasts(ctx context.Context) {
	c := Of(ctx)
	if c == nil {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.lasts = true
	c.listener.change()
}

// ConnState follows the state of the connections.
func (l *Gate) ConnState(conn net.Conn, s http.ConnState) {
	c := conn.(*Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.state, c.since, c.lasts = s, time.Now(), false
	l.change()
}

// forget makes room. l.mu is held.
func (l *Gate) forget(c *Conn) {
	if !l.conns[c] {
		return
	}
	delete(l.conns, c)
	if l.count[c.Name]--; l.count[c.Name] == 0 {
		delete(l.count, c.Name)
	}
	l.change()
}

// Close closes the connection and makes room for another.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.forget(c)
	})
	return c.Conn.Close()
}
