package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/starter"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
)

// The exit codes: those of the reference, and those of `supervisord reload` where the reference waits forever.
const (
	exitUsage  = 1
	exitWorker = 11
	exitLate   = 14
	exitFatal  = 255 // a fatal error that has no errno
)

// exitCode returns the exit code for an error; with --daemonize it may be that of the process in the background.
func exitCode(err error) int {
	var errno syscall.Errno
	if exited, ok := errors.AsType[*exited](err); ok {
		return exited.Code
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, starter.ErrUsage), errors.Is(err, record.ErrRunning):
		return exitUsage
	case errors.Is(err, errLate):
		return exitLate
	case errors.Is(err, errFirstWorker):
		return exitWorker
	case errors.As(err, &errno) && errno > 0 && errno < exitFatal:
		return int(errno)
	}
	return exitFatal
}

// face is what a running start_server shows: the log lines of the reference, and the process that waits for it in the
// foreground.
type face struct {
	lines
	file   string      // --log-file
	log    *sessionLog // nil: stderr, as it was at the start
	parent *os.File    // where the process in the foreground is told how the first worker started; nil: none waits
}

// begin checks what only the command itself needs and opens the log, as the reference does before it binds the sockets.
// With --daemonize it starts this program again in the background, waits for its first worker, and returns no face.
func begin(o *starter.Arguments) (*face, error) {
	f := &face{file: o.Get("log-file"), lines: lines{workers: map[int]knownWorker{}}}
	goesOn := record.CanGoBack(os.Environ())
	inside := os.Getenv(backgroundVariable) != ""
	switch {
	case o.Has("daemonize") && f.file == "":
		return nil, errors.New("--log-file option must be specified together with --daemonize")
	case len(o.Command) == 0:
		return nil, starter.ErrNoCommand
	case o.Has("daemonize") && !inside && !goesOn:
		return nil, inBackground(f.file)
	case goesOn || f.file == "":
		return f, nil // Resumed takes the log over
	}
	out := os.Stderr
	if inside {
		f.parent, out = foreground(), nil
	}
	var err error
	f.log, err = openLog(f.file, out)
	return f, err
}

// Core implements daemon.Face. The reports have lines of their own, so the log has only what else matters.
func (f *face) Core(out zapcore.WriteSyncer, level zapcore.LevelEnabler) zapcore.Core {
	f.out = out
	e := zap.NewProductionEncoderConfig()
	e.TimeKey, e.LevelKey, e.NameKey = "", "", "name"
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.ConsoleSeparator = "  "
	matters := zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return level.Enabled(l) && (l >= zapcore.WarnLevel || level.Enabled(zapcore.DebugLevel))
	})
	return zapcore.NewCore(zapcore.NewConsoleEncoder(e), out, matters)
}

// Starts implements daemon.Face.
func (f *face) Starts() { f.print("start_server (pid:%d) starting now...", os.Getpid()) }

// Started implements daemon.Face: it sends stdout and stderr to the log.
func (f *face) Started(c *config.Config, sync func(), log *zap.Logger) error {
	f.bound(c)
	return f.redirect(sync, log)
}

func (f *face) redirect(sync func(), log *zap.Logger) error {
	if f.log == nil {
		return nil
	}
	sync()
	if err := f.log.redirect(); err != nil {
		return err
	}
	return f.log.watch(log)
}

// Resumed implements daemon.Face.
func (f *face) Resumed(s *supervisor.Status, inherited func(name string) int, sync func(), log *zap.Logger) error {
	f.resume(s)
	if f.log != nil { // the earlier process died, and systemd started this one
		return f.redirect(sync, log)
	}
	f.log = inheritLog(f.file, inherited(logPipe), inherited(logProcess))
	return f.log.watch(log)
}

// See implements daemon.Face. It also tells the process in the foreground how the first worker started.
func (f *face) See(c *config.Program, r program.Report) {
	f.see(c, r)
	if f.parent == nil {
		return
	}
	switch r.Kind {
	case program.WorkerReady:
		fmt.Fprintln(f.parent, saidReady) //nolint:errcheck // the process may have exited
	case program.TrialFailed:
		fmt.Fprintln(f.parent, r.Reason) //nolint:errcheck // likewise
	default:
		return
	}
	f.parent.Close()
	f.parent = nil
}

// Keep implements daemon.Face.
func (f *face) Keep() map[string]int { return f.log.keep() }

// Ends implements daemon.Face.
func (f *face) Ends() { f.print("exiting") }

// close lets a log command read the last lines. Nothing may write to stdout or stderr afterwards.
func (f *face) close() { f.log.close() }
