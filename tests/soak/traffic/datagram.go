package traffic

import (
	"context"
	"fmt"
	"net"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// datagrams sends the requests as datagrams, each when the one before was answered, so the kernel has room for all of
// them.
func (l *flow) datagrams() func(time.Time) load.Attempt {
	var c net.Conn
	l.end = func() {
		if c != nil {
			c.Close() //nolint:errcheck // nothing more is expected of it
			c = nil
		}
	}
	return load.Measure(func() error {
		if c == nil {
			var err error
			if c, err = l.dial(context.Background(), new(net.Dialer), "udp"); err != nil {
				return err
			}
		}
		err := l.datagram(c)
		if err != nil {
			l.end() // an answer that comes late must not be taken for the next
		}
		return err
	})
}

func (l *flow) datagram(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(l.t.c.timeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "%016x", l.now.ID); err != nil {
		return err
	}
	var buf [256]byte
	n, err := c.Read(buf[:])
	if err != nil {
		return err
	}
	return l.see(buf[:n])
}
