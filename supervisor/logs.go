package supervisor

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker"
)

// LogsRequest asks for what the workers of a program write to captured streams. Do answers it with a *worker.Log, which is
// read without the loop, and ends with the program.
type LogsRequest struct{ Program string }

func (LogsRequest) request() {}

func (s *Supervisor) logsAsked(r LogsRequest) (*worker.Log, error) {
	p := s.programs[r.Program]
	switch {
	case p == nil:
		return nil, s.noProgram(r.Program)
	case p.log == nil:
		return nil, fmt.Errorf("%w: nothing of program %s is captured; write stdout = \"capture\" or stderr = \"capture\"", ErrState, r.Program)
	}
	return p.log, nil
}

// How long a slow disk may hold up the end of a program's log, and an upgrade, which does not happen then.
const (
	logEndTimeout   = 5 * time.Second
	logFlushTimeout = 2 * time.Second
)

// captures returns the log of a program of which this configuration captures something. All its generations share it.
func (s *Supervisor) captures(p *program, c *config.Program) *worker.Log {
	if !c.Captures() {
		return nil
	}
	if p.log == nil {
		name := p.core.Name
		p.log = worker.NewLog(func(err error) {
			s.Log.Error("output of workers is lost", zap.String("program", name), zap.Error(err))
		})
	}
	return p.log
}

func logFileSpec(l config.Log) worker.LogFileSpec {
	return worker.LogFileSpec{Path: l.File, MaxSize: l.MaxSize, MaxAge: l.MaxAge, MaxFiles: l.MaxFiles, Compress: l.Compress}
}

// keepLogging goes on with the log file that the image before this one wrote: that of the newest generation that was prepared.
func (s *Supervisor) keepLogging(p *program) {
	newest := 0
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		if g == nil {
			continue
		}
		g.log = s.captures(p, cg.Config)
		if g.log != nil && cg.Number > newest {
			newest = cg.Number
			g.log.UseFile(logFileSpec(cg.Config.Log))
		}
		s.hearOf(p, g.files())
	}
}

// hearOf has the loss of output that goes to plain files reported.
func (s *Supervisor) hearOf(p *program, files []*worker.LogFile) {
	name := p.core.Name
	for _, f := range files {
		f.OnError(func(err error) {
			s.Log.Error("output of workers is lost", zap.String("program", name), zap.Error(err))
		})
	}
}

// reopenLogs makes every log open its file again.
func (s *Supervisor) reopenLogs() {
	for _, p := range s.programs {
		if p.log != nil {
			p.log.Reopen()
		}
	}
}

// flushLogs waits until everything that was read is in the files. No worker may write meanwhile: see Launcher.Freeze.
func (s *Supervisor) flushLogs() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), logFlushTimeout, fmt.Errorf("not within %s", logFlushTimeout))
	defer cancel()
	for _, p := range s.programs {
		if p.log == nil {
			continue
		}
		if err := p.log.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// closeLog ends the log of a program whose workers have all gone.
func (s *Supervisor) closeLog(p *program) {
	log, name := p.log, p.core.Name
	if log == nil {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), logEndTimeout, fmt.Errorf("not within %s", logEndTimeout))
		defer cancel()
		if err := log.Close(ctx); err != nil {
			s.Log.Error("output of workers is lost", zap.String("program", name), zap.Error(err))
		}
	})
}
