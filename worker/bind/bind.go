// Package bind gives a program that opens its own port the listening socket of its generation: the kernel tells supervisord of
// the program's bind(2) (seccomp_unotify(2)), and supervisord puts the socket in the place of the program's own.
//
// The filter is installed between fork and exec and holds for all processes below the worker. A bind that fits none of the
// program's listeners is executed by the kernel as always. supervisord never executes a bind with an address that a worker wrote:
// what a worker can get by changing its memory meanwhile is a socket of its own program, which it would inherit anyhow.
//
// Needs Linux 5.9 (SECCOMP_IOCTL_NOTIF_ADDFD).
package bind

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
)

// Listener is one that a program may bind.
type Listener struct {
	Name   string
	Binds  Address // what the program binds
	Socket int     // the socket of the program's generation, in this process
}

// refused says why a program did not get the socket of a listener, and what to do about it.
type refused struct{ What, Remedy string }

// Error is both.
func (r *refused) Error() string { return r.What + ": " + r.Remedy }

// Answerer answers the calls of one worker's processes.
type Answerer struct {
	FD        int // of the notifications; it stays the caller's
	Listeners []Listener
	Looks     *foreign.Looks
	Key       any         // of the worker in Looks
	Told      func(error) // gets what a person should know, such as why a program did not get a listener
}

// callsPerTurn keeps a worker that binds without end from keeping its own notifications waiting.
const callsPerTurn = 32

// lookTimeout is how long a worker may delay that its memory is read; then the kernel executes the call.
const lookTimeout = time.Second

// Answer answers calls that wait, each in about a second at most. It returns false when no process has the filter any more. Only one
// goroutine at a time may call it.
func (w Answerer) Answer() bool {
	for range callsPerTurn {
		waits, used, err := pending(w.FD)
		if !waits || err != nil {
			return used
		}
		n, err := receive(w.FD)
		if err != nil {
			continue // the caller was interrupted or has ended
		}
		w.answer(&n)
	}
	return true
}

func (w Answerer) answer(n *notification) {
	c, err := w.look(n)
	defer c.close()
	switch {
	case errors.Is(err, errMemory):
		w.Told(unreadable(int(n.tid), err))
	case err != nil || !n.valid(w.FD):
	case c.operation == bindCall && w.bind(n, c):
		return
	case c.operation == listenCall && w.listens(c):
		n.finish(w.FD, 0)
		return
	}
	n.pass(w.FD)
}

// look looks at the caller, on a thread that the worker may delay. What comes too late is closed there.
func (w Answerer) look(n *notification) (*caller, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lookTimeout, errMemory)
	defer cancel()
	var late atomic.Bool
	type result struct {
		caller *caller
		err    error
	}
	r, err := foreign.Look(ctx, w.Looks, w.Key, func() result {
		c, err := n.look()
		if late.Load() {
			c.close()
			return result{err: errMemory}
		}
		return result{c, err}
	})
	if err != nil {
		late.Store(true)
		return nil, errors.Join(errMemory, err)
	}
	return r.caller, r.err
}

// listens reports whether listen(2) is for the socket of a listener. It listens already, with a longer queue than most programs
// ask for; a shorter one would lose connections.
func (w Answerer) listens(c *caller) bool {
	for _, l := range w.Listeners {
		if own, err := ownInode(l.Socket); err == nil && own == c.inode {
			return isListening(l.Socket)
		}
	}
	return false
}

func isListening(socket int) bool {
	on, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on != 0
}

func ownInode(socket int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(socket, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// bind answers bind(2). It returns false if the kernel is to execute it.
func (w Answerer) bind(n *notification, c *caller) bool {
	l := find(w.Listeners, c.to)
	if l == nil || !c.here {
		return false
	}
	if inode, err := ownInode(l.Socket); err == nil && inode == c.inode {
		n.finish(w.FD, 0) // it asks again, after a signal
		return true
	}
	err := c.fits(l)
	if err == nil {
		err = w.give(n, c, l)
	}
	if err != nil {
		w.Told(err)
		n.finish(w.FD, unix.EADDRINUSE) // as without supervisord, where the listener is open
		return true
	}
	n.finish(w.FD, 0)
	return true
}

// find returns the listener that a program means with an address; nil: none.
func find(listeners []Listener, to Address) (found *Listener) {
	for i := range listeners {
		l := &listeners[i]
		switch {
		case l.Socket < 0 || !l.Binds.matches(to):
		case l.Binds.exact(to):
			return l
		case found == nil:
			found = l
		}
	}
	return found
}

// fits returns why the socket of a listener would not do for the program.
func (c *caller) fits(l *Listener) error {
	domain, err := unix.GetsockoptInt(l.Socket, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	switch {
	case domain == c.family || c.to.Network == "tcp" && domain == unix.AF_INET:
		return nil
	case c.to.Network == "udp":
		return &refused{
			fmt.Sprintf("%s binds %s with a socket of another family than that of the listener %s, and would send with addresses that it does not take", c, c.to, l.Name),
			"write the same address at both",
		}
	}
	return &refused{
		fmt.Sprintf("%s binds %s with an IPv4 socket, but the listener %s is an IPv6 socket, and servers in C misread its clients' addresses", c, c.to, l.Name),
		fmt.Sprintf("let it bind [::]:%d, or write address = \"0.0.0.0:%[1]d\" in the listener", c.to.At.Port()),
	}
}

// give puts the socket of a listener in the place of the caller's, with what was set there.
func (w Answerer) give(n *notification, c *caller, l *Listener) error {
	c.options.apply(l.Socket)
	err := unix.SetNonblock(l.Socket, c.flags&unix.O_NONBLOCK != 0)
	if err == nil {
		err = n.put(w.FD, l.Socket, c.number, c.flags&unix.O_CLOEXEC != 0)
	}
	if err == nil && len(c.registrations) > 0 {
		err = move(c.tid, l.Socket, c.number, c.registrations)
	}
	if err != nil {
		return &refused{fmt.Sprintf("%s did not get the listener %s: %v", c, l.Name, err), "write bind = \"off\", and let it use the inherited socket"}
	}
	return nil
}

func unreadable(tid int, err error) error {
	c := caller{tid: tid}
	return &refused{
		fmt.Sprintf("the bind of %s is not answered: %v", c.String(), err),
		"see docs/troubleshooting.md: kernel.yama.ptrace_scope, or a process that does not let itself be read (PR_SET_DUMPABLE)",
	}
}
