// Package hooks runs the commands of [program.NAME.hooks]. The hooks of a program run one at a time and in order, and
// nothing ever waits for them. While there is nothing to run there is no goroutine either.
package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// The hooks, as the configuration and the message name them.
const (
	afterReload   = "after_reload"
	reloadFailed  = "reload_failed"
	workerCrashed = "worker_crashed"
)

// input is what a hook reads on stdin, as one JSON object.
type input struct {
	Hook    string             `json:"hook"`
	Program string             `json:"program"`
	Receipt *receipt.Receipt   `json:"receipt,omitempty"` // of after_reload and reload_failed
	Event   *supervisor.Update `json:"event,omitempty"`   // of reload_failed and worker_crashed
}

// Runner runs a command until it ends. It is a worker.Launcher.
type Runner interface {
	Run(context.Context, worker.Spec) error
}

// maxWaiting is how many hooks of one program may wait. When there are more, the oldest is dropped.
const maxWaiting = 16

// grace is how long a hook that runs when supervisord ends may take to finish.
const grace = 2 * time.Second

var errEnds = errors.New("supervisord ends")

// Waiting holds the hooks that wait, of each program.
type Waiting struct {
	runner  Runner
	command func(name string, generation int) (*supervisor.Command, error)
	log     *zap.Logger
	ctx     context.Context
	cancel  context.CancelCauseFunc
	active  sync.WaitGroup

	mu     sync.Mutex
	queues map[string][]job // of each program that has a goroutine
	closed bool
}

// job is one run of one hook.
type job struct {
	input   input
	argv    []string
	command *supervisor.Command
}

// New returns Waiting with nothing to run. command says what a hook of a generation runs as.
func New(runner Runner, command func(name string, generation int) (*supervisor.Command, error),
	log *zap.Logger) *Waiting {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Waiting{runner: runner, command: command, log: log, ctx: ctx, cancel: cancel, queues: map[string][]job{}}
}

// See runs the hook for an update. It does not wait for the hook. A trial that failed has a receipt as far as it is
// written.
func (h *Waiting) See(u supervisor.Update) {
	switch {
	case u.Kind == program.TrialFailed:
		h.tell(u.Generation, input{Hook: reloadFailed, Program: u.Program, Event: &u,
			Receipt: &receipt.Receipt{Program: u.Program, ReloadRecord: *u.Reload}})
	case u.Kind == program.WorkerDied && !u.Clean && !u.Expected:
		h.tell(u.Generation, input{Hook: workerCrashed, Program: u.Program, Event: &u})
	}
}

// Ended runs the hook for a reload that has ended. It does not wait for the hook.
func (h *Waiting) Ended(r receipt.Receipt) {
	if r.Outcome == program.Serves {
		h.tell(r.Generation, input{Hook: afterReload, Program: r.Program, Receipt: &r})
	}
}

// argv is the command that a program has for a hook, if any.
func argv(c config.Hooks, hook string) []string {
	switch hook {
	case afterReload:
		return c.AfterReload
	case reloadFailed:
		return c.ReloadFailed
	}
	return c.WorkerCrashed
}

// tell queues a hook, if the program has it.
func (h *Waiting) tell(generation int, in input) {
	c, err := h.command(in.Program, generation)
	if err != nil {
		return // the program is gone, or the supervisor has ended
	}
	j := job{in, argv(c.Config.Hooks, in.Hook), c}
	if len(j.argv) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	queue, running := h.queues[in.Program]
	if len(queue) >= maxWaiting {
		h.log.Warn("hook dropped: too many are waiting", queue[0].fields()...)
		queue = queue[1:]
	}
	h.queues[in.Program] = append(queue, j)
	if !running {
		h.active.Go(func() { h.work(in.Program) })
	}
}

// next takes the oldest job, or ends the queue.
func (h *Waiting) next(name string) (job, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := h.queues[name]
	if len(queue) == 0 {
		delete(h.queues, name)
		return job{}, false
	}
	h.queues[name] = queue[1:]
	return queue[0], true
}

// work runs what waits for one program, until nothing does.
func (h *Waiting) work(name string) {
	for {
		j, more := h.next(name)
		if !more {
			return
		}
		begin := time.Now()
		err := h.run(j)
		fields := append(j.fields(), zap.Duration("took", time.Since(begin)))
		switch failure := (*worker.RunError)(nil); {
		case err == nil:
			h.log.Debug("hook finished", fields...)
		case errors.As(err, &failure):
			h.log.Error("hook failed", append(fields, zap.String("reason", failure.Reason()),
				zap.Strings("stderr", failure.Exited.Tail))...)
		default:
			h.log.Error("hook failed", append(fields, zap.Error(err))...)
		}
	}
}

func (h *Waiting) run(j job) error {
	spec := j.command.Spec
	if spec == nil { // no generation got far enough to have one
		var err error
		if spec, err = supervisor.LookUp(j.command.Config); err != nil {
			return fmt.Errorf("cannot run the hook as a worker would run: %w", err)
		}
	}
	body, err := json.Marshal(j.input)
	if err != nil {
		return err
	}
	timeout := j.command.Config.Hooks.Timeout
	ctx, cancel := context.WithTimeoutCause(h.ctx, timeout, fmt.Errorf("not finished within %s", timeout))
	defer cancel()
	run := *spec
	run.Command, run.Stdin = j.argv, append(body, '\n')
	run.Environment = append(append([]string(nil), spec.Environment...),
		"SUPERVISORD_PROGRAM="+j.input.Program, "SUPERVISORD_HOOK="+j.input.Hook)
	return h.runner.Run(ctx, run)
}

func (j job) fields() []zap.Field {
	return []zap.Field{zap.String("program", j.input.Program), zap.String("hook", j.input.Hook)}
}

// Close drops what waits, gives what runs two seconds to finish, and then kills it.
func (h *Waiting) Close() {
	h.mu.Lock()
	h.closed = true
	for name, queue := range h.queues {
		for _, j := range queue {
			h.log.Warn("hook dropped: supervisord ends", j.fields()...)
		}
		h.queues[name] = nil
	}
	h.mu.Unlock()
	late := time.AfterFunc(grace, func() { h.cancel(errEnds) })
	h.active.Wait()
	late.Stop()
	h.cancel(errEnds)
}
