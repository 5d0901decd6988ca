package page

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/holder"
	"example.org/supervisord/socket/unixpath"
)

// pageListener is a listening socket with a descriptor to hand over.
type pageListener struct {
	clients.Listener
	own *unixpath.Own // nil: TCP
	fd  int           // -1: none, then the next image listens anew
}

// listen listens on an address, or continues with the inherited socket, if there is one: while no process has the port,
// another user could take it and ask for the token.
func listen(address socket.Address, inherited int) (*pageListener, error) {
	if inherited > 0 {
		if l, err := inherit(inherited, address.IsUnix()); err == nil {
			return l, nil
		}
	}
	if address.IsUnix() {
		return onUnix(unixpath.OpenOwn(address.Path, 0o660, -1))
	}
	l, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, refused(err)
	}
	return onTCP(l.(*net.TCPListener)), nil
}

// refused adds who has the address, if somebody has.
func refused(err error) error {
	op, is := errors.AsType[*net.OpError](err)
	if !is || !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	at, is := op.Addr.(*net.TCPAddr)
	if !is {
		return err
	}
	return &unixpath.Remedied{Err: err, Remedy: holder.InUse("tcp", at.AddrPort())}
}

func inherit(fd int, isUnix bool) (*pageListener, error) {
	if isUnix {
		return onUnix(unixpath.InheritOwn(fd))
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close() //nolint:errcheck // FileListener has made its own duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	tcp, is := l.(*net.TCPListener)
	if !is {
		l.Close() //nolint:errcheck // nobody uses it
		return nil, unix.ENOTSOCK
	}
	return onTCP(tcp), nil
}

func onUnix(own *unixpath.Own, err error) (*pageListener, error) {
	if err != nil {
		return nil, err
	}
	l, err := own.Listener()
	if err != nil {
		own.Close()
		return nil, err
	}
	return &pageListener{l, own, own.FD()}, nil
}

// onTCP duplicates the descriptor.
func onTCP(l *net.TCPListener) *pageListener {
	fd := -1
	if raw, err := l.SyscallConn(); err == nil {
		raw.Control(func(own uintptr) { //nolint:errcheck // it has just been opened
			if n, err := unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3); err == nil {
				fd = n
			}
		})
	}
	return &pageListener{l, nil, fd}
}

// release closes the descriptor to hand over; of a unix socket it removes the path, too.
func (l *pageListener) release() {
	switch {
	case l.own != nil:
		l.own.Close()
	case l.fd >= 0:
		unix.Close(l.fd)
	}
	l.own, l.fd = nil, -1
}

// full is what a client reads when there is no room.
const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 17\r\n\r\n" +
	"too many clients\n"

// share shares the connections among addresses; all clients of a unix socket count as one.
func share(l clients.Listener) *clients.Gate {
	return &clients.Gate{Listener: l, Max: maxConns, Full: full, Identify: func(c net.Conn) (clients.Identity, error) {
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			return clients.Identity{Name: a.AddrPort().Addr().Unmap()}, nil
		}
		return clients.Identity{}, nil
	}}
}
