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

// Client sends requests and never sends one twice. http.Transport cannot do this: it silently sends a request again when a used
// connection turns out to be broken (net/http, persistConn.shouldRetryRequest), and so hides the loss. Set the fields before the
// first request. A Client is safe for concurrent use.
type Client struct {
	Dial      func(context.Context) (net.Conn, error)
	Ask       Ask
	Keep      int           // connections to keep between requests; 0: a new one for each request
	Timeout   time.Duration // of the connect, and of the answer; 0: 30 s
	RoundTrip time.Duration // how far away the client acts to be, see the package; 0: it does not even notice that a kept connection was closed

	mu    sync.Mutex
	idle  []*Conn        // the longest idle first
	conns map[*Conn]bool // all that are open
	dials int
	ctx   context.Context // ended by Abandon
	end   context.CancelCauseFunc
}

// Ask sends one request on a connection and reads the whole answer. If last is true, no request follows on this connection, and
// the request says so if the protocol can. closes reports whether the server said that it closes the connection.
type Ask func(c *Conn, last bool) (closes bool, err error)

// Conn is an open connection. While it is idle, a goroutine waits for its end.
type Conn struct {
	net.Conn
	In    *bufio.Reader
	ended chan time.Time // while idle: when the server closed it; closed without a value: it is open
}

// NewConn wraps a connection that was just made.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c, In: bufio.NewReaderSize(c, 1024)} }

// Dial returns the Client.Dial for an address: "host:port", "unix:/path" or "unix:@name".
func Dial(address string) func(context.Context) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// Result is what became of one request.
type Result struct {
	Sent    time.Time
	Latency time.Duration
	Loss    *Loss // nil: it was answered
}

// Request sends one request.
func (c *Client) Request() Result {
	c.init()
	began := time.Now()
	conn, reused, err := c.connection()
	waited := time.Duration(0)
	if err == nil && !reused {
		waited, err = c.cross()
	}
	if err == nil {
		err = c.exchange(conn)
	} else if conn != nil {
		c.drop(conn)
	}
	loss := lost(err, reused)
	if loss != nil {
		loss.abandoned = c.ctx.Err() != nil
	}
	return Result{began.Add(waited), time.Since(began) - waited, loss}
}

func (c *Client) init() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.end = context.WithCancelCause(context.Background())
		c.conns = map[*Conn]bool{}
	}
}

func (c *Client) exchange(conn *Conn) error {
	err := conn.SetDeadline(time.Now().Add(c.timeout()))
	closes := true
	if err == nil {
		closes, err = c.Ask(conn, c.Keep == 0)
	}
	if err != nil || closes || c.Keep == 0 {
		c.drop(conn)
		return err
	}
	c.put(conn)
	return nil
}

func (c *Client) timeout() time.Duration {
	if c.Timeout == 0 {
		return 30 * time.Second
	}
	return c.Timeout
}

// connection returns the connection that has been idle the longest, or a new one while fewer than Keep are open.
func (c *Client) connection() (_ *Conn, reused bool, _ error) {
	for {
		kept := c.take()
		if kept == nil {
			fresh, err := c.connect()
			return fresh, false, err
		}
		closed := kept.wake()
		if closed.IsZero() {
			return kept, true, nil
		}
		c.drop(kept)
		if ago := time.Since(closed); ago < c.RoundTrip {
			return nil, true, fmt.Errorf("%w the idle connection %s before, which a client %s away could not know yet",
				errClosed, ago.Round(10*time.Microsecond), c.RoundTrip)
		}
	}
}

func (c *Client) take() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 || len(c.conns) < c.Keep {
		return nil
	}
	kept := c.idle[0]
	c.idle = c.idle[1:]
	return kept
}

func (c *Client) connect() (*Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout())
	defer cancel()
	plain, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn := NewConn(plain)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		plain.Close() //nolint:errcheck // nothing was sent
		return nil, context.Cause(c.ctx)
	}
	c.dials++
	c.conns[conn] = true
	return conn, nil
}

// cross waits for the round trip between a client's connect and its request, and returns how long that took.
func (c *Client) cross() (time.Duration, error) {
	if c.RoundTrip == 0 {
		return 0, nil
	}
	began := time.Now()
	t := time.NewTimer(c.RoundTrip)
	defer t.Stop()
	select {
	case <-t.C:
		return time.Since(began), nil
	case <-c.ctx.Done():
		return 0, context.Cause(c.ctx)
	}
}

func (c *Client) put(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) > c.Keep {
		c.forget(conn)
		return
	}
	if c.RoundTrip > 0 {
		conn.rest()
	}
	c.idle = append(c.idle, conn)
}

func (c *Client) drop(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(conn)
}

// forget closes a connection. c.mu is held.
func (c *Client) forget(conn *Conn) {
	conn.Close() //nolint:errcheck // nothing more is expected of it
	delete(c.conns, conn)
}

// Dials returns the number of connections made so far.
func (c *Client) Dials() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

// Close closes the idle connections. It returns when no goroutine of the client is left.
func (c *Client) Close() {
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	for _, kept := range idle {
		c.forget(kept)
	}
	c.mu.Unlock()
	for _, kept := range idle {
		if kept.ended != nil {
			<-kept.ended
		}
	}
}

// Abandon cuts the requests in flight and fails all later ones.
func (c *Client) Abandon() {
	c.init()
	c.end(errAbandoned)
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close() //nolint:errcheck // it is cut
	}
}

// rest starts waiting for the end of an idle connection.
func (c *Conn) rest() {
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
func (c *Conn) wake() time.Time {
	if c.ended == nil {
		return time.Time{}
	}
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		c.Close() //nolint:errcheck // so that the wait ends in any case
	}
	return <-c.ended
}
