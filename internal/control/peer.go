package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// peer is the process at the other end of a connection, as the kernel recorded that process at connect(2)
// (SO_PEERCRED and SO_PEERGROUPS in unix(7)). The client cannot change it.
type peer struct {
	PID    int
	UID    uint32
	Groups []uint32 // the peer's own and the supplementary ones
}

// maxGroups is NGROUPS_MAX of Linux.
const maxGroups = 65536

func peerOf(c *net.UnixConn) (p peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { p, failed = peerOfFD(int(fd)) })
	return p, errors.Join(err, failed)
}

func peerOfFD(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return peer{}, os.NewSyscallError("getsockopt SO_PEERGROUPS", err)
	}
	return peer{PID: int(cred.Pid), UID: cred.Uid, Groups: append(groups, cred.Gid)}, nil
}

func peerGroups(fd int) ([]uint32, error) {
	for n := 64; ; n *= 2 {
		groups := make([]uint32, n)
		size := uint32(4 * n)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && n < maxGroups:
			continue
		case errno != 0:
			return nil, errno
		}
		return groups[:size/4], nil
	}
}

// holderKey is where the context of a request by the page has who holds the token.
type holderKey struct{}

// connOf returns the connection of a request.
func connOf(ctx context.Context) (c *peerConn, ok bool) {
	if let := clients.Of(ctx); let != nil {
		c, ok = let.Conn.(*peerConn)
	}
	return c, ok
}

// rights say which users may do what.
type rights struct {
	own   uint32  // the supervisor's own user
	group *uint32 // that may change things; nil: none
	read  bool    // everybody may read
}

func lookUpRights(group string, read bool) (rights, error) {
	r := rights{own: uint32(os.Geteuid()), read: read}
	if group == "" {
		return r, nil
	}
	gid, err := proc.GID(group)
	r.group = &gid
	return r, err
}

func (r rights) mayChange(p peer) bool {
	return p.UID == 0 || p.UID == r.own || r.group != nil && slices.Contains(p.Groups, *r.group)
}

// check returns an error if the peer behind a request may not do it.
func (r rights) check(ctx context.Context, change bool) error {
	c, known := connOf(ctx)
	switch {
	case !known:
		return apiError(NotPermitted, "the client is unknown", "")
	case r.mayChange(c.peer) || r.read && !change:
		return nil
	case change:
		return apiError(NotPermitted, fmt.Sprintf("user %d may not change anything", c.peer.UID),
			"ask as root, as the user of supervisord, or as a member of control_group in [supervisor]")
	}
	return apiError(NotPermitted, fmt.Sprintf("user %d may not read", c.peer.UID),
		"ask as root, as the user of supervisord or as a member of control_group, or set control_read = \"any\" in "+
			"[supervisor]")
}

// maxWho bounds the name of a user in whoAsks.
const maxWho = 64

// whoAsks says who is behind a request, as the kernel knows: "alice (uid 1000, pid 4711)", or "uid 1000 (pid 4711)" if
// the user database does not know the user, or does not answer. If the user has changed since the login, by sudo(8) for
// example, whoAsks adds the login: "root (uid 0, pid 4711, login alice)".
func whoAsks(ctx context.Context) string {
	if holder, ok := ctx.Value(holderKey{}).(string); ok {
		return holder
	}
	c, ok := connOf(ctx)
	if !ok {
		return "unknown"
	}
	var more []string
	who := c.listener.users.name(ctx, c.peer.UID)
	if who == "" {
		who = number(c.peer.UID)
	} else {
		more = append(more, number(c.peer.UID))
	}
	if c.peer.PID > 0 { // 0: the client runs in another PID namespace
		more = append(more, fmt.Sprintf("pid %d", c.peer.PID))
	}
	if uid, ok := c.login(); ok && uid != c.peer.UID {
		more = append(more, "login "+cmp.Or(c.listener.users.name(ctx, uid), number(uid)))
	}
	if len(more) > 0 {
		who += " (" + strings.Join(more, ", ") + ")"
	}
	return who
}

func number(uid uint32) string { return fmt.Sprintf("uid %d", uid) }

// login returns the user that the client's process logged in as (loginuid in proc(5), audit(7)). The PID may belong to
// another process by now; the connection's pidfd (Linux 6.5) tells.
func (c *peerConn) login() (uint32, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	pidfd := -1
	raw.Control(func(fd uintptr) { //nolint:errcheck // then there is no pidfd
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			pidfd = n
		}
	})
	if pidfd < 0 {
		return 0, false
	}
	defer unix.Close(pidfd)
	text, err := os.ReadFile(proc.Path(c.peer.PID, "loginuid"))
	if err != nil {
		return 0, false
	}
	ended, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	uid, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return uint32(uid), err == nil && ended == 0 && bad == nil && uid != noLogin
}

