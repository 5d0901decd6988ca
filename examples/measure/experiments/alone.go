package main

import (
	"context"
	"os/exec"

	"golang.org/x/sys/unix"
)

// alone is a worker that was started by hand.
type alone struct{ cmd *exec.Cmd }

// startAlone starts a worker and waits until it accepts. What it writes is lost: some supervisors write a lot.
func startAlone(ctx context.Context, address string, command ...string) (*alone, error) {
	w := &alone{exec.Command(command[0], command[1:]...)}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	if err := untilAnswered(ctx, address); err != nil {
		w.stop()
		return nil, err
	}
	return w, nil
}

func (w *alone) signal(sig unix.Signal) error { return w.cmd.Process.Signal(sig) }

func (w *alone) stop() {
	if w.cmd.ProcessState == nil {
		end(w.cmd)
	}
}
