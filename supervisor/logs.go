package supervisor

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker/output"
)

// How long a disk that hangs may delay a reload, the end of a program's log, and an upgrade. After that time the reload
// or the upgrade fails.
const (
	logOpenTimeout  = 10 * time.Second
	logEndTimeout   = 5 * time.Second
	logFlushTimeout = 2 * time.Second
)

// within returns a context that ends after timeout, and whose cause says so.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
}

// capture is the log that receives the captured streams of a program. All generations share it.
type capture struct {
	log    *output.Log     // nil: nothing is captured
	ended  <-chan struct{} // closed when the file of the log before is complete; nil: there was none
	errors *output.LogErrors

	orphans *snapshot.Snapshot // what the orphans of the program write to; nil: it has none that speak
}

// of returns the log for a generation with this configuration; nil: the generation captures nothing.
func (c *capture) of(p *config.Program) *output.Log {
	if !p.Captures() {
		return nil
	}
	if c.log == nil {
		c.log = output.NewLog(c.errors, c.ended)
	}
	return c.log
}

// openLogs opens the log files of a generation.
func (p *runner) openLogs(ctx context.Context, snap *snapshot.Snapshot, c *config.Program, log *output.Log) error {
	ctx, cancel := within(ctx, logOpenTimeout)
	defer cancel()
	return snap.OpenLogs(ctx, c, log, p.capture.errors)
}

// keepLogging continues with the log files of the previous image; for captured streams, with the file of the newest
// generation that was prepared.
func (p *runner) keepLogging() {
	newest := 0
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		if g == nil {
			continue
		}
		g.snapshot.UseLogs(cg.Config, p.capture.errors)
		g.log = p.capture.of(cg.Config)
		if g.log != nil && cg.Number > newest {
			newest = cg.Number
			g.log.UseFile(g.snapshot.LogFile(cg.Config))
		}
	}
}

// closableLog is what a LogFile and a Log have in common.
type closableLog interface {
	Reopen()
	Rest(context.Context) error
	Close(context.Context) error
}

// logFiles lists the log files that the program writes now.
func (p *runner) logFiles() []closableLog {
	var files []closableLog
	if p.capture.log != nil {
		files = append(files, p.capture.log)
	}
	for _, f := range p.capture.orphans.Files() {
		files = append(files, f)
	}
	for _, g := range p.generations {
		for _, f := range g.snapshot.Files() {
			files = append(files, f)
		}
	}
	return files
}

// endUnusedLog ends the log of the program if no generation writes to it and the next one will not either. Until then a
// person can read the last lines of a program that cannot start, or was stopped.
func (p *runner) endUnusedLog() {
	if p.core.Config.Captures() {
		return
	}
	for _, g := range p.generations {
		if g.log != nil {
			return
		}
	}
	p.endLog()
}

// endLog ends the log of the program.
func (p *runner) endLog() {
	if log := p.capture.log; log != nil {
		p.closeLog(log)
		p.capture.log, p.capture.ended = nil, log.Done()
	}
}

// closeLog ends a log file that no worker writes to any more. It does not wait.
func (p *runner) closeLog(f closableLog) {
	p.s.running.Go(func() {
		ctx, cancel := within(context.Background(), logEndTimeout)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			p.log.Error("output of workers is lost", zap.Error(err))
		}
	})
}
