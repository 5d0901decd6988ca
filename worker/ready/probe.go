package ready

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	defaultInterval = 200 * time.Millisecond
	shortestTry     = 5 * time.Second // the least time that one try by HTTP or TCP gets; a command may take as long as it likes
)

// Probe returns a function that asks the worker once, and returns why it seems not to be ready. The method must be HTTP, TCP or Exec.
// run executes the command of Exec and returns an error unless it exits with status 0.
func (c Check) Probe(pid int, run func(ctx context.Context, command []string) error) func(context.Context) error {
	fill := func(s string) string { return strings.ReplaceAll(s, "{pid}", strconv.Itoa(pid)) }
	bounded := func(try func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, max(shortestTry, c.Interval))
			defer cancel()
			return try(ctx)
		}
	}
	switch c.Method {
	case HTTP:
		return bounded(func(ctx context.Context) error { return getURL(ctx, fill(c.URL)) })
	case TCP:
		return bounded(func(ctx context.Context) error { return dial(ctx, fill(c.Address)) })
	}
	var command []string
	for _, arg := range c.Command {
		command = append(command, fill(arg))
	}
	return func(ctx context.Context) error { return run(ctx, command) }
}

// Await probes every interval until the probe succeeds (true) or ctx ends (false).
func Await(ctx context.Context, interval time.Duration, probe func(context.Context) error) bool {
	if interval <= 0 {
		interval = defaultInterval
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-pause.C:
		}
		if probe(ctx) == nil {
			return ctx.Err() == nil
		}
		pause.Reset(interval)
	}
}

func dial(ctx context.Context, address string) error {
	network, address, err := splitAddress(address)
	if err != nil {
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return c.Close()
}

// getURL succeeds on 2xx and 3xx. Each try has its own connection, without a proxy. When it returns, no connection is left, not even
// one that was still being made: net/http would go on with that after the request has ended.
func getURL(ctx context.Context, where string) error {
	socket, target, err := splitURL(where)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
				return dialFor(ctx, network, address, socket)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "supervisord-probe")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	io.CopyN(io.Discard, answer.Body, 64<<10) // an answer that is cut off would be an error in the worker's log
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return fmt.Errorf("%s answered %s", where, answer.Status)
	}
	return nil
}

// dialFor makes a connection, to the unix socket if there is one, and closes the connection when ctx ends.
func dialFor(ctx context.Context, network, address, socket string) (net.Conn, error) {
	if socket != "" {
		network, address = "unix", socket
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return c, nil
}
