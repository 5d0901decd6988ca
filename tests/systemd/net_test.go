package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/load"
)

// DialContext connects from inside the lab's network namespace. The address must be numeric, so that the thread that has joined the
// namespace creates the socket; a socket stays in the namespace in which it was created.
func (l *Lab) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer home.Close()
	if err := unix.Setns(int(l.netns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("cannot join the network of the lab: %w", err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
	}
	return conn, err
}

// Get requests a URL from inside the lab over a new connection and returns the body of a 200.
func (l *Lab) Get(url string) (string, error) {
	transport := &http.Transport{DialContext: l.DialContext, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// Load is a number of clients that send requests to one address without pause.
type Load struct {
	*load.Load
	began  time.Time
	seen   load.Collector
	mu     sync.Mutex
	bodies map[string]int
}

// Load starts clients of an HTTP server in the lab ("127.0.0.1:8080"): fresh ones open a connection for each request, keeping ones use
// theirs until the server announces its close. They never retry: every request without a 200 is a failure. They end with Stop, or with
// the test.
func (l *Lab) Load(address string, fresh, keeping int) *Load {
	p := &Load{began: time.Now(), bodies: map[string]int{}}
	p.Load = load.New(p.seen.Add)
	sender := func(keep int) *load.Sender {
		dial := func(ctx context.Context) (net.Conn, error) { return l.DialContext(ctx, "tcp", address) }
		return &load.Sender{Dial: dial, Ask: load.Get("http://lab/", p.answered), Keep: keep, Timeout: patience}
	}
	p.Loop(sender(0), fresh, 0, nil)
	p.Loop(sender(keeping), keeping, 0, nil)
	l.t.Cleanup(p.Load.Stop)
	return p
}

// Stop stops the clients after their current requests. It returns the number of 200 answers, one line for each failure, and the count
// of each body.
func (p *Load) Stop() (requests int, failures []string, bodies map[string]int) {
	p.Load.Stop()
	for _, a := range p.seen.Attempts() {
		if a.Lost == nil {
			requests++
			continue
		}
		failures = append(failures, fmt.Sprintf("%s %s (on a used connection: %v)", p.began.Add(a.End()).Format("15:04:05.000"), a.Lost.Text, a.Lost.Reused))
	}
	return requests, failures, p.bodies
}

// Requests returns the number of answered requests so far.
func (p *Load) Requests() int {
	lost, _ := p.seen.Attempts().Lost()
	return len(p.seen.Attempts()) - lost
}

func (p *Load) answered(answer *http.Response, body []byte) error {
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies[strings.TrimSpace(string(body))]++
	return nil
}
