package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// errAbandoned ends the requests of a client that was abandoned.
var errAbandoned = errors.New("the load was abandoned")

// Driver sends requests and never sends one twice. http.Transport cannot do this: it silently sends a request again
// when a used connection turns out to be broken (net/http, persistConn.shouldRetryRequest), and so hides the loss. Set
// the fields before the first request. A Driver is safe for concurrent use.
type Driver struct {
	Dial    func(context.Context) (net.Conn, error)
	Ask     Ask
	Keep    int           // connections to keep between requests; 0: a new one for each request
	Timeout time.Duration // of the connect, and of the answer; 0: 30 s
	// how far away the client acts to be: see the package; 0: it does not notice that a keep-alive connection was closed
	RoundTrip time.Duration

	mu    sync.Mutex
	idle  []*Wire        // the longest idle first
	conns map[*Wire]bool // all that are open
	dials int
	ctx   context.Context // ended by Abandon
	end   context.CancelCauseFunc
}

// Ask sends one request on a connection and reads the whole answer. If last is true, no request follows on this
// connection, and the request says so if the protocol can. closes reports whether the server said that it closes the
// connection.
type Ask func(c *Wire, last bool) (closes bool, err error)

// Wire is an open connection. While it is idle, a goroutine waits for its end.
type Wire struct {
	net.Conn
	In    *bufio.Reader
	ended chan time.Time // while idle: when the server closed it; closed without a value: it is open
}

// NewWire wraps a connection that was just made.
func NewWire(c net.Conn) *Wire { return &Wire{Conn: c, In: bufio.NewReaderSize(c, 1024)} }

// Dial returns the Driver.Dial for an address: "host:port", "unix:/path" or "unix:@name".
func Dial(address string) func(context.Context) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// Send sends one request. The Attempt counts its time from since.
func (s *Driver) Send(since time.Time) Attempt {
	s.init()
	began := time.Now()
	conn, reused, err := s.connection()
	waited := time.Duration(0)
	if err == nil && !reused {
		waited, err = s.cross()
	}
	if err == nil {
		err = s.exchange(conn)
	} else if conn != nil {
		s.drop(conn)
	}
	loss := lost(err, reused)
	if loss != nil {
		loss.abandoned = s.ctx.Err() != nil
	}
	return Attempt{began.Add(waited).Sub(since), time.Since(began) - waited, loss}
}

func (s *Driver) init() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.end = context.WithCancelCause(context.Background())
		s.conns = map[*Wire]bool{}
	}
}

func (s *Driver) exchange(conn *Wire) error {
	err := conn.SetDeadline(time.Now().Add(s.timeout()))
	closes := true
	if err == nil {
		closes, err = s.Ask(conn, s.Keep == 0)
	}
	if err != nil || closes || s.Keep == 0 {
		s.drop(conn)
		return err
	}
	s.put(conn)
	return nil
}

func (s *Driver) timeout() time.Duration {
	if s.Timeout == 0 {
		return 30 * time.Second
	}
	return s.Timeout
}

// connection returns the connection that has been idle the longest, or a new one while fewer than Keep are open.
func (s *Driver) connection() (_ *Wire, reused bool, _ error) {
	for {
		kept := s.take()
		if kept == nil {
			fresh, err := s.connect()
			return fresh, false, err
		}
		closed := kept.wake()
		if closed.IsZero() {
			return kept, true, nil
		}
		s.drop(kept)
		if ago := time.Since(closed); ago < s.RoundTrip {
			return nil, true, fmt.Errorf("%w the idle connection %s before, which a client %s away could not know yet",
				errClosed, ago.Round(10*time.Microsecond), s.RoundTrip)
		}
	}
}

func (s *Driver) take() *Wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 || len(s.conns) < s.Keep {
		return nil
	}
	kept := s.idle[0]
	s.idle = s.idle[1:]
	return kept
}

func (s *Driver) connect() (*Wire, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout())
	defer cancel()
	plain, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn := NewWire(plain)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		plain.Close() //nolint:errcheck // nothing was sent
		return nil, context.Cause(s.ctx)
	}
	s.dials++
	s.conns[conn] = true
	return conn, nil
}

// cross waits for the round trip between a client's connect and its request, and returns how long that took.
func (s *Driver) cross() (time.Duration, error) {
	if s.RoundTrip == 0 {
		return 0, nil
	}
	began := time.Now()
	t := time.NewTimer(s.RoundTrip)
	defer t.Stop()
	select {
	case <-t.C:
		return time.Since(began), nil
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
}

func (s *Driver) put(conn *Wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) > s.Keep {
		s.forget(conn)
		return
	}
	if s.RoundTrip > 0 {
		conn.rest()
	}
	s.idle = append(s.idle, conn)
}

func (s *Driver) drop(conn *Wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(conn)
}

// forget closes a connection. s.mu is held.
func (s *Driver) forget(conn *Wire) {
	conn.Close() //nolint:errcheck // nothing more is expected of it
	delete(s.conns, conn)
}

// Dials returns the number of connections made so far.
func (s *Driver) Dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// Close closes the idle connections. It returns when no goroutine of the client is left.
func (s *Driver) Close() {
	s.mu.Lock()
	idle := s.idle
	s.idle = nil
	for _, kept := range idle {
		s.forget(kept)
	}
	s.mu.Unlock()
	for _, kept := range idle {
		if kept.ended != nil {
			<-kept.ended
		}
	}
}

// Abandon cuts the requests in flight and fails all later ones.
func (s *Driver) Abandon() {
	s.init()
	s.end(errAbandoned)
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close() //nolint:errcheck // it is cut
	}
}

// rest starts waiting for the end of an idle connection.
func (c *Wire) rest() {
	c.ended = make(chan time.Time, 1)
	err := c.SetDeadline(time.Time{})
	go func() {
		defer close(c.ended)
		if err == nil {
			_, err = c.In.Peek(1)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) { // unrequested bytes end the connection, too
			c.ended <- time.Now()
		}
	}()
}

// wake ends the waiting and returns when the server closed the connection; zero: it is open.
func (c *Wire) wake() time.Time {
	if c.ended == nil {
		return time.Time{}
	}
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		c.Close() //nolint:errcheck // so that the wait ends in any case
	}
	return <-c.ended
}
