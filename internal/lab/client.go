package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// AnswerTimeout is when a request without an answer counts as failed. A busy machine answers 1,000 clients at once in
// 7 s each, and some of them in 20 s.
const AnswerTimeout = time.Minute

// Connection is an HTTP client with at most one connection, which never sends a request twice.
type Connection struct {
	Address string     // host:port, or unix:/path, or unix:@abstract
	Once    bool       // each connection carries one request
	Conn    *load.Wire // nil: there is none
}

// Get requests a path, on the open connection or on a new one, and returns the body of the answer.
func (c *Connection) Get(path string) (string, error) {
	if err := c.Connect(); err != nil {
		return "", err
	}
	c.Conn.SetDeadline(time.Now().Add(AnswerTimeout))
	var body strings.Builder
	r, err := http.NewRequest(http.MethodGet, "http://test"+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := load.Exchange(c.Conn, r, c.Once, &body)
	if err != nil || answer.Close || c.Once {
		c.Close()
	}
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return body.String(), err
}

// Connect opens the connection if there is none.
func (c *Connection) Connect() error {
	if c.Conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), AnswerTimeout)
	defer cancel()
	conn, err := load.Dial(c.Address)(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.Conn = load.NewWire(conn)
	return nil
}

// Close closes the connection if there is one.
func (c *Connection) Close() {
	if c.Conn != nil {
		c.Conn.Close()
		c.Conn = nil
	}
}

// Get requests a path once, on a connection of its own.
func Get(address, path string) (string, error) {
	return (&Connection{Address: address, Once: true}).Get(path)
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

// AwaitAccepted waits until a process has accepted every connection to a port of 127.0.0.1: the kernel shows those in a
// queue without an inode (/proc/net/tcp).
func AwaitAccepted(t testing.TB, address string) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(at.Addr().AsSlice()), at.Port())
	queued := func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 9 && fields[1] == local && (fields[3] == "01" || fields[3] == "03") && fields[9] == "0"
	}
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		switch {
		case !slices.ContainsFunc(strings.Split(Text("/proc/thread-self/net/tcp"), "\n"), queued):
			return
		case time.Now().After(end):
			t.Fatalf("nobody accepts what has connected to %s", address)
		}
	}
}

// Traffic is many clients that ask again and again.
type Traffic struct {
	*load.Load
	load.Collector
	mu          sync.Mutex
	generations map[string]int // answers of each
}

// Press puts load on an address: half of the clients connect for each request, half keep their connection. Each waits
// pause between two requests.
func Press(t testing.TB, address string, clients int, pause time.Duration) *Traffic {
	return PressThrough(t, load.Dial(address), clients/2, (clients+1)/2, pause)
}

// PressNew is Press with new connections only.
func PressNew(t testing.TB, address string, clients int, pause time.Duration) *Traffic {
	return PressThrough(t, load.Dial(address), clients, 0, pause)
}

// Dialer opens a connection.
type Dialer = func(context.Context) (net.Conn, error)

// PressThrough puts load through dial: some clients connect for each request, some keep their connection.
func PressThrough(t testing.TB, dial Dialer, fresh, keeping int, pause time.Duration) *Traffic {
	l := &Traffic{generations: map[string]int{}}
	l.Load = load.New(l.Collector.Add)
	l.add(dial, fresh, 0, pause)
	l.add(dial, keeping, keeping, pause)
	t.Cleanup(l.Stop)
	return l
}

func (l *Traffic) add(dial Dialer, clients, keep int, pause time.Duration) {
	s := &load.Driver{Dial: dial, Ask: load.Get("http://test/", l.see), Keep: keep, Timeout: AnswerTimeout}
	l.Loop(s, clients, 0, func() time.Duration { return pause })
}

var generationIn = regexp.MustCompile(`generation=(\d+)`)

// By reports whether a worker of this generation has answered.
func (l *Traffic) By(generation int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generations[strconv.Itoa(generation)] > 0
}

func (l *Traffic) see(answer *http.Response, body []byte) error {
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	if m := generationIn.FindSubmatch(body); m != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.generations[string(m[1])]++
	}
	return nil
}

// End ends the load and counts the answered and the lost requests, and the answers of each generation.
func (l *Traffic) End() (answered int, lost map[load.LossKind]int, generations map[string]int) {
	l.Stop()
	all := l.Attempts()
	n, lost := all.Lost()
	return len(all) - n, lost, l.generations
}

// Losses lists when clients saw that a request was lost, and why: the first ten.
func (l *Traffic) Losses() iter.Seq2[time.Time, *load.Lost] {
	return func(yield func(time.Time, *load.Lost) bool) {
		n, began := 0, time.Now().Add(-l.Now())
		for _, a := range l.Attempts() {
			if a.Lost == nil {
				continue
			}
			if n++; n > 10 || !yield(began.Add(a.End()), a.Lost) {
				return
			}
		}
	}
}

// Lossless ends the load, fails if a request was lost, and returns how many generations answered.
func (l *Traffic) Lossless(t testing.TB) int {
	t.Helper()
	answered, lost, generations := l.End()
	if len(lost) > 0 || answered == 0 {
		t.Errorf("%d requests were answered; lost were %v", answered, lost)
		for at, why := range l.Losses() {
			t.Logf("lost at %s, on a connection with requests before: %t: %s", at.UTC().Format("15:04:05.000"), why.Reused,
				why.Text)
		}
	}
	t.Logf("%d requests answered by %d generations", answered, len(generations))
	return len(generations)
}

// RedeployWithLoss reloads a program three times under load with new connections, and fails if more than this many
// requests are lost each time: 0, but for a worker that loses them itself.
func (m *Supervisord) RedeployWithLoss(most int) {
	m.T.Helper()
	m.Serves(1)
	l := PressNew(m.T, m.Address(), 8, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		m.Reload()
		m.Serves(generation)
		m.Gone(generation - 1)
	}
	m.Until("there were enough requests", func() bool { return len(l.Attempts()) >= 150 })
	answered, kinds, generations := l.End()
	if lost, _ := l.Attempts().Lost(); lost > 3*most || answered < 100 || len(generations) < 3 {
		m.T.Errorf("%d requests were answered by the generations %v, lost were %v", answered, generations, kinds)
	}
	m.Never(Says(WorkerKilled))
}

// ReloadUnderLoad puts load on an address while HUPs come, and fails if a request is lost or a generation has not
// served.
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
		m.Reloaded()
	}
	l.Lossless(m.T)
	for _, sentence := range []string{TrialFailed, WorkerKilled, WorkerDied} {
		m.Never(Says(sentence))
	}
	if began, served := m.Count(Says(TrialBegan)), m.Count(Says(GenerationServes)); served != began || served < 2 {
		m.T.Errorf("%d generations began and %d served", began, served)
	}
}
