// Package hooks runs the commands of [program.NAME.hooks]. Those of one program run one at a time and in order; nobody
// ever waits for them. While there is nothing to run there is no goroutine either.
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
	"example.org/supervisord/worker"
)

// The hooks, as they are called in the configuration and in the message.
const (
	AfterReload   = "after_reload"
	ReloadFailed  = "reload_failed"
	WorkerCrashed = "worker_crashed"
)

// Message is what a hook reads on stdin, as one JSON object.
type Message struct {
	Hook    string             `json:"hook"`
	Program string             `json:"program"`
	Receipt *receipt.Receipt   `json:"receipt,omitempty"` // of after_reload and reload_failed
	Event   *supervisor.Update `json:"event,omitempty"`   // of reload_failed and worker_crashed
}

// Runner runs a command until it ends. It is a worker.Launcher.
type Runner interface {
	Run(context.Context, worker.Spec) error
}

// waiting is how many hooks of one program may wait. If there are more, the oldest is given up.
const waiting = 16

// grace is what a hook that is running when supervisord ends gets to finish.
const grace = 2 * time.Second

// errEnds is why a hook is killed at the end.
var errEnds = errors.New("supervisord ends")

// Hooks is the queues of all programs.
type Hooks struct {
	run    Runner
	log    *zap.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	active sync.WaitGroup

	mu     sync.Mutex
	queues map[string][]job // of a program that has a goroutine
	closed bool
}

// job is one run of one hook.
type job struct {
	message Message
	argv    []string
	command *supervisor.Command
}

// New returns hooks that nothing waits in.
func New(run Runner, log *zap.Logger) *Hooks {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Hooks{run: run, log: log, ctx: ctx, cancel: cancel, queues: map[string][]job{}}
}

// Argv is the command that a program has for a hook; none: it has none.
func Argv(c *config.Program, hook string) []string {
	switch hook {
	case AfterReload:
		return c.Hooks.AfterReload
	case ReloadFailed:
		return c.Hooks.ReloadFailed
	case WorkerCrashed:
		return c.Hooks.WorkerCrashed
	}
	return nil
}

// Tell has a hook run, if the program has it, when its turn has come. It does not wait.
func (h *Hooks) Tell(c *supervisor.Command, m Message) {
	j := job{m, Argv(c.Config, m.Hook), c}
	if len(j.argv) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	queue, running := h.queues[m.Program]
	if len(queue) >= waiting {
		h.log.Warn("hook is not run: too many wait", j.fields()...)
		queue = queue[1:]
	}
	h.queues[m.Program] = append(queue, j)
	if !running {
		h.active.Go(func() { h.work(m.Program) })
	}
}

// next takes the oldest job, or ends the queue.
func (h *Hooks) next(program string) (job, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := h.queues[program]
	if len(queue) == 0 {
		delete(h.queues, program)
		return job{}, false
	}
	h.queues[program] = queue[1:]
	return queue[0], true
}

// work runs what waits for one program, until nothing does.
func (h *Hooks) work(program string) {
	for {
		j, more := h.next(program)
		if !more {
			return
		}
		begin := time.Now()
		err := h.do(j)
		fields := append(j.fields(), zap.Duration("took", time.Since(begin)))
		switch failure := (*worker.RunError)(nil); {
		case err == nil:
			h.log.Debug("hook has run", fields...)
		case errors.As(err, &failure):
			h.log.Error("hook failed", append(fields, zap.String("reason", failure.Reason()), zap.Strings("stderr", failure.Exited.Tail))...)
		default:
			h.log.Error("hook failed", append(fields, zap.Error(err))...)
		}
	}
}

func (h *Hooks) do(j job) error {
	spec := j.command.Spec
	if spec == nil { // no generation has got as far as that
		var err error
		if spec, err = supervisor.LookUp(j.command.Config); err != nil {
			return fmt.Errorf("it would not run as a worker does: %w", err)
		}
	}
	body, err := json.Marshal(j.message)
	if err != nil {
		return err
	}
	timeout := j.command.Config.Hooks.Timeout
	ctx, cancel := context.WithTimeoutCause(h.ctx, timeout, fmt.Errorf("not finished within %s", timeout))
	defer cancel()
	run := *spec
	run.Command, run.Stdin = j.argv, append(body, '\n')
	run.Environment = append(append([]string(nil), spec.Environment...),
		"SUPERVISORD_PROGRAM="+j.message.Program, "SUPERVISORD_HOOK="+j.message.Hook)
	return h.run.Run(ctx, run)
}

func (j job) fields() []zap.Field {
	return []zap.Field{zap.String("program", j.message.Program), zap.String("hook", j.message.Hook)}
}

// Close gives up what waits, lets what runs finish for two seconds, and then kills it.
func (h *Hooks) Close() {
	h.mu.Lock()
	h.closed = true
	for program, queue := range h.queues {
		for _, j := range queue {
			h.log.Warn("hook is not run: supervisord ends", j.fields()...)
		}
		h.queues[program] = nil
	}
	h.mu.Unlock()
	patience := time.AfterFunc(grace, func() { h.cancel(errEnds) })
	h.active.Wait()
	patience.Stop()
	h.cancel(errEnds)
}
