package graceful

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// http2 has the HTTP/2 connections of a server. They belong to http.Servers of their own, which can be shut down
// separately: Shutdown sends GOAWAY on HTTP/2, which is right, and drops requests on HTTP/1, which is never right;
// net/http cannot do only the former.
//
// GOAWAY tells a client to open new streams on another connection, and open streams run to their end. But a client that
// has not sent its first request may take it for a connection that could not be established, as net/http's does, and
// fail that request. So the connections from before the stop get GOAWAY when each of them has sent a request, or
// nothing for too long. Later ones, whose handshake was under way, get it with the answer to their first request, or
// when they have been idle for that time.
type http2 struct {
	before, during *http.Server // the stop

	mu      sync.Mutex
	left    bool // new connections go to during
	unasked int  // connections of before that have sent no request
}

// split gives the HTTP/2 connections of srv to other servers. silence is the time that is too long.
func (h *http2) split(srv *http.Server, silence time.Duration) (err error) {
	if h.before, err = forHTTP2(srv, srv.IdleTimeout); err != nil {
		return err
	}
	if idle := cmp.Or(srv.IdleTimeout, srv.ReadTimeout); idle > 0 {
		silence = min(silence, idle)
	}
	if h.during, err = forHTTP2(srv, silence); err != nil || h.before.TLSNextProto == nil {
		return err
	}
	srv.TLSNextProto = make(map[string]func(*http.Server, *tls.Conn, http.Handler))
	for proto := range h.before.TLSNextProto {
		srv.TLSNextProto[proto] = func(hs *http.Server, c *tls.Conn, handler http.Handler) {
			o := ours(c)
			h.join(o).TLSNextProto[proto](hs, c, handler)
			h.asked(o) // or gone
		}
	}
	return nil
}

// forHTTP2 returns a server that is set up as srv is, and has no listener.
func forHTTP2(srv *http.Server, idle time.Duration) (*http.Server, error) {
	s := &http.Server{
		TLSConfig: srv.TLSConfig.Clone(), TLSNextProto: maps.Clone(srv.TLSNextProto),
		Protocols: srv.Protocols, HTTP2: srv.HTTP2, IdleTimeout: idle, ReadTimeout: srv.ReadTimeout,
	}
	if c := s.TLSConfig; c != nil && !slices.Contains(c.NextProtos, "h2") {
		c.NextProtos = append(c.NextProtos, "h2") // otherwise Serve ignores HTTP/2
	}
	if err := s.Serve(shutListener{}); !errors.Is(err, errShut) {
		return nil, err
	}
	return s, nil
}

// join returns the server that a connection belongs to.
func (h *http2) join(c *conn) *http.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c != nil {
		c.streams.Store(true)
	}
	switch {
	case h.left:
		return h.during
	case c != nil:
		c.unasked = true
		h.unasked++
	}
	return h.before
}

// follow hears what net/http reports about a connection. Once its preface has come it is idle, and what makes it active
// after that is a request.
func (h *http2) follow(c *conn, state http.ConnState) {
	switch {
	case !c.streams.Load():
	case state == http.StateIdle:
		c.greeted = true
	case state == http.StateActive && c.greeted:
		h.asked(c)
	}
}

// asked notes that a connection has sent its first request, or has ended.
func (h *http2) asked(c *conn) {
	if c == nil || !c.unasked {
		return
	}
	c.unasked = false
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unasked--; h.left && h.unasked == 0 {
		h.sayGoAway()
	}
}

// leave sends the clients from before away after this silence at the latest, unless end is called first.
func (h *http2) leave(silence time.Duration) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left = true; h.unasked == 0 {
		h.sayGoAway()
		return func() {}
	}
	timer := time.AfterFunc(silence, h.sayGoAway)
	return func() { timer.Stop() }
}

// sayGoAway tells the clients of all connections from before.
func (h *http2) sayGoAway() { _ = h.before.Shutdown(context.Background()) }

// shutListener accepts nothing.
type shutListener struct{}

func (shutListener) Accept() (net.Conn, error) { return nil, errShut }
func (shutListener) Close() error              { return nil }
func (shutListener) Addr() net.Addr            { return &net.TCPAddr{} }
