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

// DialContext connects from inside the lab's network namespace. The address must be a number, not a name, so that the
// socket is made by the one thread that has joined the namespace; a socket stays in the namespace that it was made in.
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

// Get asks a URL from inside the lab, on a connection of its own, and returns the body of a 200.
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

// Load is a number of clients that ask one address as fast as they are answered.
type Load struct {
	*load.Load
	began  time.Time
	seen   load.Collector
	mu     sync.Mutex
	bodies map[string]int
}

// Load starts clients against an HTTP server inside ("127.0.0.1:8080"): fresh ones make a connection for each request,
// keeping ones use theirs until the server says that it closes it. They never send a request again: whatever a server does to a
// request that it had no reason to refuse is a failure. They end with Stop, or with the test.
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

// Stop ends the clients, each after the request that it is in, and returns how many requests were answered with 200, what
// went wrong, one line each, and how often each body came.
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

// Requests is how many requests have been answered so far.
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
