package page

import (
	"errors"
	"net"
	"strings"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/control"
)

// listen listens on host:port, or unix:/path: then there is a socket to be closed at the end, too.
func listen(address string) (net.Listener, *control.Socket, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		l, err := net.Listen("tcp", address)
		return l, nil, err
	}
	socket, err := control.OpenSocket(path, 0o660, -1)
	if err != nil {
		return nil, nil, err
	}
	l, err := socket.Listener()
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	return l, socket, nil
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
