package main

import (
	"context"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// subject is the supervisord that is measured. It runs one program with one listener.
type subject struct {
	*kit.Subject
	address string
}

// start starts supervisord with a worker, and more keys for the program and the listener.
func (b *bench) start(worker, workers, keys, listener string) (*subject, error) {
	address, err := kit.FreeAddress()
	if err != nil {
		return nil, err
	}
	s, err := kit.Start(b.supervisord, kit.ProgramTable{Command: []string{worker}, Workers: workers, More: keys,
		Listen: []kit.ListenTable{{Name: "http", Address: address, More: listener}}})
	return &subject{s, address}, err
}

// serve is start that returns when the first generation serves.
func (b *bench) serve(ctx context.Context, worker, workers, keys string) (*subject, error) {
	s, err := b.start(worker, workers, keys, "")
	if err == nil {
		if err = s.Serves(ctx, 1); err != nil {
			s.Abandon()
		}
	}
	return s, err
}

// replace reloads and waits until the old generation is gone.
func (s *subject) replace(ctx context.Context) (kit.Redeploy, error) {
	r, err := s.Redeploy(ctx)
	if err != nil {
		return r, err
	}
	_, err = s.Await(ctx, 0, func(u *supervisor.Update) bool {
		return u.Kind == program.GenerationGone && u.Generation == r.Generation-1
	})
	return r, err
}
