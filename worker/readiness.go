package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// awaitReady starts what the readiness method asks for. w.mu is held, and the command runs.
func (w *Worker) awaitReady() {
	c := &w.spec.Ready
	if w.process.ended || w.process.Ready || w.helper {
		return
	}
	w.lookAt(firstLook, firstLook)
	switch c.Method {
	case ready.Notify:
		w.ready.seen = "it has not said READY=1"
	case ready.Delay, "":
		if c.Delay <= 0 {
			w.claimReady()
			return
		}
		w.ready.seen = fmt.Sprintf("it counts as ready when it has run for %s", c.Delay)
		w.ready.delay = time.AfterFunc(c.Delay, func() { w.do(w.claimReady) })
	case ready.Accept:
		w.findOut(func(ctx context.Context) error { return w.accepts(ctx, "") }, w.postReady)
	case ready.HTTP, ready.TCP, ready.Exec:
		probe := c.Probe(w.asked())
		w.ready.seen = "no answer yet to the probe of " + c.Asks(w.process.PID)
		w.findOut(func(ctx context.Context) error { return ready.Await(ctx, c.Interval, w.noting(probe)) }, w.claimReady)
	}
}

// noting wraps a probe: the wrapper notes the last answer for Seen.
func (w *Worker) noting(probe func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := probe(ctx)
		if err != nil && ctx.Err() == nil {
			w.note("the last probe of " + OneLine(err))
		}
		return err
	}
}

// note notes why the worker is not ready.
func (w *Worker) note(seen string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready.seen = seen
}

// Seen returns why the worker is not ready, as far as supervisord can see; "": the worker is ready, or nothing is
// known.
func (w *Worker) Seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.process.Ready:
		return ""
	case w.ready.refused != "":
		return w.ready.refused
	}
	return strings.Trim(w.ready.seen+"; "+w.ready.strange, "; ")
}

// A worker that is not ready is looked at for what is strange about it at the first age, then at twice the age until
// the second, and then after a quarter of its age each time: what is said of one that fails is not much older. From the
// second age on the supervisor is told: once that the worker is awaited, and whenever it looks strange.
const (
	firstLook   = 500 * time.Millisecond
	tellStrange = 2 * time.Second
)

