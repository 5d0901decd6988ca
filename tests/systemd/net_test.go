package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// Get requests a URL from inside the lab over a new connection and returns the body of a 200.
func (l *Lab) Get(url string) (string, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn,
		error) {
		return l.Dial(address)(ctx)
	}, DisableKeepAlives: true}
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
	t      *testing.T
	began  time.Time
	seen   load.Collector
	mu     sync.Mutex
	bodies map[string]int
}

// Load starts clients of an HTTP server in the lab ("127.0.0.1:8080"): fresh ones open a connection for each request,
// keeping ones use theirs until the server announces its close. They never retry: every request without a 200 is a
// failure. They end with Stop, or with the test.
func (l *Lab) Load(address string, fresh, keeping int) *Load {
	p := &Load{t: l.t, began: time.Now(), bodies: map[string]int{}}
	p.Load = load.New(p.seen.Add)
	sender := func(keep int) *load.Driver {
		return &load.Driver{Dial: l.Dial(address), Ask: load.Get("http://lab/", p.answered), Keep: keep, Timeout: patience}
	}
	p.Loop(sender(0), fresh, 0, nil)
	p.Loop(sender(keeping), keeping, 0, nil)
	l.t.Cleanup(p.Load.Stop)
	return p
}

// Stop stops the clients after their current requests. It returns the number of 200 answers, one line for each failure,
// and the count of each body.
func (p *Load) Stop() (requests int, failures []string, bodies map[string]int) {
	p.Load.Stop()
	for _, a := range p.seen.Attempts() {
		if a.Lost == nil {
			requests++
			continue
		}
		failures = append(failures, fmt.Sprintf("%s %s (on a used connection: %v)",
			p.began.Add(a.End()).Format("15:04:05.000"), a.Lost.Text, a.Lost.Reused))
	}
	return requests, failures, p.bodies
}

// Lossless is Stop, and fails the test if a request has failed.
func (p *Load) Lossless() {
	p.t.Helper()
	requests, failures, _ := p.Stop()
	if len(failures) > 0 {
		p.t.Errorf("%d requests were answered and %d failed: %q", requests, len(failures), failures[:min(3, len(failures))])
	}
	p.t.Logf("%d requests", requests)
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
