package terminal

import (
	"context"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// UntilKey returns a context that is cancelled when key is pressed on the terminal in, without Enter. Until end is
// called, the terminal gives each key at once and shows none; Ctrl-C still interrupts. end puts back what was there, so
// the caller calls it in any case, and catches the signals that would end the process without it. While the process is
// stopped (Ctrl-Z), the terminal is as it was.
//
// If this process is not in the foreground of in, its controlling terminal, only ctx ends the context.
func UntilKey(ctx context.Context, in *os.File, key byte) (pressed context.Context, end func()) {
	pressed, cancel := context.WithCancel(ctx)
	k := keys{in: int(in.Fd())}
	if !k.take() {
		return pressed, cancel
	}
	tty, err := os.Open("/dev/tty") // in without O_NONBLOCK is other processes', too, and a read of it would not end
	if err != nil {
		k.leave()
		return pressed, cancel
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	typed := make(chan byte)
	var using sync.WaitGroup
	using.Go(func() { read(pressed, tty, typed) })
	using.Go(func() {
		defer cancel()
		defer k.leave()
		k.follow(pressed, key, typed, continued)
	})
	return pressed, func() {
		cancel()
		_ = tty.Close() // read returns
		using.Wait()
		signal.Stop(continued)
	}
}

// read passes on what is typed, until ctx ends or nothing can be read any more.
func read(ctx context.Context, tty *os.File, typed chan<- byte) {
	some := make([]byte, 64)
	for {
		n, err := tty.Read(some)
		for _, key := range some[:n] {
			select {
			case typed <- key:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// keys is a terminal that gives each key at once, termios(3).
type keys struct {
	in     int
	before unix.Termios // what it was
	taken  bool
}

// take changes the terminal. It reports false, and changes nothing, unless this process is in its foreground: another
// would be stopped (SIGTTOU), and the terminal is somebody else's.
func (k *keys) take() bool {
	if !k.foreground() {
		return false
	}
	now, err := unix.IoctlGetTermios(k.in, unix.TCGETS)
	if err != nil {
		return false
	}
	if !k.taken {
		k.before = *now
	}
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	now.Cc[unix.VSUSP] = 0 // comes as a key, so that the terminal is put back before the process stops
	k.taken = unix.IoctlSetTermios(k.in, unix.TCSETS, now) == nil
	return k.taken
}

// leave puts back what was there.
func (k *keys) leave() {
	if k.taken && k.foreground() {
		_ = unix.IoctlSetTermios(k.in, unix.TCSETS, &k.before) // fails if the terminal has gone
		k.taken = false
	}
}

func (k *keys) foreground() bool {
	group, err := unix.IoctlGetInt(k.in, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// follow returns when key is typed, or ctx ends. It lets the process stop, and takes the terminal again when it
// continues in the foreground.
func (k *keys) follow(ctx context.Context, key byte, typed <-chan byte, continued <-chan os.Signal) {
	for {
		select {
		case now := <-typed:
			switch {
			case now == key:
				return
			case now == k.before.Cc[unix.VSUSP] && now != 0: // 0: no key does that
				k.leave()
				_ = unix.Kill(0, unix.SIGTSTP) // as the terminal would; ignored where no shell could continue the group
			}
		case <-continued:
			k.take()
		case <-ctx.Done():
			return
		}
	}
}
