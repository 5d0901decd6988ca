package starter

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"go.uber.org/zap"

	"example.org/supervisord/supervisor/handover"
	"example.org/supervisord/supervisor/program"
)

// The exit codes: those of the reference, and those of `supervisord reload` where the reference waits forever.
const (
	exitUsage  = 1
	exitWorker = 11
	exitLate   = 14
	exitFatal  = 255 // a fatal error that has no errno
)

// ExitCode returns the exit code for an error; with --daemonize it may be that of the process in the background.
func ExitCode(err error) int {
	var errno syscall.Errno
	if exited, ok := errors.AsType[*exited](err); ok {
		return exited.Code
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage), errors.Is(err, handover.ErrRunning):
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

// Session is the log of a running start_server and the process that waits for it in the foreground. The methods of a nil Session do nothing.
type Session struct {
	file   string      // --log-file
	log    *sessionLog // nil: stderr, as it was at the start
	parent *os.File    // where the process in the foreground is told how the first worker started; nil: none waits
}

// Begin checks what only the command itself needs and opens the log, as the reference does before it binds the sockets. With
// --daemonize it starts this program again in the background, waits for its first worker, and returns no Session.
func (o *Options) Begin() (*Session, error) {
	s := &Session{file: o.Get("log-file")}
	goesOn := handover.CanGoBack(os.Environ())
	inside := os.Getenv(backgroundVariable) != ""
	switch {
	case o.Has("daemonize") && s.file == "":
		return nil, errors.New("--log-file option must be specified together with --daemonize")
	case len(o.Command) == 0:
		return nil, errNoCommand
	case o.Has("daemonize") && !inside && !goesOn:
		return nil, inBackground(s.file)
	case goesOn || s.file == "":
		return s, nil // Resume takes the log over
	}
	out := os.Stderr
	if inside {
		s.parent, out = foreground(), nil
	}
	var err error
	s.log, err = openLog(s.file, out)
	return s, err
}

// Redirect sends stdout and stderr to the log, once every socket is bound. sync writes what is meant for the terminal.
func (s *Session) Redirect(sync func(), log *zap.Logger) error {
	if s == nil || s.log == nil {
		return nil
	}
	sync()
	if err := s.log.redirect(); err != nil {
		return err
	}
	return s.log.watch(log)
}

// Resume is called instead of Redirect when this process takes over from an earlier one. inherited returns the descriptors of Keep.
func (s *Session) Resume(inherited func(name string) int, sync func(), log *zap.Logger) error {
	switch {
	case s == nil:
		return nil
	case s.log != nil: // the earlier process died, and systemd started this one
		return s.Redirect(sync, log)
	}
	s.log = inheritLog(s.file, inherited(logPipe), inherited(logProcess))
	return s.log.watch(log)
}

// See tells the process in the foreground how the first worker started.
func (s *Session) See(r program.Report) {
	if s == nil || s.parent == nil {
		return
	}
	switch r.Kind {
	case program.WorkerReady:
		fmt.Fprintln(s.parent, saidReady) //nolint:errcheck // the process may have exited
	case program.TrialFailed:
		fmt.Fprintln(s.parent, r.Reason) //nolint:errcheck // likewise
	default:
		return
	}
	s.parent.Close()
	s.parent = nil
}

// Keep returns the descriptors that an upgrade hands over.
func (s *Session) Keep() map[string]int {
	if s == nil {
		return nil
	}
	return s.log.keep()
}

// Close lets a log command read the last lines. Nothing may write to stdout or stderr afterwards.
func (s *Session) Close() { s.log.close() }
