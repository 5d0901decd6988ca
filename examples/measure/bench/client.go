package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// answerTimeout is how long a request may take before it counts as failed.
const answerTimeout = 30 * time.Second

// caller is one client. It never sends a request again: http.Transport would, and hide what is to be found.
type caller struct {
	address string
	keep    bool // the connection, until the server says that it closes it
	conn    net.Conn
	in      *bufio.Reader
}

// call sends one request and reads the whole answer.
func (c *caller) call(path string) ([]byte, error) {
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	answer, body, err := c.exchange(path)
	if err != nil || !c.keep || answer.Close {
		c.close()
	}
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New("answer: " + answer.Status)
	}
	return body, err
}

func (c *caller) connect() (err error) {
	if c.conn != nil {
		return nil
	}
	if c.conn, err = net.DialTimeout("tcp4", c.address, answerTimeout); err != nil {
		c.conn = nil // not an interface that holds a nil
		return err
	}
	if c.in == nil {
		c.in = bufio.NewReaderSize(c.conn, 1024)
	}
	c.in.Reset(c.conn)
	return c.conn.SetDeadline(time.Now().Add(2 * answerTimeout))
}

func (c *caller) exchange(path string) (*http.Response, []byte, error) {
	closing := "Connection: close\r\n"
	if c.keep {
		closing = ""
	}
	c.conn.SetDeadline(time.Now().Add(answerTimeout)) //nolint:errcheck // then the write fails too
	if _, err := io.WriteString(c.conn, "GET "+path+" HTTP/1.1\r\nHost: bench\r\n"+closing+"\r\n"); err != nil {
		return nil, nil, fmt.Errorf("send: %w", err)
	}
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("answer: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("rest of the answer: %w", err)
	}
	return answer, body, nil
}

func (c *caller) close() {
	if c.conn != nil {
		c.conn.Close() //nolint:errcheck // it is done with
		c.conn = nil
	}
}

// result is what a load came to.
type result struct {
	requests, failed int
	first            error // the first failure
	took             time.Duration
}

func (r result) String() string {
	s := fmt.Sprintf("%d failed of %d, %.0f/s", r.failed, r.requests, float64(r.requests)/r.took.Seconds())
	if r.first != nil {
		s += fmt.Sprintf(" (the first: %v)", r.first)
	}
	return s
}

func (r *result) add(more result) {
	r.requests += more.requests
	r.failed += more.failed
	r.took += more.took
	if r.first == nil {
		r.first = more.first
	}
}

// hammer sends so many requests, each of the clients one after the other.
func hammer(address string, clients, requests int, keep bool) result {
	var left, failed atomic.Int64
	left.Store(int64(requests))
	var first atomic.Pointer[error]
	var running sync.WaitGroup
	began := time.Now()
	for range clients {
		running.Go(func() {
			c := caller{address: address, keep: keep}
			defer c.close()
			for left.Add(-1) >= 0 {
				if _, err := c.call("/healthz"); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	running.Wait()
	r := result{requests: requests, failed: int(failed.Load()), took: time.Since(began)}
	if err := first.Load(); err != nil {
		r.first = *err
	}
	return r
}

// chatter is a few clients that keep a service busy until it is ended.
type chatter struct {
	stop     atomic.Bool
	running  sync.WaitGroup
	answered atomic.Int64
	failed   atomic.Int64
	first    atomic.Pointer[error]
}

// chat begins. Every connection is new; seen is told of every answer and may be nil.
func chat(address string, clients int, seen func(body []byte)) *chatter {
	t := &chatter{}
	for range clients {
		t.running.Go(func() {
			c := caller{address: address}
			for !t.stop.Load() {
				body, err := c.call("/")
				if err != nil {
					t.failed.Add(1)
					t.first.CompareAndSwap(nil, &err)
					continue
				}
				t.answered.Add(1)
				if seen != nil {
					seen(body)
				}
			}
		})
	}
	return t
}

func (t *chatter) end() {
	t.stop.Store(true)
	t.running.Wait()
}
