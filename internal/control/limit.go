package control

import (
	"net"
	"sync"
)

// The limits on clients. Those who may only read can use up half of the connections at most, so that they can never keep
// an operator out, and one user a quarter of that.
const (
	maxConns         = 128
	maxReaders       = maxConns / 2
	maxConnsPerUID   = maxReaders / 4
	maxStreams       = 64
	maxReaderStreams = maxStreams / 2
)

// door lets clients in, counts them, and knows who they are.
type door struct {
	*net.UnixListener
	rights rights

	mu     sync.Mutex
	conns  int
	reader map[uint32]int // connections of those who may not change anything, by user
	only   int            // … all together
}

// Accept returns the next client that is within the limits. Others are told, and gone.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.AcceptUnix()
		if err != nil {
			return nil, err
		}
		p, err := peerOf(c)
		if err != nil {
			c.Close() //nolint:errcheck // whoever it was is gone
			continue
		}
		if !d.enter(p) {
			turnAway(c)
			continue
		}
		return &client{UnixConn: c, peer: p, door: d}, nil
	}
}

func (d *door) enter(p peer) bool {
	change := d.rights.mayChange(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.conns >= maxConns:
		return false
	case !change && (d.only >= maxReaders || d.reader[p.UID] >= maxConnsPerUID):
		return false
	case !change:
		d.only++
		d.reader[p.UID]++
	}
	d.conns++
	return true
}

func (d *door) leave(p peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns--
	if d.rights.mayChange(p) {
		return
	}
	d.only--
	if d.reader[p.UID]--; d.reader[p.UID] == 0 {
		delete(d.reader, p.UID)
	}
}

// turnAway answers in what fits into the socket's buffer: it never waits.
func turnAway(c *net.UnixConn) {
	const body = `{"error":"too many clients","remedy":"try again when others have gone"}` + "\n"
	const head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
	c.Write([]byte(head + body)) //nolint:errcheck // an empty buffer has room
	c.Close()                    //nolint:errcheck // it is gone either way
}

// client is a connection that is counted.
type client struct {
	*net.UnixConn
	peer peer
	door *door
	once sync.Once
}

func (c *client) Close() error {
	c.once.Do(func() { c.door.leave(c.peer) })
	return c.UnixConn.Close()
}

// streams counts answers that have no end of their own.
type streams struct {
	mu      sync.Mutex
	all     int
	readers int
}

func (s *streams) enter(change bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || !change && s.readers >= maxReaderStreams {
		return false
	}
	s.all++
	if !change {
		s.readers++
	}
	return true
}

func (s *streams) leave(change bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if !change {
		s.readers--
	}
}
