package supervisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/output"
)

// How long a disk that hangs may hold up a reload, which then fails; the end of a program's log; and an upgrade, which does not
// happen then.
const (
	logOpenTimeout  = 10 * time.Second
	logEndTimeout   = 5 * time.Second
	logFlushTimeout = 2 * time.Second
)

// within is a context that ends so much later.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
}

// logErrors counts and reports what goes wrong with the log files of a program.
func (s *Supervisor) logErrors(program string) *output.LogErrors {
	return output.NewLogErrors(func(what string, err error) {
		s.Log.Error(what, zap.String("program", program), zap.Error(err))
	})
}

// captures returns the log of a program of which this configuration captures something. All its generations share it.
func (s *Supervisor) captures(p *runner, c *config.Program) *output.Log {
	if !c.Captures() {
		return nil
	}
	if p.log == nil {
		p.log = output.NewLog(p.logErrors, p.logEnded)
	}
	return p.log
}

// logFileSpec is the log file of a generation, which may belong to the workers' user.
func (snap *snapshot) logFileSpec(l config.Log) output.LogFileSpec {
	return output.LogFileSpec{Path: l.File, MaxSize: l.MaxSize, MaxAge: l.MaxAge, MaxFiles: l.MaxFiles, Compress: l.Compress, Owner: snap.owner()}
}

func (snap *snapshot) owner() int {
	if snap.Credential == nil {
		return os.Geteuid()
	}
	return int(snap.Credential.UID)
}

// keepLogging goes on with the log files that the image before this one wrote; of the captured ones with that of the newest
// generation that was prepared. A file that is not to be had does not stop it: it is opened again with each line.
func (s *Supervisor) keepLogging(p *runner) {
	newest := 0
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		if g == nil {
			continue
		}
		g.snapshot.output(cg.Config, func(spec output.LogFileSpec) (*output.LogFile, error) { //nolint:errcheck // it cannot fail
			return output.UseLogFile(spec, nil, p.logErrors), nil
		})
		g.log = s.captures(p, cg.Config)
		if g.log != nil && cg.Number > newest {
			newest = cg.Number
			g.log.UseFile(g.snapshot.logFileSpec(cg.Config.Log))
		}
	}
}

// reopen opens every log file again.
func (s *Supervisor) reopen() {
	s.Log.Info("USR1: reopening log files")
	for _, p := range s.programs {
		for _, f := range p.logFiles() {
			f.Reopen()
		}
	}
}

// logFile is what a LogFile and a Log have in common.
type logFile interface {
	Reopen()
	Rest(context.Context) error
	Close(context.Context) error
}

// logFiles are those that the program writes now.
func (p *runner) logFiles() []logFile {
	var files []logFile
	if p.log != nil {
		files = append(files, p.log)
	}
	for _, g := range p.generations {
		for _, f := range g.files() {
			files = append(files, f)
		}
	}
	return files
}

// restLogs waits until everything that was read is in the files, and the files can be left to an execve. No worker may write meanwhile: see Launcher.Freeze.
func (s *Supervisor) restLogs() error {
	ctx, cancel := within(context.Background(), logFlushTimeout)
	defer cancel()
	for _, p := range s.programs {
		for _, f := range p.logFiles() {
			if err := f.Rest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseLog ends the log of a program of which no generation captures anything any more.
func (s *Supervisor) releaseLog(p *runner) {
	for _, g := range p.generations {
		if g.log != nil {
			return
		}
	}
	s.endLog(p)
}

// endLog ends the log of a program.
func (s *Supervisor) endLog(p *runner) {
	if p.log == nil {
		return
	}
	s.closeLog(p, p.log)
	p.log, p.logEnded = nil, p.log.Done()
}

// closeLog ends a log file to which no worker writes any more. It does not wait.
func (s *Supervisor) closeLog(p *runner, f logFile) {
	s.running.Go(func() {
		ctx, cancel := within(context.Background(), logEndTimeout)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			s.Log.Error("output of workers is lost", zap.String("program", p.core.Name), zap.Error(err))
		}
	})
}
