// Package clients shares the connections of an HTTP server among its clients: however many connections one client
// opens, and whatever it does with them, another client gets in.
package clients

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Identity is who is at the other end of a connection, as far as the server tells clients apart.
type Identity struct {
	Name any // comparable; connections with the same name share a part
	Rank int // a client never takes the place of a client with a higher rank
}

// Gate lets at most Max connections in. At the limit a new connection takes the place of another: of the clients with
// the lowest rank, not above its own, the client with the most connections loses one that is idle, else one that has
// not sent its first request, else one that is being answered; the oldest of these. A connection that is being answered
// is closed only for its own client, or for a client that would still have fewer connections. If no connection may be
// closed, the new one reads Full and is closed.
//
// The http.Server must use ConnState.
type Gate struct {
	net.Listener
	Max      int
	Identify func(net.Conn) (Identity, error) // an error closes the connection
	Full     string                           // a complete answer in HTTP, short enough for an empty socket buffer

	mu    sync.Mutex
	conns map[*Conn]bool
	count map[any]int // of connections, by client
}

// Conn is a connection that was let in.
type Conn struct {
	net.Conn
	Identity

	listener *Gate
	since    time.Time // in this state
	state    http.ConnState
	once     sync.Once
}

// Accept returns the next connection that is let in, as a *Conn.
func (l *Gate) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
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

// ConnState follows the state of the connections.
func (l *Gate) ConnState(conn net.Conn, s http.ConnState) {
	c := conn.(*Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.state, c.since = s, time.Now()
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
