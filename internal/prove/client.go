package prove

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// errAbandoned ends what is under way when the proof is given up.
var errAbandoned = errors.New("the proof was given up")

// client speaks HTTP/1.1 and never retries. It is no http.Transport, because that silently sends a request again when a used
// connection turns out to be broken (net/http, persistConn.shouldRetryRequest): the loss to be found.
type client struct {
	wire
	keep int // how many connections are kept between requests; 0: each request has a new one

	mu   sync.Mutex
	idle []*conn // the longest idle first
	open int     // connections of the kept kind, idle or in use
}

// wire is what both clients have in common: how to connect, how long to wait, and what is open.
type wire struct {
	dial      func(context.Context) (net.Conn, error)
	timeout   time.Duration
	roundTrip time.Duration
	over      chan struct{} // closed when the proof is given up

	books sync.Mutex
	notes map[string]note // by vegeta's number of the request
	conns map[net.Conn]bool
}

// note is what is known of a request besides vegeta's result.
type note struct {
	loss   *loss         // nil: it was answered
	paused time.Duration // by the client itself
}

func newWire(t *target, o Options) wire {
	return wire{dial: t.dial, timeout: o.Timeout, roundTrip: o.RoundTrip, over: make(chan struct{}),
		notes: map[string]note{}, conns: map[net.Conn]bool{}}
}

// conn is an open connection. While it is idle a goroutine waits for its end.
type conn struct {
	net.Conn
	in    *bufio.Reader
	ended chan time.Time // while idle: when the worker closed it; closed without a value: it is open
}

// RoundTrip sends one request, once, and reads the whole answer. What is to be known of it is kept for note.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	var n note
	answer := c.exchange(r, &n)
	c.keepNote(r, n)
	if answer == nil {
		return nil, n.loss
	}
	return answer, nil
}

// exchange returns the answer, if there was one, and writes into n what is to be known of it.
func (c *client) exchange(r *http.Request, n *note) *http.Response {
	conn, reused, l := c.connection(r.Context())
	if l == nil && c.keep == 0 {
		n.paused, l = c.pause()
	}
	if l != nil {
		n.loss = l
		if conn != nil {
			c.drop(conn)
		}
		return nil
	}
	answer, failure := conn.ask(r, c.keep == 0, c.timeout)
	if failure != nil {
		c.drop(conn)
		n.loss = lost(failure, reused)
		return nil
	}
	if answer.Close || c.keep == 0 {
		c.drop(conn)
	} else {
		c.put(conn)
	}
	n.loss = lostStatus(answer.StatusCode, reused)
	return answer
}

// ask sends r and reads the answer to its end.
func (c *conn) ask(r *http.Request, last bool, timeout time.Duration) (*http.Response, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	once := *r
	once.Close = last
	if err := once.Write(c); err != nil {
		return nil, err
	}
	for {
		answer, err := http.ReadResponse(c.in, &once)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return nil, err
		}
		answer.Body.Close() //nolint:errcheck // it was read to its end
		answer.Body = http.NoBody
		if answer.StatusCode >= 200 { // 1xx: the real one follows
			return answer, nil
		}
	}
}

// connection returns the connection that has been idle the longest, or a new one while fewer than keep are open.
func (c *client) connection(ctx context.Context) (_ *conn, reused bool, _ *loss) {
	for {
		kept := c.take()
		if kept == nil {
			fresh, err := c.connect(ctx)
			return fresh, false, err
		}
		closed := kept.wake()
		if closed.IsZero() {
			return kept, true, nil
		}
		c.drop(kept)
		if ago := time.Since(closed); ago < c.roundTrip {
			return nil, true, &loss{Closed, true, fmt.Sprintf("the worker closed the idle connection %s before, "+
				"which a client %s away could not know yet", ago.Round(10*time.Microsecond), c.roundTrip)}
		}
	}
}

func (c *client) take() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 || c.open < c.keep {
		return nil
	}
	kept := c.idle[0]
	c.idle = c.idle[1:]
	return kept
}

func (c *client) connect(ctx context.Context) (*conn, *loss) {
	plain, err := c.wire.connect(ctx)
	if err != nil {
		return nil, lost(err, false)
	}
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
	return &conn{Conn: plain, in: bufio.NewReader(plain)}, nil
}

func (c *client) put(used *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open > c.keep {
		c.open--
		c.wire.drop(used.Conn)
		return
	}
	used.rest()
	c.idle = append(c.idle, used)
}

func (c *client) drop(done *conn) {
	c.mu.Lock()
	c.open--
	c.mu.Unlock()
	c.wire.drop(done.Conn)
}

// rest begins to wait for the end of an idle connection.
func (c *conn) rest() {
	c.ended = make(chan time.Time, 1)
	err := c.SetDeadline(time.Time{})
	go func() {
		defer close(c.ended)
		if err == nil {
			_, err = c.in.Peek(1)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) { // a word that nobody asked for ends it as well
			c.ended <- time.Now()
		}
	}()
}

// wake ends the waiting and returns when the worker closed the connection; zero: it is open.
func (c *conn) wake() time.Time {
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		c.Close() //nolint:errcheck // so that the wait ends in any case
	}
	return <-c.ended
}

// close ends every connection and returns when nobody waits on one any more.
func (c *client) close() {
	c.abandon()
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, kept := range idle {
		<-kept.ended
	}
}

func (w *wire) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	plain, err := w.dial(ctx)
	if err != nil {
		return nil, err
	}
	w.books.Lock()
	defer w.books.Unlock()
	if w.isOver() {
		plain.Close() //nolint:errcheck // nothing was sent
		return nil, errAbandoned
	}
	w.conns[plain] = true
	return plain, nil
}

// pause waits for the round trip that lies between a client's connect and its request, and returns how long it took.
func (w *wire) pause() (time.Duration, *loss) {
	began := time.Now()
	t := time.NewTimer(w.roundTrip)
	defer t.Stop()
	select {
	case <-t.C:
		return time.Since(began), nil
	case <-w.over:
		return 0, lost(errAbandoned, false)
	}
}

func (w *wire) drop(plain net.Conn) {
	plain.Close() //nolint:errcheck // it is done with
	w.books.Lock()
	defer w.books.Unlock()
	delete(w.conns, plain)
}

// abandon cuts everything that is under way.
func (w *wire) abandon() {
	w.books.Lock()
	defer w.books.Unlock()
	if w.isOver() {
		return
	}
	close(w.over)
	for plain := range w.conns {
		plain.Close() //nolint:errcheck // it is cut
	}
}

func (w *wire) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// keepNote keeps what is known of a request until it is asked for. What the end of the proof cut is not kept.
func (w *wire) keepNote(r *http.Request, n note) {
	w.books.Lock()
	defer w.books.Unlock()
	if n.loss == nil || !w.isOver() {
		w.notes[r.Header.Get("X-Vegeta-Seq")] = n
	}
}

// note returns what is known of a request, once; false: it was cut by the end of the proof.
func (w *wire) note(seq uint64) (note, bool) {
	w.books.Lock()
	defer w.books.Unlock()
	key := strconv.FormatUint(seq, 10)
	n, found := w.notes[key]
	delete(w.notes, key)
	return n, found
}
