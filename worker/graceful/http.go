package graceful

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// HTTP serves srv on ln. For echo, chi or gin, set srv.Handler to theirs. With certificates in srv.TLSConfig it speaks
// TLS. It speaks HTTP/2 if srv.Protocols, or net/http's default over TLS, says so. ln must be the plain listener, not
// one from tls.NewListener.
func HTTP(ln net.Listener, srv *http.Server) Server { return &httpServer{ln: ln, srv: srv} }

type httpServer struct {
	ln      net.Listener
	srv     *http.Server
	http2   http2
	leaving atomic.Bool
}

// run implements Server. The door owns the listener; net/http closes the connections, or drain does at the deadline.
func (h *httpServer) run(st *stop, accepting func()) error {
	d := newDoor(h.ln, st, accepting)
	if err := h.prepare(st.silence()); err != nil {
		return errors.Join(err, d.Close())
	}
	d.tls = h.speaksTLS()
	served := st.serving(func() error { return fmt.Errorf("cannot serve HTTP on %s: %w", h.ln.Addr(), h.serve(d)) })
	h.leaving.Store(true)
	d.shut()
	return h.drain(st, d, served)
}

// drain sends each client away when its connection allows that. It shuts srv down only when no connection is left.
func (h *httpServer) drain(st *stop, d *door, served <-chan struct{}) error {
	select {
	case <-served:
	case <-st.over: // Accept hangs, and so would Close: another process has made the shared socket blocking
		return d.open.cut(st)
	}
	d.open.seal()
	defer h.http2.leave(st.silence())()
	var cut error
	if !d.open.linger(st.patience(d.shared), d.open.gone, st.over) {
		cut = d.open.cut(st)
	}
	return errors.Join(cut, h.end())
}

// end runs what the caller registered with RegisterOnShutdown. Nothing is left to wait for.
func (h *httpServer) end() error {
	at, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.srv.Shutdown(at); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return h.srv.Close()
}

func (h *httpServer) speaksTLS() bool {
	c := h.srv.TLSConfig
	return c != nil && (len(c.Certificates) > 0 || c.GetCertificate != nil || c.GetConfigForClient != nil)
}

func (h *httpServer) serve(d *door) error {
	if d.tls {
		return h.srv.ServeTLS(d, "", "")
	}
	return h.srv.Serve(d)
}

// prepare installs our hooks beneath the caller's.
func (h *httpServer) prepare(silence time.Duration) error {
	if err := h.http2.split(h.srv, silence); err != nil {
		return fmt.Errorf("cannot set up HTTP/2: %w", err)
	}
	handler, hook := h.srv.Handler, h.srv.ConnState
	if handler == nil {
		handler = http.DefaultServeMux
	}
	h.srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor >= 2 {
			if h.leaving.Load() {
				w.Header().Set("Connection", "close") // net/http makes GOAWAY of it
			}
			handler.ServeHTTP(w, r)
			return
		}
		answer := &response{ResponseWriter: w, server: h}
		handler.ServeHTTP(answer, r)
		if !answer.decided { // net/http writes the header now
			answer.decide()
		}
	})
	h.srv.ConnState = func(c net.Conn, state http.ConnState) {
		if o := ours(c); o != nil {
			o.follow(state)
			h.http2.follow(o, state)
		}
		if hook != nil {
			hook(c, state)
		}
	}
	return nil
}

// follow records what net/http reports about a connection. Close records the end itself.
func (c *conn) follow(state http.ConnState) {
	switch state {
	case http.StateActive:
		c.is(Active)
	case http.StateIdle:
		c.is(Idle)
	case http.StateHijacked:
		c.is(Hijacked)
	case http.StateNew, http.StateClosed:
	}
}
