package daemon

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/handover"
)

// caughtSignals are the channels of the signals that the daemon catches.
type caughtSignals struct {
	reload, reopen, upgrade, leave, scale, stop chan os.Signal
}

func catch() *caughtSignals {
	s := &caughtSignals{
		reload: make(chan os.Signal, 1), reopen: make(chan os.Signal, 1), upgrade: make(chan os.Signal, 1), leave: make(chan os.Signal, 1),
		scale: make(chan os.Signal, 16), // one for each worker that is wanted at once
		stop:  make(chan os.Signal, 4),
	}
	signal.Notify(s.reload, syscall.SIGHUP)
	signal.Notify(s.reopen, syscall.SIGUSR1)
	signal.Notify(s.upgrade, syscall.SIGUSR2)
	signal.Notify(s.leave, handover.LeaveSignal)
	signal.Notify(s.stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	signal.Notify(s.scale, syscall.SIGTTIN)
	if !stopsBackground(os.Stderr) { // otherwise the terminal sends TTOU for each line of the log
		signal.Notify(s.scale, syscall.SIGTTOU)
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may exit
	return s
}

// asked is what the supervisor reads.
func (s *caughtSignals) asked() supervisor.Signals {
	return supervisor.Signals{Reload: s.reload, Reopen: s.reopen, Upgrade: s.upgrade, Leave: s.leave, Scale: s.scale, Stop: s.stop}
}

// take empties the channels, and returns the signals that the supervisor has not read.
func (s *caughtSignals) take() (signals []syscall.Signal) {
	barrier := make(chan os.Signal, 1)
	signal.Notify(barrier, syscall.SIGHUP)
	signal.Stop(barrier) // waits until what Go's handler has seen is in the channels
	for _, c := range []chan os.Signal{s.reload, s.reopen, s.upgrade, s.leave, s.scale, s.stop} {
		for len(c) > 0 {
			signals = append(signals, (<-c).(syscall.Signal))
		}
	}
	return signals
}

// raise sends this process what an image before it has taken.
func raise(signals []syscall.Signal) {
	for _, sig := range signals {
		syscall.Kill(os.Getpid(), sig) //nolint:errcheck // to itself
	}
}

// stopsBackground reports whether a terminal stops background jobs that write to it (stty tostop).
func stopsBackground(f *os.File) bool {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && t.Lflag&unix.TOSTOP != 0
}
