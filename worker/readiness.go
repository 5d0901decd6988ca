package worker

import (
	"context"
	"errors"
	"syscall"
	"time"

	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// awaitReady starts what the readiness method asks for. w.mu is held, and the command runs.
func (w *Worker) awaitReady() {
	c := &w.spec.Ready
	if w.process.ended || w.ready.posted || w.helper {
		return
	}
	switch c.Method {
	case ready.Delay, "":
		if c.Delay <= 0 {
			w.postReady()
			return
		}
		w.ready.delay = time.AfterFunc(c.Delay, func() { w.locked(w.postReady)(0) })
	case ready.Accept:
		accepting := ready.Accepting{
			Sockets: w.spec.Sockets, PID: w.process.pid, Group: w.process.group, NotifyPath: w.channels.path,
			Orphans: w.launcher.orphans, GiveUp: c.Fallback, Looks: &w.launcher.looks, Key: w,
		}
		w.findOut(func(ctx context.Context) error { return w.accepts(ctx, accepting) })
	case ready.HTTP, ready.TCP, ready.Exec:
		probe := c.Probe(w.asked())
		w.findOut(func(ctx context.Context) error { return ready.Await(ctx, c.Interval, probe) })
	}
}

// accepts waits until the worker is seen to accept. If that cannot be seen, and the configuration does not insist on it, the worker counts
// as ready when it has run for a while.
func (w *Worker) accepts(ctx context.Context, a ready.Accepting) error {
	err := a.Await(ctx)
	fallback := w.spec.Ready.Fallback
	if err == nil || ctx.Err() != nil || fallback == 0 {
		return err
	}
	w.events.put(Unseen{Err: err, ReadyAfter: fallback})
	if errors.Is(err, ready.ErrUnseen) { // it has run for so long
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(fallback):
		return nil
	}
}

// findOut posts that the worker is ready when await returns nil, and otherwise why readiness cannot be determined. w.mu is held.
func (w *Worker) findOut(await func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	w.ready.cancel = cancel
	w.side.Go(func() {
		err := await(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case ctx.Err() != nil || w.process.ended:
		case err != nil:
			w.events.put(NeverReady{Err: err})
		default:
			w.postReady()
		}
	})
}

// postReady posts ReadySaid, once. w.mu is held.
func (w *Worker) postReady() {
	if w.ready.posted || !w.process.running || w.process.ended && w.spec.Ready.Method != ready.Notify {
		return
	}
	w.ready.posted = true
	w.events.put(ReadySaid{})
}

// stopReady ends the wait. w.mu is held.
func (w *Worker) stopReady() {
	if w.ready.delay != nil {
		w.ready.delay.Stop()
	}
	if w.ready.cancel != nil {
		w.ready.cancel()
	}
}

// endsProbe ends the probes of a worker that is told to stop.
func (w *Worker) endsProbe(sig syscall.Signal) {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL:
		if w.ready.cancel != nil {
			w.ready.cancel()
		}
	}
}

// Probe asks the worker once, as c says, and returns why the worker seems unhealthy. The method must be HTTP, TCP or Exec. ctx limits how long
// it may take.
func (w *Worker) Probe(ctx context.Context, c ready.Check) error {
	w.mu.Lock()
	asked, there := w.asked(), w.process.running && !w.process.ended
	w.mu.Unlock()
	if !there {
		return errors.New("it does not run")
	}
	err := c.Probe(asked)(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// asked is the worker as a probe asks it. w.mu is held.
func (w *Worker) asked() ready.Asked {
	return ready.Asked{PID: w.process.pid, Run: w.runProbe, Dial: w.spec.Dial}
}

// runProbe runs a command with the worker's rights, without its sockets.
func (w *Worker) runProbe(ctx context.Context, command []string) error {
	return w.launcher.Run(ctx, Spec{
		Command: command, Directory: w.spec.Directory, Environment: w.spec.Environment, Credential: w.spec.Credential, Limits: w.spec.Limits,
		Stdout: output.Destination{Kind: output.Null}, Stderr: output.Destination{Kind: output.Null},
	})
}
