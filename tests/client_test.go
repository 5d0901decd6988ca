package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// answerTimeout is when a request without an answer counts as failed.
const answerTimeout = 20 * time.Second

// client is one HTTP client that never tries twice: net/http would hide lost requests by repeating them.
type client struct {
	address string // host:port, or unix:/path, or unix:@abstract
	once    bool   // each connection is for one request
	conn    net.Conn
	in      *bufio.Reader
}

// get asks for a path, on the connection that there is or on a new one.
func (c *client) get(path string) (string, error) {
	if err := c.connect(); err != nil {
		return "", err
	}
	c.conn.SetDeadline(time.Now().Add(answerTimeout))
	connection := "keep-alive"
	if c.once {
		connection = "close"
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: %s\r\n\r\n", path, connection); err != nil {
		c.close()
		return "", fmt.Errorf("write: %w", err)
	}
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.close()
		return "", fmt.Errorf("read: %w", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != 200 {
		err = errors.New(answer.Status)
	}
	if err != nil || answer.Close || c.once {
		c.close()
	}
	return string(body), err
}

func (c *client) connect() error {
	if c.conn != nil {
		return nil
	}
	network, address := "tcp", c.address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	conn, err := net.DialTimeout(network, address, answerTimeout)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// get asks once, on a connection of its own.
func get(address, path string) (string, error) {
	c := &client{address: address, once: true}
	defer c.close()
	return c.get(path)
}

// ask is get that must succeed.
func ask(t testing.TB, address, path string) string {
	t.Helper()
	body, err := get(address, path)
	if err != nil {
		t.Fatalf("%s%s: %v", address, path, err)
	}
	return body
}

// promise asks in the background; the answer is waited for by calling what is returned.
func promise(t testing.TB, address, path string) func() string {
	type result struct {
		body string
		err  error
	}
	done := make(chan result, 1)
	c := &client{address: address, once: true}
	must(t, c.connect()) // the request is in somebody's hand, or in the queue, from here on
	t.Cleanup(c.close)
	go func() {
		body, err := c.get(path)
		done <- result{body, err}
	}()
	return func() string {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Fatalf("%s%s: %v", address, path, r.err)
		}
		return r.body
	}
}

// tally is what became of a load.
type tally struct {
	mu          sync.Mutex
	answered    int
	failed      map[string]int // by kind
	generations map[string]int
}

func (y *tally) add(body string, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if err != nil {
		y.failed[kind(err)]++
		return
	}
	y.answered++
	if m := generationIn.FindStringSubmatch(body); m != nil {
		y.generations[m[1]]++
	}
}

var generationIn = regexp.MustCompile(`generation=(\d+)`)

// kind is what a failure is counted as.
func kind(err error) string {
	what, _, _ := strings.Cut(err.Error(), ":")
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return what + " refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return what + " reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return what + " cut off"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return what + " timed out"
	}
	return err.Error()
}

// load is many clients that ask again and again.
type load struct {
	tally
	stop    chan struct{}
	running sync.WaitGroup
}

// press puts load on an address: half of the clients connect for each request, half keep their connection. Each waits pause
// between two requests.
func press(t testing.TB, address string, clients int, pause time.Duration) *load {
	return pressWith(t, address, clients, pause, func(i int) bool { return i%2 == 0 })
}

// pressNew is press with new connections only.
func pressNew(t testing.TB, address string, clients int, pause time.Duration) *load {
	return pressWith(t, address, clients, pause, func(int) bool { return false })
}

func pressWith(t testing.TB, address string, clients int, pause time.Duration, keep func(client int) bool) *load {
	l := &load{stop: make(chan struct{})}
	l.failed, l.generations = map[string]int{}, map[string]int{}
	for i := range clients {
		l.running.Go(func() { l.client(address, keep(i), pause) })
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) client(address string, keep bool, pause time.Duration) {
	c := &client{address: address, once: !keep}
	defer c.close()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		l.add(c.get("/"))
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
	}
}

// end ends the load.
func (l *load) end() *tally {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
	return &l.tally
}

// lossless ends the load and fails if a request was lost.
func (l *load) lossless(t testing.TB) {
	t.Helper()
	y := l.end()
	if len(y.failed) > 0 || y.answered == 0 {
		t.Errorf("of %d requests failed: %v", y.answered, y.failed)
	}
	t.Logf("%d requests answered by %d generations", y.answered, len(y.generations))
}
