package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// lines writes the log lines of the reference about one program, without timestamps. It is not safe for concurrent use.
type lines struct {
	out      io.Writer
	workers  map[int]knownWorker // by number
	serving  int                 // the generation that serves; 0: none
	restart  bool                // the trial will replace the serving generation
	retrying bool                // the trial has failed before
	stopping bool
}

type knownWorker struct{ generation, pid int }

// bound writes which sockets the worker gets at the descriptors that --port asked for.
func (l *lines) bound(c *config.Config) {
	for _, p := range c.Programs {
		for _, s := range p.Listen {
			if s.FD.Fixed {
				l.print("socket is duplicated to file descriptor %d", s.FD.Number)
			}
		}
	}
}

// resume continues the lines of a previous image.
func (l *lines) resume(s *supervisor.Status) {
	for _, p := range s.Programs {
		for _, g := range p.Generations {
			if g.Role == program.RoleServing {
				l.serving = g.Number
			}
			for _, w := range g.Workers {
				l.workers[w.Number] = knownWorker{g.Number, w.PID}
			}
		}
	}
}

func (l *lines) print(format string, args ...any) {
	fmt.Fprintf(l.out, format+"\n", args...) //nolint:errcheck // there is no other place to report it
}

// see writes the lines about a report.
func (l *lines) see(c *config.Program, r program.Report) {
	switch r.Kind {
	case program.TrialBegan:
		l.began(c, r)
	case program.ReloadQueued:
		l.print("received %s while a new worker is starting; another restart follows", r.Reason)
	case program.WorkerSpawned:
		if _, adopted := l.workers[r.Worker]; !adopted {
			l.print("starting new worker %d", r.PID)
		}
		l.workers[r.Worker] = knownWorker{r.Generation, r.PID}
	case program.WorkerReady:
		l.ready(c, r)
	case program.TrialFailed:
		l.failed(r)
	case program.ReloadRetry, program.StartRetry:
		l.retrying = r.Kind == program.ReloadRetry
	case program.GenerationServes:
		if l.serving = r.Generation; l.restart {
			l.print("killing old workers")
		}
		l.restart, l.retrying = false, false
	case program.WorkerDied, program.WorkerStopped:
		l.gone(r)
	case program.WorkerKilled:
		l.print("killing worker %d: %s", r.PID, r.Reason)
	case program.StopBegan:
		l.stops(c, r)
	}
}

func (l *lines) began(c *config.Program, r program.Report) {
	l.restart = r.Serving != 0
	switch every := int(c.Reload.Every / time.Second); {
	case l.retrying: // the first attempt has written it
	case r.By == program.Overdue:
		l.print("autorestart triggered (forced, interval=%d)", every)
	case r.By == program.Due:
		l.print("autorestart triggered (interval=%d)", every)
	case l.restart || r.Reason == "HUP":
		l.print("received %s, spawning a new worker", r.Reason)
	}
}

func (l *lines) ready(c *config.Program, r program.Report) {
	if !l.restart {
		return
	}
	l.print("new worker is now running, sending %s to old workers:%s", signalName(c.Stop.ReloadSignal, c),
		l.pids(r.Generation))
	if soak := c.Reload.Soak; soak > 0 {
		l.print("sleeping %s secs before killing old workers", strconv.FormatFloat(soak.Seconds(), 'f', -1, 64))
	}
}

// signalName returns the name of a signal; 0 is that of the first step of the stop plan.
func signalName(instead unix.Signal, c *config.Program) string {
	if instead == 0 {
		instead = c.Stop.Steps[0].Signal
	}
	return strings.TrimPrefix(unix.SignalName(instead), "SIG")
}

// pids lists the workers of every other generation.
func (l *lines) pids(without int) string {
	var list []int
	for _, w := range l.workers {
		if w.generation != without {
			list = append(list, w.pid)
		}
	}
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	words := make([]string, len(list))
	for i, pid := range list {
		words[i] = strconv.Itoa(pid)
	}
	return strings.Join(words, ",")
}

func (l *lines) failed(r program.Report) {
	switch {
	case r.Step == "start":
		l.print("new worker %d seems to have failed to start, exit status:%d", r.PID, r.Wait)
	case r.Step == "soak" || r.Step == "serve":
		l.print("worker %d died unexpectedly with status:%d, restarting", r.PID, r.Wait)
	case r.PID != 0:
		l.print("new worker %d failed: %s", r.PID, r.Reason)
		return // it is still running, and will be stopped
	case r.Step == "exec":
		l.print("failed to exec %s", strings.TrimPrefix(r.Reason, "cannot exec "))
	default:
		l.print("failed to start a new worker: %s", r.Reason)
	}
	delete(l.workers, r.Worker)
}

func (l *lines) gone(r program.Report) {
	delete(l.workers, r.Worker)
	switch {
	case l.stopping:
		l.print("worker %d died, status:%d", r.PID, r.Wait)
	case r.Kind == program.WorkerDied && r.Generation == l.serving:
		l.serving = 0
		l.print("worker %d died unexpectedly with status:%d, restarting", r.PID, r.Wait)
	default:
		l.print("old worker %d died, status:%d", r.PID, r.Wait)
	}
}

func (l *lines) stops(c *config.Program, r program.Report) {
	l.stopping = true
	instead := unix.Signal(0)
	if r.Reason == "INT" {
		instead = c.Stop.IntSignal
	}
	if workers := l.pids(0); workers != "none" {
		l.print("received %s, sending %s to all workers:%s", r.Reason, signalName(instead, c), workers)
	} else {
		l.print("received %s, there are no workers", r.Reason)
	}
}
