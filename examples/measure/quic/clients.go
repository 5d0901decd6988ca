package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	// atOnce is how many clients do something at a time at most, so that a busy machine answers each soon, and the
	// datagrams of all fit into the buffer of a socket.
	atOnce = 16
	// rate is how many requests a second all clients send at most.
	rate = 500
	// answerTimeout is how long a handshake or an answer may take, and how long a connection may be idle.
	answerTimeout = 2 * time.Minute
)

// tally is what became of the requests.
type tally struct {
	mu                           sync.Mutex
	handshakes, requests, failed int
	at                           map[string]int // how many clients each generation has answered last
}

func (t *tally) String() string {
	return fmt.Sprintf("%d handshakes, %d requests, %d failed", t.handshakes, t.requests, t.failed)
}

// moved notes which generation has answered a client, and before that, and says so when all are at the same one.
func (t *tally) moved(from, to string) {
	if from == to {
		return
	}
	t.at[from]--
	if t.at[to]++; t.at[from] == 0 {
		delete(t.at, from)
	}
	if len(t.at) == 1 {
		fmt.Println("settled", to)
	}
}

// client is a client of HTTP/3 with one connection after the other. It does what the server tells it: after GOAWAY it
// connects anew, and only a request that the server has rejected is sent again.
type client struct {
	http3.Transport
	t          *tally
	to         net.Addr
	churns     bool
	generation string          // that has answered last
	conn       *quic.Conn      // nil: it never had one
	from       *quic.Transport // of conn
	begins     bool            // nothing was answered on conn
}

func (t *tally) newClient(to net.Addr, churns bool) *client {
	c := &client{t: t, to: to, churns: churns}
	c.TLSClientConfig, c.QUICConfig, c.Dial = &tls.Config{InsecureSkipVerify: true}, settings, c.dial
	return c
}

// load is the load of so many clients, which take turns, until stdin ends. Every so many of them one makes a new
// connection for each request.
func load(clients, churning int, address string) (*tally, error) {
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until its end
		cancel()
	}()
	t := &tally{at: map[string]int{"": clients}}
	turns := make(chan *client, clients)
	for i := range clients {
		turns <- t.newClient(to, i%churning == 0)
	}
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var all sync.WaitGroup
	for range min(atOnce, 1+clients/5) {
		all.Go(func() {
			for ctx.Err() == nil {
				<-tick.C
				c := <-turns
				c.turn()
				turns <- c
			}
		})
	}
	all.Wait()
	for range clients {
		(<-turns).leave()
	}
	return t, nil
}

// turn sends one request.
func (c *client) turn() {
	generation, last, err := c.ask()
	if err == nil && !c.begins && generation != c.generation {
		err = errors.New("generation " + generation + " answers on a connection of " + c.generation)
	}
	c.t.count(func() {
		if c.t.requests++; err != nil {
			c.t.failure("request", err)
			return
		}
		c.t.moved(c.generation, generation)
		c.generation = generation
	})
	if c.begins = false; last || c.churns {
		c.leave()
	}
}

// count changes the numbers.
func (t *tally) count(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

// failure counts what was lost, and says why of the first few.
func (t *tally) failure(what string, err error) {
	if t.failed++; t.failed <= 20 {
		log.Printf("%s %s: %v", time.Now().Format("15:04:05.000000"), what, err)
	}
}

// dial makes a connection from a port of its own, when the one before is over.
func (c *client) dial(ctx context.Context, _ string, secure *tls.Config, settings *quic.Config) (*quic.Conn, error) {
	c.leave()
	local, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	c.from, c.begins = &quic.Transport{Conn: local}, true
	conn, err := c.from.Dial(ctx, c.to, secure, settings)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("handshake: %w", err), c.from.Close(), local.Close())
	}
	c.conn = conn
	c.t.count(func() { c.t.handshakes++ })
	return conn, nil
}

// ask sends a request, and says which generation has answered, and whether it wants the connection to be closed.
func (c *client) ask() (generation string, last bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://test/", nil)
	if err != nil {
		return "", false, err
	}
	answer, err := c.RoundTrip(r)
	if err != nil {
		return "", false, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get("Generation"), answer.Header.Get("Last") != "", errors.Join(err, answer.Body.Close())
}

// leave closes the connection, if there is one, and its port. It complains unless the connection was in order until
// then.
func (c *client) leave() {
	if c.conn == nil {
		return
	}
	c.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") //nolint:errcheck // the cause says it
	err := context.Cause(c.conn.Context())
	e, is := errors.AsType[*quic.ApplicationError](err)
	if !is || e.ErrorCode != quic.ApplicationErrorCode(http3.ErrCodeNoError) {
		c.t.count(func() { c.t.failure("connection", err) })
	}
	if err := errors.Join(c.from.Close(), c.from.Conn.Close()); err != nil {
		log.Print("cannot close a port: ", err)
	}
	c.conn = nil
}
