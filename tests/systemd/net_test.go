package systemd_test

import (
	"bufio"
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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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
	lab      *Lab
	address  string
	stop     context.CancelFunc
	clients  sync.WaitGroup
	requests atomic.Int64
	mu       sync.Mutex
	failures []string
	bodies   map[string]int
}

// Load starts clients against an HTTP server inside ("127.0.0.1:8080"): fresh ones make a connection for each request,
// keeping ones use theirs until the server says that it closes it. They never ask again: whatever a server does to a
// request that it had no reason to refuse is a failure. They end with Stop, or with the test.
func (l *Lab) Load(address string, fresh, keeping int) *Load {
	ctx, cancel := context.WithCancel(l.t.Context())
	load := &Load{lab: l, address: address, stop: cancel, bodies: map[string]int{}}
	for range fresh {
		load.clients.Go(func() { load.client(ctx, 1) })
	}
	for range keeping {
		load.clients.Go(func() { load.client(ctx, 1<<30) })
	}
	l.t.Cleanup(func() { load.Stop() })
	return load
}

// Stop ends the clients, each after the request that it is in, and says how many requests were answered with 200, what
// went wrong, one line each, and how often each body came.
func (load *Load) Stop() (requests int64, failures []string, bodies map[string]int) {
	load.stop()
	load.clients.Wait()
	return load.requests.Load(), load.failures, load.bodies
}

// Requests is how many requests have been answered so far.
func (load *Load) Requests() int64 { return load.requests.Load() }

// client makes connection after connection.
func (load *Load) client(ctx context.Context, perConnection int) {
	for ctx.Err() == nil {
		if err := load.converse(ctx, perConnection); err != nil {
			load.failed(err)
		}
	}
}

// converse uses one connection for at most so many requests. The context ends it between two, not in the middle of one.
func (load *Load) converse(ctx context.Context, requests int) error {
	dialing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	conn, err := load.lab.DialContext(dialing, "tcp", load.address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for n := 1; n <= requests && ctx.Err() == nil; n++ {
		conn.SetDeadline(time.Now().Add(patience))
		last, err := load.ask(conn, reader, requests == 1)
		if err != nil {
			return fmt.Errorf("request %d of its connection: %w", n, err)
		}
		if last {
			return nil
		}
	}
	return nil
}

// ask makes one request and says whether the server closes the connection after it.
func (load *Load) ask(conn net.Conn, reader *bufio.Reader, last bool) (closes bool, err error) {
	connection := "keep-alive"
	if last {
		connection = "close"
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: lab\r\nConnection: %s\r\n\r\n", connection); err != nil {
		return false, fmt.Errorf("write: %w", err)
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return false, fmt.Errorf("read body: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return false, errors.New(response.Status)
	}
	load.answered(string(body))
	return response.Close, nil
}

func (load *Load) answered(body string) {
	load.requests.Add(1)
	load.mu.Lock()
	defer load.mu.Unlock()
	load.bodies[strings.TrimSpace(body)]++
}

func (load *Load) failed(err error) {
	load.mu.Lock()
	defer load.mu.Unlock()
	load.failures = append(load.failures, time.Now().Format("15:04:05.000 ")+err.Error())
}
