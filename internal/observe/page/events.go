package page

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// How often a stream is written to.
const (
	atMostEach = 250 * time.Millisecond
	atLeast    = 5 * time.Second // for what workers use is no event, and who has gone is to be noticed
)

// stream is one client of GET /events.
type stream struct {
	changed chan struct{} // with room for one
}

// Notify says that something has changed. It never waits.
func (s *Server) Notify() {
	s.sequence.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.streams {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
}

func (s *Server) enter() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &stream{make(chan struct{}, 1)}
	s.streams[c] = true
	return c
}

func (s *Server) leave(c *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, c)
	if len(s.streams) == 0 {
		s.text = nil
	}
}

// events is a stream of server-sent events, each of them the whole state: whoever misses one has lost nothing.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	c := s.enter()
	defer s.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	out.SetReadDeadline(time.Time{}) //nolint:errcheck // it is a socket; the client says nothing more
	alive := time.NewTicker(atLeast)
	defer alive.Stop()
	for message := s.message(r.Context()); message != nil; {
		out.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:errcheck // it is a socket
		if _, err := w.Write(message); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-c.changed: // and what follows at once
			if !s.pause(r.Context(), atMostEach) {
				return
			}
			message = s.message(r.Context())
		case <-alive.C:
			message = s.message(r.Context())
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// pause waits for d; false: the client has gone, or the server ends.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// message is the state as one event; nil: there is none any more.
func (s *Server) message(ctx context.Context) []byte {
	text, err := s.state(ctx)
	if err != nil {
		return nil
	}
	return bytes.Join([][]byte{[]byte("event: state\nretry: 2000\ndata: "), text, []byte("\n\n")}, nil)
}

// state is the state in JSON. All who ask at the same moment get the same text.
func (s *Server) state(ctx context.Context) ([]byte, error) {
	now := s.sequence.Load()
	s.mu.Lock()
	text, fresh := s.text, s.textOf == now && time.Since(s.textAt) < atMostEach
	s.mu.Unlock()
	if text != nil && fresh {
		return text, nil
	}
	st, err := s.State(ctx)
	if err != nil {
		return nil, err
	}
	st.Token = s.TokenFile != ""
	if text, err = json.Marshal(st); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.textOf, s.textAt = text, now, time.Now()
	return text, nil
}
