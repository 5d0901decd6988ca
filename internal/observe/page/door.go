package page

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"

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

// door lets only so many clients in. Others are told, and gone: they must not keep those out who come later.
type door struct {
	net.Listener
	mu   sync.Mutex
	free int
}

func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.enter() {
			return &visitor{Conn: c, door: d}, nil
		}
		const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 17\r\n\r\ntoo many clients\n"
		c.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // it is a socket
		c.Write([]byte(full))                           //nolint:errcheck // an empty buffer has room
		c.Close()                                       //nolint:errcheck // it is gone either way
	}
}

func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free == 0 {
		return false
	}
	d.free--
	return true
}

// visitor is a connection that is counted.
type visitor struct {
	net.Conn
	door *door
	once sync.Once
}

func (v *visitor) Close() error {
	v.once.Do(func() {
		v.door.mu.Lock()
		v.door.free++
		v.door.mu.Unlock()
	})
	return v.Conn.Close()
}
