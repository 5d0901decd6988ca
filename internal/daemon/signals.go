package daemon

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/record"
)

// caughtSignals are the signals that the daemon catches.
type caughtSignals struct {
	*siginfo.Catcher
	reload, reopen, upgrade, leave, scale, stop chan siginfo.Signal
}

func catch() (*caughtSignals, error) {
	one := func() chan siginfo.Signal { return make(chan siginfo.Signal, 1) }
	s := &caughtSignals{
		reload: one(), reopen: one(), upgrade: one(), leave: one(),
		scale: make(chan siginfo.Signal, 16), // one for each worker that is wanted at once
		stop:  make(chan siginfo.Signal, 4),
	}
	queues := siginfo.Queues{
		syscall.SIGHUP: s.reload, syscall.SIGUSR1: s.reopen, syscall.SIGUSR2: s.upgrade, record.LeaveSignal: s.leave,
		syscall.SIGTERM: s.stop, syscall.SIGINT: s.stop, syscall.SIGQUIT: s.stop, syscall.SIGTTIN: s.scale,
	}
	if !stopsBackground(os.Stderr) { // otherwise the terminal sends TTOU for each line of the log
		queues[syscall.SIGTTOU] = s.scale
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may exit
	var err error
	foreign.OnMain(func() { s.Catcher, err = siginfo.Catch(queues) })
	return s, err
}

// asked is what the supervisor reads.
func (s *caughtSignals) asked() supervisor.Signals {
	return supervisor.Signals{Reload: s.reload, Reopen: s.reopen, Upgrade: s.upgrade, Leave: s.leave, Scale: s.scale, Stop: s.stop}
}

// stopsBackground reports whether a terminal stops background jobs that write to it (stty tostop).
func stopsBackground(f *os.File) bool {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && t.Lflag&unix.TOSTOP != 0
}
