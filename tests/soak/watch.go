package main

import (
	"context"
	"fmt"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

const (
	lookEvery  = 500 * time.Millisecond // how often the status is looked at, besides after each event that matters
	lookAtMost = 50 * time.Millisecond  // the pause after a look
	silence    = 30 * time.Second       // supervisord has to answer again within this time
)

// watch looks at the status again and again, and checks it.
func (s *soak) watch(ctx context.Context) {
	heard := time.Now()
	for ctx.Err() == nil {
		st, err := s.status(ctx)
		switch {
		case err == nil:
			heard = time.Now()
			s.look(st)
		case ctx.Err() == nil && time.Since(heard) > silence:
			s.violated("supervisord has not answered for %v: %v", silence, err)
		}
		pause(ctx, lookAtMost)
		select {
		case <-ctx.Done():
		case <-s.poke:
		case <-time.After(lookEvery):
		}
	}
}

// status asks for the status, unless a checkpoint wants nobody to ask: then later.
func (s *soak) status(ctx context.Context) (*supervisor.Status, error) {
	s.quiet.RLock()
	defer s.quiet.RUnlock()
	asked, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.client.Status(asked, "", false)
}

// look checks a status.
func (s *soak) look(st *supervisor.Status) {
	before := s.last.Swap(st)
	if before != nil && before.Instance != st.Instance {
		s.violated("supervisord is another instance: it forgot everything")
	}
	for _, p := range s.programs {
		if st.Program(p.name) == nil {
			s.violated("program %s has gone", p.name)
			return
		}
	}
	for i := range st.Programs {
		s.lookAt(&st.Programs[i])
	}
}

func (s *soak) lookAt(p *supervisor.ProgramStatus) {
	serving := 0
	for _, g := range p.Generations {
		switch g.Role {
		case program.RoleServing:
			serving++
		case program.RoleDraining:
			if g.Share == 0 { // a rolling trial that has failed serves in the slots that it had taken until they are filled
				s.load.Withdrawn(p.Name, g.Number)
			}
		}
	}
	if serving != 1 {
		s.violated("%d generations of %s serve: %s", serving, p.Name, p.Summary)
	}
	if p.State != program.Up && p.State != program.Reloading {
		s.violated("%s is %s: %s", p.Name, p.State, p.Summary)
	}
	if len(p.Orphans) > 0 {
		s.violated("%s has orphaned workers: %v", p.Name, p.Orphans)
	}
	for _, r := range p.Reloads {
		s.ledger.record(p.Name, &r, "the status")
	}
}

// follow reads the events, and connects again when supervisord is replaced.
func (s *soak) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.client.Events(ctx, "", s.heard)
		s.journal.line("events end: %v", err)
		pause(ctx, lookAtMost)
	}
}

func (s *soak) heard(u supervisor.Update) {
	text := fmt.Sprintf("%s: %s: generation %d, worker %d, PID %d", u.Program, u.Kind, u.Generation, u.Worker, u.PID)
	for _, more := range []string{u.Signal, u.Step, u.Reason} {
		if more != "" {
			text += "; " + more
		}
	}
	s.journal.line("%s", text)
	if u.Decides() {
		s.ledger.record(u.Program, u.Reload, "an event")
	}
	switch u.Kind {
	case program.GenerationServes, program.RolledBack, program.TrialFailed:
		select {
		case s.poke <- struct{}{}:
		default:
		}
	case program.WorkerKilled:
		s.journal.event("worker killed by supervisord", "%s", text)
	}
}

// pause waits, and reports whether ctx lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
