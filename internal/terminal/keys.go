package terminal

import (
	"context"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// Key is a key that was pressed: the character that it types, or one of those below.
type Key string

// The keys that type no character.
const (
	Up       Key = "up"
	Down     Key = "down"
	PageUp   Key = "page up"
	PageDown Key = "page down"
	Home     Key = "home"
	End      Key = "end"
)

// sequences are what these keys send behind ESC, without a number 1 or modifiers.
var sequences = map[string]Key{
	"[A": Up, "[B": Down, "[H": Home, "[F": End, "[5~": PageUp, "[6~": PageDown, "[1~": Home, "[4~": End, "[7~": Home,
	"[8~": End,
	"OA":  Up, "OB": Down, "OH": Home, "OF": End,
}

// Keys returns the keys that are pressed on the terminal in, without Enter. Until end is called, the terminal gives
// each key at once and shows none; Ctrl-C still interrupts. end puts back what was there, so the caller calls it in any
// case, and catches the signals that would end the process without it. While the process is stopped (Ctrl-Z), the
// terminal is as it was.
//
// If this process is not in the foreground of in, its controlling terminal, pressed is nil.
func Keys(in *os.File) (pressed <-chan Key, end func()) {
	k := keys{in: int(in.Fd())}
	if !k.take() {
		return nil, func() {}
	}
	tty, err := os.Open("/dev/tty") // in without O_NONBLOCK is other processes', too, and a read of it would not end
	if err != nil {
		k.leave()
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	typed, out := make(chan byte), make(chan Key)
	var using sync.WaitGroup
	using.Go(func() { read(ctx, tty, typed) })
	using.Go(func() {
		defer k.leave()
		k.follow(ctx, out, typed, continued)
	})
	return out, func() {
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

// follow passes keys on until ctx ends. It lets the process stop, and takes the terminal again when it continues in the
// foreground.
func (k *keys) follow(ctx context.Context, out chan<- Key, typed <-chan byte, continued <-chan os.Signal) {
	var part keyParser
	for {
		select {
		case now := <-typed:
			if now == k.before.Cc[unix.VSUSP] && now != 0 { // 0: no key does that
				k.leave()
				_ = unix.Kill(0, unix.SIGTSTP) // as the terminal would; ignored where no shell could continue the group
				continue
			}
			key, whole := part.add(now)
			if !whole {
				continue
			}
			select {
			case out <- key:
			case <-ctx.Done():
				return
			}
		case <-continued:
			k.take()
		case <-ctx.Done():
			return
		}
	}
}

// keyParser makes keys of bytes. Its value is what has come of a key: ESC and what follows it.
type keyParser string

// add returns the key that c completes.
func (p *keyParser) add(c byte) (key Key, whole bool) {
	switch {
	case c == 0x1b:
		*p = "\x1b"
		return "", false
	case *p == "":
		return Key(rune(c)), true
	}
	*p += keyParser(rune(c))
	text := string((*p)[1:])
	if len(text) == 1 && (c == '[' || c == 'O') || len(text) > 1 && (c < 0x40 || c > 0x7e) && len(text) < 16 {
		return "", false // a sequence ends with a byte from @ to ~
	}
	*p = ""
	key, whole = sequences[text]
	return key, whole
}