// noLogin is the loginuid of a process that was not started from a login.
const noLogin = 1<<32 - 1

// nameTimeout is how long the name of a user is looked for.
const nameTimeout = time.Second

// users finds the names of users. The user database may be on another machine that does not answer: a request waits for
// nameTimeout at most, and the next request of the same user not at all.
type users struct {
	looks foreign.Looks
	look  func(uid uint32) string
}

// name returns the name of a user, or "" if it is not known.
func (u *users) name(ctx context.Context, uid uint32) string {
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	name, _ := foreign.Look(ctx, &u.looks, uid, func() string { return u.look(uid) }) // "" after an error
	return notInNames.Replace(printable(name, maxWho))
}

// notInNames removes from names the characters that separate a name from the rest of the description.
var notInNames = strings.NewReplacer("(", "?", ")", "?", ",", "?", ":", "?")

// printable makes a text safe for a terminal: at most so many bytes, without control characters.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

const (
	maxConns = 128 // see clients.Gate; connections that may only read make room for the others
	maxAside = 64  // connections that can be slow to close; while there are more, no client is accepted
)

// full is the answer to a client when there is no room for its connection.
const full = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n" +
	"Connection: close\r\n\r\n" +
	`{"code":"too_many","error":"too many clients","remedy":"try again when others have gone"}` + "\n"

// share shares the connections among users.
func (a *API) share(l *net.UnixListener) *clients.Gate {
	return &clients.Gate{
		Listener: &peerListener{UnixListener: l, users: &a.users,
			aside: make(chan struct{}, maxAside)}, Max: maxConns, Full: full,
		Identify: func(c net.Conn) (clients.Identity, error) {
			p := c.(*peerConn).peer
			rank := 0
			if a.rights.mayChange(p) {
				rank = 1
			}
			return clients.Identity{Name: p.UID, Rank: rank}, nil
		},
	}
}

// peerListener is a listener whose connections know who is at the other end.
type peerListener struct {
	*net.UnixListener
	users  *users
	closer foreign.Closer
	aside  chan struct{} // an element for each connection that closer is closing
}

func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		c := &peerConn{UnixConn: conn, listener: l}
		if c.peer, err = peerOf(conn); err == nil {
			return c, nil
		}
		c.Close() //nolint:errcheck // the client is gone
	}
}

// peerConn is a connection on which no client can hold up supervisord by sending descriptors: see package foreign. From
// Linux 6.16 on the listening socket refuses them; this is for older kernels.
type peerConn struct {
	*net.UnixConn
	peer     peer
	listener *peerListener
	once     sync.Once
	closed   error // of Close
}

// Read fails if the client has sent descriptors.
func (c *peerConn) Read(b []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, failed = foreign.Read(int(fd), b)
		for errors.Is(failed, unix.EINTR) {
			n, failed = foreign.Read(int(fd), b)
		}
		return !errors.Is(failed, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		// net/http believes that the client is gone: the answer must not reach the client as if it were the outcome
		c.CloseWrite() //nolint:errcheck // the client may be gone
		return 0, failed
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Close closes the connection. It waits for nothing, even if descriptors are still in the queue.
func (c *peerConn) Close() error {
	c.once.Do(func() {
		kept := c.keep()
		c.closed = c.UnixConn.Close()
		if kept >= 0 {
			c.release(kept) // after Close: only closing the last descriptor can block
		}
	})
	return c.closed
}

// keep returns a duplicate of a connection whose queue is not empty. -1: the queue is empty, or dup failed.
func (c *peerConn) keep() (kept int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	kept = -1
	raw.Control(func(fd uintptr) { //nolint:errcheck // closed already
		// after this nothing is added to the queue
		unix.Shutdown(int(fd), unix.SHUT_RDWR) //nolint:errcheck // the client may be gone
		if n, _, _, _, err := unix.Recvmsg(int(fd), make([]byte, 1), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT); err == nil &&
			n > 0 {
			kept, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) // -1 if that fails
		}
	})
	return kept
}

// release closes the duplicate aside.
func (c *peerConn) release(kept int) {
	c.listener.aside <- struct{}{}
	c.listener.closer.Do(func() {
		defer func() { <-c.listener.aside }()
		unix.Close(kept) //nolint:errcheck // it is gone either way
	})
}
