package daemon

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
)

// leaveSignal is SIGRTMIN+1 as kill(1) and systemctl count. Nothing sends it by default, and its default action, to kill the
// process, has the same effect on a supervisord that does not know it.
const leaveSignal = syscall.Signal(35)

func catch() supervisor.Signals {
	one := func(sig os.Signal) <-chan os.Signal {
		c := make(chan os.Signal, 1)
		signal.Notify(c, sig)
		return c
	}
	stop := make(chan os.Signal, 4)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	scale := make(chan os.Signal, 16) // one for each worker that is wanted at once
	signal.Notify(scale, syscall.SIGTTIN)
	if !stopsBackground(os.Stderr) { // otherwise the terminal sends TTOU for each line of the log
		signal.Notify(scale, syscall.SIGTTOU)
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may exit
	return supervisor.Signals{
		Reload: one(syscall.SIGHUP), Reopen: one(syscall.SIGUSR1), Upgrade: one(syscall.SIGUSR2), Leave: one(leaveSignal), Scale: scale, Stop: stop,
	}
}

// stopsBackground reports whether a terminal stops background jobs that write to it (stty tostop).
func stopsBackground(f *os.File) bool {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && t.Lflag&unix.TOSTOP != 0
}
