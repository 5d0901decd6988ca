package control

import (
	"context"
	"net/http"

	"example.org/supervisord/supervisor"
)

// follow asks for every update from now on.
func (s *Server) follow(ctx context.Context) (<-chan *supervisor.Update, error) {
	v, err := s.ask(ctx, askTimeout, supervisor.FollowRequest{})
	if err != nil {
		return nil, err
	}
	return v.(<-chan *supervisor.Update), nil
}

// unfollow is called as a stream ends, so it does not depend on whoever read it.
func (s *Server) unfollow(c <-chan *supervisor.Update) {
	s.ask(context.Background(), askTimeout, supervisor.UnfollowRequest{Updates: c}) //nolint:errcheck // then nobody publishes
}

// Event is a line of GET /v1/events: an update, or, as the last line, why there are no more.
type Event struct {
	*supervisor.Update
	*Problem
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	program := r.FormValue("program")
	if program != "" {
		if _, err := s.snapshot(r.Context(), program); err != nil {
			return err
		}
	}
	out := newLines(w)
	updates, err := s.follow(r.Context())
	if err != nil {
		return err
	}
	defer s.unfollow(updates)
	out.begin()
	for {
		select {
		case u, open := <-updates:
			if !open {
				out.write(Event{Problem: problem(Stopping, "the events end here: supervisord ends, or this client was too slow", "connect again")}) //nolint:errcheck // the end
				return nil
			}
			if program != "" && u.Program != program {
				continue
			}
			if out.write(Event{Update: u}) != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}
