package main

import (
	"context"

	"example.org/supervisord/examples/measure/kit"
)

// table is a program with one listener, and more keys for both.
func table(worker, workers, keys, listener string) kit.ProgramTable {
	return kit.ProgramTable{Command: []string{worker}, Workers: workers, More: keys, Listen: []kit.ListenTable{{Name: "http", More: listener}}}
}

// serve starts supervisord with a program and waits until it serves.
func (b *bench) serve(ctx context.Context, worker, workers, keys string) (*kit.Subject, error) {
	return kit.Serve(ctx, b.supervisord, table(worker, workers, keys, ""))
}
