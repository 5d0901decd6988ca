package ready

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/socket/diag"
)

const (
	defaultInterval = 200 * time.Millisecond
	acceptLast      = 50 * time.Millisecond // the longest pause between two looks whether a connection was accepted
	// the least time that one try by HTTP or TCP gets; a command may take as long as it likes
	shortestTry = 5 * time.Second
)

// Asked is the worker that a probe asks.
type Asked struct {
	PID int
	// executes the command of Exec; an error unless it exits with status 0
	Run func(ctx context.Context, command []string) error

	// Dial connects to the socket that this worker has of a listener (Check.Listener), so that no other generation
	// answers. nil: a probe on a listener fails. A *Unreachable error says that no other try can succeed either.
	Dial func(ctx context.Context, listener string) (net.Conn, error)
}

// Unreachable is the error of a probe that can never reach its worker.
type Unreachable struct{ Err error }

func (e *Unreachable) Error() string { return e.Err.Error() }
func (e *Unreachable) Unwrap() error { return e.Err }

// connect connects to the target of a probe.
func (c Check) connect(ctx context.Context, of Asked) (net.Conn, error) {
	switch {
	case c.Listener != "" && of.Dial == nil:
		return nil, &Unreachable{fmt.Errorf("cannot connect to the listener %q", c.Listener)}
	case c.Listener != "":
		return of.Dial(ctx, c.Listener)
	}
	network, address, err := c.Target()
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// Probe returns a function that asks the worker once, and returns why it seems not to be ready. The method must be
// HTTP, TCP or Exec.
func (c Check) Probe(of Asked) func(context.Context) error {
	c = c.filledIn(of.PID)
	bounded := func(try func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			longest := max(shortestTry, c.Interval)
			ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("no answer within %s", longest))
			defer cancel()
			return try(ctx)
		}
	}
	switch c.Method {
	case HTTP:
		return bounded(func(ctx context.Context) error { return c.cause(c.get(ctx, of)) })
	case TCP:
		return bounded(func(ctx context.Context) error { return c.cause(c.open(ctx, of)) })
	}
	return func(ctx context.Context) error { return of.Run(ctx, c.Command) }
}

// filledIn returns c with the PID of the worker in place of {pid}.
func (c Check) filledIn(pid int) Check {
	fill := strings.NewReplacer("{pid}", strconv.Itoa(pid))
	c.URL, c.Address, c.Command = fill.Replace(c.URL), fill.Replace(c.Address), slices.Clone(c.Command)
	for i, arg := range c.Command {
		c.Command[i] = fill.Replace(arg)
	}
	return c
}

// Asks is what the probe of a worker asks, for people.
func (c Check) Asks(pid int) string {
	c = c.filledIn(pid)
	return cmp.Or(c.URL, c.Address, strings.Join(c.Command, " "))
}

// refusal is an answer that does not count.
type refusal struct{ status string }

func (r *refusal) Error() string { return "answered " + r.status }

// cause says what was asked, and why that failed, without repeating the address.
func (c Check) cause(err error) error {
	if get, is := errors.AsType[*url.Error](err); is {
		err = get.Err
	}
	if op, is := err.(*net.OpError); is {
		err = op.Err
	}
	if _, answered := err.(*refusal); answered {
		return fmt.Errorf("%s%s %w", c.URL, c.Address, err)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%s: %w", c.URL, c.Address, err)
}

// Await probes every interval until the probe succeeds: then it returns nil. It returns the cause of ctx when ctx ends,
// and an *Unreachable error at once.
func Await(ctx context.Context, interval time.Duration, probe func(context.Context) error) error {
	if interval <= 0 {
		interval = defaultInterval
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
		err := probe(ctx)
		if _, never := errors.AsType[*Unreachable](err); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err == nil || never {
			return err
		}
		pause.Reset(interval)
	}
}

// open succeeds when a connection is accepted.
func (c Check) open(ctx context.Context, of Asked) error {
	conn, err := c.connect(ctx, of)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Listener != "" {
		return awaitAccept(ctx, conn)
	}
	return nil
}

// awaitAccept waits until the worker has accepted the connection. The supervisor has the socket of a listener, too, so
// that the kernel makes connections to it even if there is no worker.
func awaitAccept(ctx context.Context, conn net.Conn) error {
	plain := conn
	if wrapped, is := conn.(interface{ NetConn() net.Conn }); is {
		plain = wrapped.NetConn()
	}
	for pause := time.Millisecond; ; pause = min(2*pause, acceptLast) {
		conn.SetReadDeadline(time.Now().Add(pause))
		switch _, err := conn.Read(make([]byte, 1)); {
		case err == nil, errors.Is(err, io.EOF): // it has said something, or hung up
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		accepted, err := diag.Accepted(plain)
		switch {
		case ctx.Err() != nil:
			return errors.New("the worker does not accept the connection")
		case accepted || err != nil:
			return err
		}
	}
}

// get succeeds on a status that counts. Each try has its own connection, without a proxy. When it returns, no
// connection is left, not even one that was still being made: net/http would continue with that after the request has
// ended.
func (c Check) get(ctx context.Context, of Asked) (err error) {
	target := c.asked()
	if c.Listener == "" {
		if _, target, err = splitURL(c.URL); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := &http.Client{
		Transport:     c.transport(ctx, of),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "supervisord-probe")
	for name, value := range c.Headers {
		if request.Header.Set(name, value); strings.EqualFold(name, "Host") {
			request.Host = value
		}
	}
	answer, err := client.Do(request)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // err may be only that its connection is closed
	}
	if err != nil {
		return err
	}
	io.CopyN(io.Discard, answer.Body, 64<<10) // an answer that is cut off would be an error in the worker's log
	answer.Body.Close()
	if !c.counts(answer.StatusCode) {
		return &refusal{answer.Status}
	}
	return nil
}

// transport makes connections that are closed when ctx ends.
func (c Check) transport(ctx context.Context, of Asked) *http.Transport {
	t := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			conn, err := c.connect(ctx, of)
			if err == nil {
				context.AfterFunc(ctx, func() { conn.Close() })
			}
			return conn, err
		},
	}
	if c.Listener != "" {
		// The certificate is for the name that clients use. There is nobody else behind the worker's own socket.
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	}
	return t
}
