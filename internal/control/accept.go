package control

import (
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/foreign"
)

const (
	maxConns = 128 // see clients.Listener; connections that may only read make room for the others
	maxAside = 64  // connections that can be slow to close; while there are more, no client is accepted
)

// full is what a client reads when there is no room.
const full = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" +
	`{"code":"too_many","error":"too many clients","remedy":"try again when others have gone"}` + "\n"

// share shares the connections among users.
func (a *API) share(l *net.UnixListener) *clients.Listener {
	return &clients.Listener{
		Listener: &peerListener{UnixListener: l, users: &a.users, aside: make(chan struct{}, maxAside)}, Max: maxConns, Full: full,
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
	aside  chan struct{} // has an element for each connection that is being closed aside
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

// peerConn is a connection on which no client can hold up supervisord by sending descriptors: see package foreign. From Linux 6.16 on the
// listening socket refuses them; this is for older kernels.
type peerConn struct {
	*net.UnixConn
	peer     peer
	listener *peerListener
	once     sync.Once
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
		c.CloseWrite() //nolint:errcheck // net/http takes the client for gone: what it answers to nobody must not be taken for the outcome
		return 0, failed
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Close closes the connection; if it may still hold descriptors, nothing waits for that.
func (c *peerConn) Close() error {
	c.once.Do(c.release)
	return c.UnixConn.Close()
}

// release keeps a connection with something in its queue open beyond Close, by a duplicate that is closed aside.
func (c *peerConn) release() {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	kept := -1
	raw.Control(func(fd uintptr) { //nolint:errcheck // closed already
		unix.Shutdown(int(fd), unix.SHUT_RDWR) //nolint:errcheck // the client may be gone; after this nothing is added to the queue
		if n, _, _, _, err := unix.Recvmsg(int(fd), make([]byte, 1), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT); err == nil && n > 0 {
			kept, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) // -1 if that fails
		}
	})
	if kept < 0 {
		return
	}
	c.listener.aside <- struct{}{}
	c.listener.closer.Do(func() {
		defer func() { <-c.listener.aside }()
		unix.Close(kept) //nolint:errcheck // it is gone either way
	})
}