// lookAt looks for what is strange at this age. w.mu is held.
func (w *Worker) lookAt(age, wait time.Duration) {
	w.ready.look = time.AfterFunc(wait, func() {
		w.mu.Lock()
		a, over := w.accepting(), w.process.ended || w.process.Ready
		w.mu.Unlock()
		if over {
			return
		}
		number := firstSocket
		if len(w.spec.Places) > 0 {
			number = w.spec.Places[0]
		}
		var strange string
		var err error
		if len(a.Sockets) > 0 {
			strange, err = foreign.Look(w.life, a.Looks, a.Key, func() string { return a.Elsewhere(number) })
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.process.ended || w.process.Ready {
			return
		}
		if err == nil { // otherwise the worker delays another look, and a later one may see more
			w.ready.strange = strange
		}
		switch {
		case age < tellStrange:
		case strange != "":
			w.events.put(life.Strange{})
		case age == tellStrange:
			w.events.put(life.Awaited{})
		}
		switch {
		case age < tellStrange:
			w.lookAt(2*age, age)
		case len(a.Sockets) > 0:
			w.lookAt(age+age/4, age/4)
		}
	})
}

// accepting says how to find out whether the worker accepts. w.mu is held.
func (w *Worker) accepting() ready.Accepting {
	a := ready.Accepting{
		Sockets: w.spec.Sockets, PID: w.process.PID, Group: w.process.Group, NotifyPath: w.process.NotifyPath,
		Unbound: w.spec.Unbound, Orphans: w.launcher.orphans, GiveUp: w.spec.Ready.Fallback, Looks: &w.launcher.looks, Key: w,
	}
	if w.spec.Dial != nil && len(w.spec.Listeners) == len(a.Sockets) {
		a.Dial = func(ctx context.Context, socket int) (net.Conn, error) {
			return w.spec.Dial(ctx, w.spec.Listeners[socket])
		}
	}
	return a
}

// accepts waits until the kernel shows that the worker accepts connections. If the kernel does not show that, accepts
// believes a worker that has said it is ready, and takes any other worker for ready after some time, unless the
// configuration insists on the method. said is why the worker should be ready; "": the method is Accept.
func (w *Worker) accepts(ctx context.Context, said string) error {
	w.mu.Lock()
	a := w.accepting()
	w.mu.Unlock()
	a.Said = said != ""
	a.Missing = func(addresses []string) {
		if len(addresses) == 0 {
			w.note("it accepts, and has not come to rest since it began")
			return
		}
		seen := said + "no process waits on " + strings.Join(addresses, ", nor on ")
		if len(addresses) < len(a.Sockets) {
			seen += ": if it never opens that, remove the listener"
		}
		w.note(seen)
	}
	err := a.Await(ctx)
	fallback := w.spec.Ready.Fallback
	if err == nil || ctx.Err() != nil || fallback == 0 && !a.Said {
		return err
	}
	if a.Said {
		w.events.put(life.Unseen{Err: err})
		return nil
	}
	w.events.put(life.Unseen{Err: err, ReadyAfter: fallback})
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

// findOut calls then, with w.mu, when await returns nil. If await returns an error, findOut posts that readiness cannot
// be determined. w.mu is held.
func (w *Worker) findOut(await func(context.Context) error, then func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.ready.cancel = cancel
	w.side.Go(func() {
		err := await(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case ctx.Err() != nil || w.process.ended:
		case err != nil:
			w.events.put(life.NeverReady{Err: err})
		default:
			then()
		}
	})
}

// claimReady begins to find out whether a worker accepts connections that is ready by its method. It believes a worker
// without sockets. w.mu is held.
func (w *Worker) claimReady() {
	c := &w.spec.Ready
	if len(w.spec.Sockets) == 0 || c.Believed {
		w.postReady()
		return
	}
	said := "said READY=1, but "
	switch c.Method {
	case ready.Delay, "":
		said = fmt.Sprintf("has run for %s, but ", c.Delay)
	case ready.HTTP, ready.TCP, ready.Exec:
		said = "the probe succeeded, but "
	}
	if w.ready.cancel != nil {
		w.ready.cancel()
	}
	if !w.process.Ready && w.process.Running && !w.process.ended {
		w.findOut(func(ctx context.Context) error { return w.accepts(ctx, said) }, w.postReady)
	}
}

// postReady posts ReadySaid, once. w.mu is held.
func (w *Worker) postReady() {
	if w.process.Ready || !w.process.Running || w.process.ended && w.spec.Ready.Method != ready.Notify {
		return
	}
	w.process.Ready = true
	w.stopReady()
	w.events.put(life.ReadySaid{})
}

// stopReady ends the wait. w.mu is held.
func (w *Worker) stopReady() {
	for _, timer := range []*time.Timer{w.ready.delay, w.ready.look} {
		if timer != nil {
			timer.Stop()
		}
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

// Probe asks the worker once, as c says, and returns why the worker seems unhealthy. The method must be HTTP, TCP or
// Exec. Probe ends with ctx. It may be called from any goroutine, and takes no descriptor from the worker: it connects
// through Spec.Dial.
func (w *Worker) Probe(ctx context.Context, c ready.Check) error {
	w.mu.Lock()
	asked, there := w.asked(), w.process.Running && !w.process.ended
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
	return ready.Asked{PID: w.process.PID, Run: w.runProbe, Dial: w.spec.Dial}
}

// runProbe runs a command with the worker's rights, without its sockets.
func (w *Worker) runProbe(ctx context.Context, command []string) error {
	probe := w.spec.Execution
	probe.Command = command
	return w.launcher.Run(ctx, Spec{
		Execution: probe,
		Stdout:    output.Destination{Kind: output.Null}, Stderr: output.Destination{Kind: output.Null},
	})
}
