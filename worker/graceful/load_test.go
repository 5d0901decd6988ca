package graceful_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The load of the tests; larger figures are measured with the flags.
var (
	loadRequests    = flag.Int64("load.requests", defaultRequests, "requests of a load test")
	loadConnections = flag.Int("load.connections", 200, "connections at once of a load test")
	loadWorker      = flag.String("load.worker", "http", "worker of a load test: http, or shutdown for what most do")
	loadPause       = flag.Duration("load.pause", 0, "average pause of a client between two requests")
	loadSwap        = flag.Duration("load.swap", 200*time.Millisecond, "time between two swaps of a load test")
)

// load is a client that never retries.
type load struct {
	addr      string
	keepAlive bool
	left      atomic.Int64
	reused    atomic.Int64
	mu        sync.Mutex
	failed    map[string]int // by kind
	longest   time.Duration
}

func TestLoadNewConnections(t *testing.T) { underLoad(t, false) }

func TestLoadKeepAlive(t *testing.T) { underLoad(t, true) }

func underLoad(t *testing.T, keepAlive bool) {
	m := newMaster(t)
	l := &load{addr: m.addr, keepAlive: keepAlive, failed: make(map[string]int)}
	l.left.Store(*loadRequests)
	done := make(chan struct{})
	var took time.Duration
	n := m.swaps(*loadWorker, *loadSwap, func() {
		defer close(done)
		began := time.Now()
		l.run(*loadConnections)
		took = time.Since(began)
	}, done)
	t.Logf("%d requests, %d connections, %d swaps in %v (%.0f/s), %d on a used connection, slowest %v: failed %v", *loadRequests,
		*loadConnections, n, took.Round(time.Millisecond), float64(*loadRequests)/took.Seconds(), l.reused.Load(), l.longest, l.failed)
	if len(l.failed) > 0 {
		t.Errorf("failed: %v", l.failed)
	}
	if n == 0 {
		t.Error("no swap took place")
	}
	if keepAlive && l.reused.Load() < *loadRequests/4 {
		t.Errorf("only %d requests of %d came on a used connection", l.reused.Load(), *loadRequests)
	}
}

func (l *load) run(connections int) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			var c *client
			for l.left.Add(-1) >= 0 {
				c = l.request(c)
				if *loadPause > 0 {
					time.Sleep(rand.N(2 * *loadPause))
				}
			}
			if c != nil {
				c.Close()
			}
		})
	}
	all.Wait()
}

type client struct {
	net.Conn
	in *bufio.Reader
}

// request sends one request, on c if it is still open, and returns the connection if it can be used again.
func (l *load) request(c *client) *client {
	began := time.Now()
	step := "on a used connection: "
	if c == nil {
		step = "on a new connection: "
		conn, err := net.DialTimeout("tcp", l.addr, 30*time.Second)
		if err != nil {
			l.fail("connect: ", err)
			return nil
		}
		c = &client{conn, bufio.NewReader(conn)}
	} else {
		l.reused.Add(1)
	}
	again, err := c.get("/", l.keepAlive)
	if err != nil {
		l.fail(step, err)
	}
	l.mu.Lock()
	l.longest = max(l.longest, time.Since(began))
	l.mu.Unlock()
	if !again || err != nil {
		c.Close()
		return nil
	}
	return c
}

func (l *load) fail(step string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed[step+kind(err)]++
}

// kind is an error without the addresses in it.
func kind(err error) string {
	if op, ok := err.(*net.OpError); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// get sends a GET and reads the answer; again tells whether the connection can be used once more.
func (c *client) get(path string, keepAlive bool) (again bool, err error) {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	header := ""
	if !keepAlive {
		header = "Connection: close\r\n"
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: test\r\n%s\r\n", path, header); err != nil {
		return false, err
	}
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return false, err
	}
	if answer.StatusCode != http.StatusOK {
		return false, fmt.Errorf("status %d", answer.StatusCode)
	}
	return !answer.Close, nil
}
