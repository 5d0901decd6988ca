// Package bind gives a program that opens its own port the listening socket of its generation: the kernel tells
// supervisord of the program's bind(2) (seccomp_unotify(2)), and supervisord puts the socket in the place of the
// program's own.
//
// The filter is installed between fork and exec and holds for all processes below the worker. A bind that fits none of
// the program's listeners is executed by the kernel as always. supervisord never executes a bind with an address that a
// worker wrote: what a worker can get by changing its memory meanwhile is a socket of its own program, which it would
// inherit anyhow.
//
// A call takes this way, and the thread of the program waits in the kernel meanwhile:
//
//	bind(2) ─► filter ─► receive ─► look ─► find ─┬─► pass: no listener is meant; the kernel executes the call
//	                                              ├─► finish with an errno: it cannot have the listener; Told says why
//	                                              └─► give: put, apply, block, move ─► finish with 0
//
// One goroutine at a time answers for a worker, and the look is made on a thread of its own, because the worker can
// delay it; lookTimeout bounds that. The descriptor of the notifications belongs to the caller of this package. When
// the last copy of it is closed, every later call fails with ENOSYS, so its owner keeps it as long as Answer says that
// some process has the filter.
//
// Needs Linux 5.9 (SECCOMP_IOCTL_NOTIF_ADDFD). Without pidfd_getfd(2), as under Docker, the options of the program's
// socket stay unknown, and epoll sets that it has registered in cannot follow.
package bind

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/multicast"
	"example.org/supervisord/internal/proc"
)

// Offer is a listener that a program may bind.
type Offer struct {
	Name  string
	Binds Claim // what the program binds
	// a duplicate of the socket of the program's generation, which the caller closes; -1: there is none any more
	Socket func() int
	Alone  func() bool  // no other worker has the socket
	Widen  func() error // makes the socket of UDP one of IPv6
}

// refused says why a program did not get the socket of a listener, and what to do about it.
type refused struct{ What, Remedy string }

// Error is both.
func (r *refused) Error() string { return r.What + ": " + r.Remedy }

// Answerer answers the calls of one worker's processes.
type Answerer struct {
	FD        int // of the notifications; it stays the caller's
	Listeners []Offer
	Looks     *foreign.Looks
	Key       any          // of the worker in Looks
	Processes func() []int // the worker's, for Adopted
	// another supervisord may have died with a call in hand: cleared with the first call that Answer receives
	Adopted *bool
	Told    func(error) // gets what a person should know, such as why a program did not get a listener
}

// turn is how long Answer takes further calls.
const turn = 10 * time.Millisecond

// lookTimeout is how long a worker may delay an answer; then the kernel executes the call, which fails where the
// listener is open. A machine that is busy needs seconds, too, and is no worker that delays.
const lookTimeout = 5 * time.Second

// Answer answers calls that wait, for lookTimeout and a moment at most. It returns false when no process has the
// filter any more. Only one goroutine at a time may call it.
func (w Answerer) Answer() bool {
	for begun := time.Now(); time.Since(begun) < turn; {
		waits, used, err := pending(w.FD)
		if !waits || err != nil {
			return used
		}
		n, err := receive(w.FD)
		if err != nil {
			continue // the caller was interrupted or has ended
		}
		w.answer(&n)
		if w.Adopted != nil && *w.Adopted {
			*w.Adopted = false
			w.rescue(n.id)
		}
	}
	return true
}

// verdict is what becomes of a call, and what a person should know.
type verdict struct {
	pass  bool       // the kernel executes it
	errno unix.Errno // else it returns this, or 0
	told  error
}

// answer answers a call: without listeners at once, and else after a look on a thread that the worker may delay: by its
// memory, and by the locks of its sockets and epoll sets. What that thread does too late the kernel refuses, because
// the call has its answer. What there is to tell is told first: the worker may end of the answer.
func (w Answerer) answer(n *notification) {
	v := verdict{pass: true}
	if len(w.Listeners) > 0 {
		ctx, cancel := context.WithTimeoutCause(context.Background(), lookTimeout, errDelayed)
		defer cancel()
		var err error
		if v, err = foreign.Look(ctx, w.Looks, w.Key, func() verdict { return w.serve(n) }); err != nil {
			v = verdict{pass: true}
			if n.valid(w.FD) {
				v.told = unreadable(int(n.tid), err)
			}
		}
	}
	if v.told != nil {
		w.Told(v.told)
	}
	if v.pass {
		n.pass(w.FD)
	} else {
		n.finish(w.FD, v.errno)
	}
}

