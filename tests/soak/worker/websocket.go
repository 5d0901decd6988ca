package main

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"example.org/supervisord/tests/soak/account"
)

// socket answers each message of a WebSocket, the number of a request, until the client closes it.
func (w *worker) socket(to http.ResponseWriter, r *http.Request) {
	e := entryOf(r)
	c, err := websocket.Accept(to, r, nil)
	if err != nil {
		return // the connection is net/http's
	}
	defer w.book.Drop(e)
	defer c.CloseNow() //nolint:errcheck // it may be closed
	defer w.sockets.leave(c)
	w.sockets.enter(c)
	for {
		_, message, err := c.Read(context.Background())
		if err != nil {
			return
		}
		id, err := strconv.ParseUint(string(message), 16, 64)
		if err != nil {
			return
		}
		w.book.Begin(e, id)
		if c.Write(context.Background(), websocket.MessageText, w.text(id)) != nil {
			return
		}
		w.book.End(e, id)
	}
}

// sockets are the open WebSockets.
type sockets struct {
	mu      sync.Mutex
	open    map[*websocket.Conn]bool
	leaving bool
}

func (s *sockets) enter(c *websocket.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*websocket.Conn]bool{}
	}
	s.open[c] = true
	if s.leaving {
		bye(c)
	}
}

func (s *sockets) leave(c *websocket.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// goodbye asks every client to close its WebSocket when it has all its answers. A close frame would be too early: no
// answer may follow it, and a message of the client may be on the way.
func (s *sockets) goodbye(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	for c := range s.open {
		bye(c)
	}
}

func bye(c *websocket.Conn) {
	_ = c.Write(context.Background(), websocket.MessageText, []byte(account.Bye)) // an error: the client has gone
}
