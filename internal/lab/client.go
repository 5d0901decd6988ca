package lab

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

// AnswerTimeout is when a request without an answer counts as failed.
const AnswerTimeout = 20 * time.Second

// Client is one HTTP client that never tries twice: net/http would hide lost requests by repeating them.
type Client struct {
	Address string // host:port, or unix:/path, or unix:@abstract
	Once    bool   // each connection is for one request
	Conn    net.Conn
	in      *bufio.Reader
}

// Get requests a path, on the open connection or on a new one, and returns the body of the answer.
func (c *Client) Get(path string) (string, error) {
	if err := c.Connect(); err != nil {
		return "", err
	}
	c.Conn.SetDeadline(time.Now().Add(AnswerTimeout))
	connection := "keep-alive"
	if c.Once {
		connection = "close"
	}
	if _, err := fmt.Fprintf(c.Conn, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: %s\r\n\r\n", path, connection); err != nil {
		c.Close()
		return "", fmt.Errorf("write: %w", err)
	}
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.Close()
		return "", fmt.Errorf("read: %w", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != 200 {
		err = errors.New(answer.Status)
	}
	if err != nil || answer.Close || c.Once {
		c.Close()
	}
	return string(body), err
}

// Connect opens the connection if there is none.
func (c *Client) Connect() error {
	if c.Conn != nil {
		return nil
	}
	network, address := "tcp", c.Address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	conn, err := net.DialTimeout(network, address, AnswerTimeout)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.Conn, c.in = conn, bufio.NewReader(conn)
	return nil
}

// Close closes the connection if there is one.
func (c *Client) Close() {
	if c.Conn != nil {
		c.Conn.Close()
		c.Conn = nil
	}
}

// Get requests a path once, on a connection of its own.
func Get(address, path string) (string, error) {
	c := &Client{Address: address, Once: true}
	defer c.Close()
	return c.Get(path)
}

// Ask is Get that must succeed.
func Ask(t testing.TB, address, path string) string {
	t.Helper()
	body, err := Get(address, path)
	if err != nil {
		t.Fatalf("%s%s: %v", address, path, err)
	}
	return body
}

// Promise is Ask in the background. It returns when the connection is open; the function that it returns waits for the answer.
func Promise(t testing.TB, address, path string) func() string {
	type result struct {
		body string
		err  error
	}
	done := make(chan result, 1)
	c := &Client{Address: address, Once: true}
	Must(t, c.Connect()) // the request is in somebody's hand, or in the queue, from here on
	t.Cleanup(c.Close)
	go func() {
		body, err := c.Get(path)
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

// Tally counts what became of the requests of a Load.
type Tally struct {
	mu          sync.Mutex
	Answered    int
	Failed      map[string]int // by kind
	Generations map[string]int
}

func (y *Tally) Add(body string, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if err != nil {
		y.Failed[Kind(err)]++
		return
	}
	y.Answered++
	if m := generationIn.FindStringSubmatch(body); m != nil {
		y.Generations[m[1]]++
	}
}

var generationIn = regexp.MustCompile(`generation=(\d+)`)

// Kind is the word that Tally counts a failure under: "connect refused".
func Kind(err error) string {
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

// Load is many clients that ask again and again.
type Load struct {
	Tally
	stop    chan struct{}
	running sync.WaitGroup
}

// Press puts load on an address: half of the clients connect for each request, half keep their connection. Each waits pause
// between two requests.
func Press(t testing.TB, address string, clients int, pause time.Duration) *Load {
	return PressWith(t, address, clients, pause, func(i int) bool { return i%2 == 0 })
}

// PressNew is Press with new connections only.
func PressNew(t testing.TB, address string, clients int, pause time.Duration) *Load {
	return PressWith(t, address, clients, pause, func(int) bool { return false })
}

func PressWith(t testing.TB, address string, clients int, pause time.Duration, keep func(client int) bool) *Load {
	l := &Load{stop: make(chan struct{})}
	l.Failed, l.Generations = map[string]int{}, map[string]int{}
	for i := range clients {
		l.running.Go(func() { l.client(address, keep(i), pause) })
	}
	t.Cleanup(func() { l.End() })
	return l
}

func (l *Load) client(address string, keep bool, pause time.Duration) {
	c := &Client{Address: address, Once: !keep}
	defer c.Close()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		l.Add(c.Get("/"))
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
	}
}

// End ends the load.
func (l *Load) End() *Tally {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
	return &l.Tally
}

// Lossless ends the load and fails if a request was lost.
func (l *Load) Lossless(t testing.TB) {
	t.Helper()
	y := l.End()
	if len(y.Failed) > 0 || y.Answered == 0 {
		t.Errorf("of %d requests failed: %v", y.Answered, y.Failed)
	}
	t.Logf("%d requests answered by %d generations", y.Answered, len(y.Generations))
}

// RedeployUnderLoad reloads a program three times under load with new connections, and fails if a request is lost.
func (m *Supervisord) RedeployUnderLoad() {
	m.T.Helper()
	m.RedeployWithLoss(0)
}

// RedeployWithLoss is RedeployUnderLoad for a worker that itself loses so many requests, at worst, each time it stops.
func (m *Supervisord) RedeployWithLoss(most int) {
	m.T.Helper()
	m.Serves(1)
	l := PressNew(m.T, m.Address(), 8, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		m.Reload()
		m.Serves(generation)
		m.Gone(generation - 1)
	}
	y, lost := l.End(), 0
	for _, n := range y.Failed {
		lost += n
	}
	if lost > 3*most || y.Answered < 100 || len(y.Generations) < 3 {
		m.T.Errorf("%d requests were answered by the generations %v, lost were %v", y.Answered, y.Generations, y.Failed)
	}
	m.Never(Says(WorkerKilled))
}

// ReloadUnderLoad puts load on an address while HUPs come, and fails if a request is lost or a generation has not served.
func (m *Supervisord) ReloadUnderLoad(address string, clients int, every time.Duration, times int) {
	m.T.Helper()
	l := Press(m.T, address, clients, 10*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range times {
		<-tick.C
		m.Signal(syscall.SIGHUP)
	}
	m.AwaitN(2, Says(GenerationServes))
	for began := 0; began < m.Count(Says(TrialBegan)); { // the last one may still be on trial, and one more be due
		began = m.Count(Says(TrialBegan))
		m.AwaitN(began, Says(GenerationServes))
		m.Settle()
	}
	l.Lossless(m.T)
	m.Never(Says(TrialFailed))
	m.Never(Says(WorkerKilled))
	m.Never(Says(WorkerDied))
	if began, served := m.Count(Says(TrialBegan)), m.Count(Says(GenerationServes)); served != began || served < 2 {
		m.T.Errorf("%d generations began and %d served", began, served)
	}
}

// Seen counts the failures so far by their Kind.
func (l *Load) Seen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := map[string]int{}
	for k, n := range l.Failed {
		now[k] = n
	}
	return now
}
