package page

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/socket"
)

// inherit listens on the socket that the image before this one listened on: while the port is nobody's, another user could take
// it, and ask for the token.
func inherit(fd int, address socket.Address) (net.Listener, *control.Socket, error) {
	if address.IsUnix() {
		own, err := control.InheritSocket(fd)
		if err != nil {
			return nil, nil, err
		}
		l, err := own.Listener()
		return l, own, err
	}
	f := os.NewFile(uintptr(fd), address.String())
	defer f.Close() //nolint:errcheck // FileListener has made its own duplicate
	l, err := net.FileListener(f)
	return l, nil, err
}

// duplicate returns a descriptor of a listener to hand over, close-on-exec.
func duplicate(l net.Listener) (int, error) {
	conn, err := l.(syscall.Conn).SyscallConn() // both kinds of listeners are one
	if err != nil {
		return -1, err
	}
	fd := -1
	if ctl := conn.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) }); ctl != nil {
		return -1, ctl
	}
	return fd, err
}

// listen listens on host:port, or unix:/path: then there is a socket to be closed at the end, too. inherited is a socket to go on
// with, if it is more than 0.
func listen(address socket.Address, inherited int) (net.Listener, *control.Socket, error) {
	if inherited > 0 {
		if l, own, err := inherit(inherited, address); err == nil {
			return l, own, nil
		}
	}
	if !address.IsUnix() {
		l, err := net.Listen("tcp", address.String())
		return l, nil, err
	}
	own, err := control.OpenSocket(address.Path(), 0o660, -1)
	if err != nil {
		return nil, nil, err
	}
	l, err := own.Listener()
	if err != nil {
		own.Close()
		return nil, nil, err
	}
	return l, own, nil
}

// full is what a client reads when there is no room.
const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 17\r\n\r\ntoo many clients\n"

// share shares the connections among addresses; all clients of a unix socket are one.
func share(l net.Listener) *clients.Listener {
	return &clients.Listener{Listener: l, Max: maxConns, Full: full, Identify: func(c net.Conn) (clients.Client, error) {
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			return clients.Client{Name: a.AddrPort().Addr().Unmap()}, nil
		}
		return clients.Client{}, nil
	}}
}
