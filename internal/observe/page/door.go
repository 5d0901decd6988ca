package page

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listen listens on host:port or unix:/path.
func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	if err := clear(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close() //nolint:errcheck // nobody has come yet
		return nil, err
	}
	return l, nil
}

// clear removes the socket that a dead process left.
func clear(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is there and is no socket: remove it, or choose another place for http", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close() //nolint:errcheck // nothing was said
		return fmt.Errorf("%s: another process answers there: choose another place for http", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
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
