package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// answerTimeout is how long a request may take before it counts as failed.
const answerTimeout = 30 * time.Second

// caller is an HTTP/1.1 client that never sends a request again: http.Transport would, and hide what is to be found. It keeps
// connections if told to, and looks whether the server has closed one before it uses it, as all clients do. It is an
// http.RoundTripper, for vegeta.
type caller struct {
	keep  bool
	dials atomic.Int64

	mu   sync.Mutex
	idle []*wire
}

type wire struct {
	net.Conn
	in *bufio.Reader
}

// RoundTrip sends one request, once, and reads the whole answer.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := c.connection(r.Context(), r.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	answer, err := w.exchange(r, c.keep)
	if err != nil || answer.Close || !c.keep {
		w.Close() //nolint:errcheck // it is done with
	} else {
		c.mu.Lock()
		c.idle = append(c.idle, w)
		c.mu.Unlock()
	}
	return answer, err
}

// connection is the one used last, if it is still open, or a new one.
func (c *caller) connection(ctx context.Context, address string) (*wire, error) {
	for {
		w := c.pop()
		if w == nil {
			break
		}
		if w.open() {
			return w, nil
		}
		w.Close() //nolint:errcheck // the server has closed it
	}
	c.dials.Add(1)
	d := net.Dialer{Timeout: answerTimeout}
	conn, err := d.DialContext(ctx, "tcp4", address)
	if err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReaderSize(conn, 1024)}, nil
}

func (c *caller) pop() *wire {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return nil
	}
	w := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	return w
}

// close closes the connections that are kept.
func (c *caller) close() {
	for w := c.pop(); w != nil; w = c.pop() {
		w.Close() //nolint:errcheck // nothing is on it
	}
}

// open tells whether the server has not closed the connection, as far as the kernel knows.
func (w *wire) open() bool {
	raw, err := w.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	var n int
	var problem error
	err = raw.Read(func(fd uintptr) bool {
		n, _, problem = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && n <= 0 && errors.Is(problem, syscall.EAGAIN)
}

func (w *wire) exchange(r *http.Request, keep bool) (*http.Response, error) {
	w.SetDeadline(time.Now().Add(answerTimeout)) //nolint:errcheck // then the write fails too
	defer context.AfterFunc(r.Context(), func() { w.Close() })()
	r = r.Clone(r.Context())
	r.Close = !keep
	if err := r.Write(w); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	answer, err := http.ReadResponse(w.in, r)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("rest of the answer: %w", err)
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer, nil
}

// ask sends a request and wants 200.
func (c *caller) ask(ctx context.Context, method, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := c.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return err
}