// serve does what a call asks for. If the caller has ended, what was seen may be another process's.
func (w Answerer) serve(n *notification) verdict {
	c, err := n.look(w.Listeners)
	defer c.close()
	switch {
	case !n.valid(w.FD):
	case errors.Is(err, errMemory):
		return verdict{pass: true, told: unreadable(c.tid, err)}
	case err != nil:
	case c.listener != nil:
		return w.bind(n, c)
	case c.operation == listenCall && w.listens(c):
		return verdict{}
	}
	return verdict{pass: true}
}

// listens reports whether listen(2) is for the socket of a listener. It listens already, with a longer queue than most
// programs ask for; a shorter one would lose connections.
func (w Answerer) listens(c *caller) bool {
	for _, l := range w.Listeners {
		if socket := l.Socket(); socket >= 0 {
			mine, listening := c.has(socket), isListening(socket)
			unix.Close(socket)
			if mine {
				return listening
			}
		}
	}
	return false
}

// has reports whether the caller has a socket already.
func (c *caller) has(socket int) bool {
	inode, err := ownInode(socket)
	return err == nil && inode == c.inode
}

// isListening asks for SO_ACCEPTCONN, socket(7).
func isListening(socket int) bool {
	on, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on != 0
}

// ownInode identifies an open socket of this process: /proc shows the same number for a descriptor of another process.
func ownInode(socket int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(socket, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// bind serves bind(2) to a listener. A caller that has its socket asks again, after a signal.
func (w Answerer) bind(n *notification, c *caller) verdict {
	socket := c.listener.Socket()
	if socket < 0 {
		return verdict{pass: true}
	}
	defer func() { unix.Close(socket) }() // EBADF if there is none any more
	if c.to.Network == "unix" && c.to.Path == pathOf(socket) {
		return verdict{errno: unix.EADDRINUSE, told: &refused{
			fmt.Sprintf("%s binds %s, the path of the listener %s itself, where clients find nobody when it removes that", c,
				c.to, c.listener.Name),
			fmt.Sprintf("write binds = \"unix:%s.own\" in the listener, and let the program open that path", c.to.Path),
		}}
	}
	err := c.fits(socket)
	if errors.Is(err, errNarrow) {
		if err = c.widen(); err == nil {
			unix.Close(socket)
			if socket = c.listener.Socket(); socket < 0 {
				return verdict{pass: true}
			}
			err = c.fits(socket)
		}
	}
	if errors.Is(err, errBeside) && c.to.Network == "tcp" {
		unix.Close(socket)
		if socket, err = nowhere(); err != nil {
			return verdict{pass: true}
		}
	}
	if err == nil && !c.has(socket) {
		err = w.give(n, c, socket)
	}
	switch {
	case err == nil:
		return verdict{}
	case errors.Is(err, errBeside) || !n.valid(w.FD):
		return verdict{pass: true}
	}
	return verdict{errno: unix.EADDRINUSE, told: err} // as without supervisord, where the listener is open
}

// Nowhere is the address of sockets that no client looks for, each at a port that the kernel chooses.
var Nowhere = netip.AddrFrom4([4]byte{127, 255, 255, 254})

// nowhere makes a socket of IPv6 that no client finds. A second descriptor of the listener's socket would not do: a
// program that polls both is told that both are readable, accepts a connection by the first, and then waits in
// accept(2) with the second for the next one. The caller owns the socket.
func nowhere() (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0),
		unix.Bind(fd, &unix.SockaddrInet6{Addr: Nowhere.As16()}))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// find returns the listener that a program means with an address; nil: none.
func find(listeners []Offer, to Claim) (found *Offer) {
	for i := range listeners {
		l := &listeners[i]
		switch {
		case !l.Binds.matches(to):
		case l.Binds.exact(to):
			return l
		case found == nil:
			found = l
		}
	}
	return found
}

// errBeside says that a socket is for IPv6 alone, and so beside a listener of IPv4, not in its place: servers open one
// for each family, and get the one that there is a listener for. One of UDP stays as it is. One of TCP could not be
// opened beside that of another generation, and is put where no client looks: see nowhere.
var errBeside = errors.New("a socket for IPv6 alone")

// errNarrow says that a UDP socket is for both families, and the listener's for IPv4.
var errNarrow = errors.New("a socket for both families")

// fits returns why the socket of a listener would not do for the program.
func (c *caller) fits(socket int) error {
	l := c.listener
	domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	switch {
	case c.device != "" && c.device != deviceOf(socket):
		return &refused{
			fmt.Sprintf("%s binds %s at the interface %s, and the listener %s is not bound to that", c, c.to, c.device, l.Name),
			fmt.Sprintf("write interface = %q in the listener", c.device),
		}
	case domain == c.family:
		return nil
	case domain == unix.AF_INET && c.onlyIPv6() && (c.to.Network == "udp" || c.to.At.Addr().IsUnspecified()):
		return errBeside
	case c.to.Network == "tcp" && domain == unix.AF_INET:
		return nil
	case c.to.Network == "udp" && domain == unix.AF_INET:
		return errNarrow
	case c.to.Network == "udp":
		return &refused{
			fmt.Sprintf("%s binds %s with an IPv4 socket, but the listener %s is an IPv6 socket, which does not take the "+
				"addresses that it sends to", c, c.to, l.Name),
			fmt.Sprintf("let it bind [::]:%d, or write address = \"udp:0.0.0.0:%[1]d\" in the listener", c.to.At.Port()),
		}
	}
	return &refused{
		fmt.Sprintf("%s binds %s with an IPv4 socket, but the listener %s is an IPv6 socket, and servers in C misread its "+
			"clients' addresses", c, c.to, l.Name),
		fmt.Sprintf("let it bind [::]:%d, or write address = \"0.0.0.0:%[1]d\" in the listener; "+
			"for a program that opens both, two listeners: that one, and \"[::]:%[1]d\" with ipv6_only = true", c.to.At.Port()),
	}
}

// onlyIPv6 reports whether the caller's socket takes nothing from IPv4.
func (c *caller) onlyIPv6() bool {
	if c.socket < 0 {
		return false
	}
	only, err := unix.GetsockoptInt(c.socket, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	return err == nil && only != 0
}

// widen makes the socket of a UDP listener one of IPv6, as the caller's is, which sends with IPv6 addresses.
func (c *caller) widen() error {
	if err := c.listener.Widen(); err != nil {
		return &refused{
			fmt.Sprintf("%s binds %s with an IPv6 socket, but the listener %s is an IPv4 socket, and stays that: %v", c, c.to,
				c.listener.Name, err),
			"write the same address at both",
		}
	}
	return nil
}

// give puts the socket of a listener in the place of the caller's, with what was set there.
func (w Answerer) give(n *notification, c *caller, socket int) error {
	err := n.put(w.FD, socket, c.number, c.flags&unix.O_CLOEXEC != 0)
	if err == nil {
		c.options.apply(socket)
		if c.socket >= 0 && c.to.Network == "udp" {
			multicast.Move(c.socket, socket)
		}
		err = c.block(socket)
	}
	if err == nil && len(c.registrations) > 0 {
		err = move(socket, c.number, c.registrations)
	}
	if err == nil && c.to.Network == "unix" {
		c.leavePath()
	}
	if err != nil {
		return &refused{
			fmt.Sprintf("%s did not get the listener %s: %v", c, c.listener.Name, err),
			"write bind = \"off\", and let it use the inherited socket",
		}
	}
	return nil
}

// leavePath leaves a socket at the path that the program has bound, as the kernel would, for a program that changes its
// mode or owner next. Nobody listens there. It is made with the rights of the caller; what the caller may not make, it
// would not have got, and misses only if it looks.
func (c *caller) leavePath() {
	if c.to.Path[0] != '@' {
		proc.ActAs(c.tid, func() {
			unix.Mknod(proc.Path(c.tid, "root")+c.to.Path, unix.S_IFSOCK|0o777, 0) //nolint:errcheck // see above
		})
	}
}

// pathOf is the path of a unix socket, unix(7); "": it has none.
func pathOf(socket int) string {
	at, err := unix.Getsockname(socket)
	if at, is := at.(*unix.SockaddrUnix); is && err == nil {
		return at.Name
	}
	return ""
}

// block lets accept(2) at the socket wait, or not, as at the caller's own. Workers share it: one that does not wait,
// and that others have, stays so, because many servers bind first and say only then that they do not wait, and another
// worker must not hang meanwhile.
func (c *caller) block(socket int) error {
	wait := c.flags&unix.O_NONBLOCK == 0
	if wait && !c.listener.Alone() {
		return nil
	}
	return unix.SetNonblock(socket, !wait)
}

// unreadable says that the call of a thread was left to the kernel, because it could not be looked at: too slow, or
// without the rights of ptrace(2).
func unreadable(tid int, err error) error {
	c := caller{tid: tid}
	if errors.Is(err, errDelayed) {
		return fmt.Errorf("the bind of %s is not answered: %w for %s", c.String(), err, lookTimeout)
	}
	return &refused{
		fmt.Sprintf("the bind of %s is not answered: %v", c.String(), err),
		"give supervisord CAP_SYS_PTRACE, or let it change the user (user = in the program): a process that has done that " +
			"itself, or called " +
			"PR_SET_DUMPABLE, lets no other user's look at it, nor does any process where kernel.yama.ptrace_scope is 2 or 3 " +
			"(docs/servers.md)",
	}
}
