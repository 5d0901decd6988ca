package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
)

// Client sends requests to a supervisord. Its methods return an *APIError if supervisord refuses, ErrNotThere, ErrForbidden or ErrStranger (wrapped) if
// it cannot be asked at all, and ErrBroken (wrapped) if the connection broke before the answer was complete.
type Client struct {
	path    string // the usual one
	means   []string
	trusted []uint32 // users whose supervisord is asked, besides root's and the caller's
	http    *http.Client
}

// Errors of a Client.
var (
	ErrNotThere  = errors.New("supervisord does not answer")
	ErrForbidden = errors.New("not permitted")
	ErrStranger  = errors.New("another user answers in place of supervisord")
	ErrBroken    = errors.New("the connection to supervisord broke")
)

// NewClient returns a client for the first of these sockets that answers. It does not connect yet. The server must run as root,
// the caller, a user of Trust, or the owner of the socket's directory if no other user can have made that directory; otherwise the error is
// ErrStranger.
func NewClient(paths ...string) *Client {
	c := &Client{path: paths[len(paths)-1]}
	dial := func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		for _, path := range paths {
			if conn, err = connect(ctx, path); absent(err) {
				continue
			}
			if err == nil {
				if err = c.check(conn.(*net.UnixConn), path); err != nil {
					conn.Close() //nolint:errcheck // nothing was said
				}
			}
			break
		}
		return conn, err
	}
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1}}
	return c
}

// connect(2) fails with EAGAIN while the queue of the socket is full. The client tries again at this interval, for this long.
const (
	fullPause   = 10 * time.Millisecond
	fullTimeout = 10 * time.Second
)

func connect(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	last := time.Now().Add(fullTimeout)
	for {
		conn, err := d.DialContext(ctx, "unix", path)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(last) {
			return conn, err
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}

// Means makes the client ask only a supervisord that runs with this configuration file: any other refuses (OtherConfig).
func (c *Client) Means(config string) {
	if abs, err := filepath.Abs(config); err == nil {
		c.means = append(c.means, url.PathEscape(abs))
		if resolved, err := filepath.EvalSymlinks(abs); err == nil && resolved != abs {
			c.means = append(c.means, url.PathEscape(resolved))
		}
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the status of one program, or of all (""), with or without what the kernel has to be asked for.
func (c *Client) Status(ctx context.Context, name string, usage bool) (*supervisor.Status, error) {
	q := onlyProgram(name)
	if !usage {
		q.Set("usage", "no")
	}
	st := &supervisor.Status{}
	return st, c.call(ctx, "GET", "/v1/status", q, nil, st)
}

func onlyProgram(name string) url.Values {
	if name == "" {
		return url.Values{}
	}
	return url.Values{"program": {name}}
}

// Receipts asks for the last receipts of a program.
func (c *Client) Receipts(ctx context.Context, name string) (*ReceiptsAnswer, error) {
	a := &ReceiptsAnswer{}
	return a, c.call(ctx, "GET", programPath(name, "receipts"), nil, nil, a)
}

func programPath(name, verb string) string {
	return "/v1/programs/" + url.PathEscape(name) + "/" + verb
}

// Program requests an action on a program: start, stop, restart, scale, signal, abort, promote, kill.
func (c *Client) Program(ctx context.Context, name, verb string, body any) ([]supervisor.Ticket, error) {
	var a accepted
	err := c.call(ctx, "POST", programPath(name, verb), nil, body, &a)
	return a.Tickets, err
}

// Level changes the log level.
func (c *Client) Level(ctx context.Context, level string) error {
	return c.call(ctx, "PUT", "/v1/log-level", nil, levelBody{level}, &accepted{})
}

// Upgrade returns nil when the binary at supervisord's path has passed its pre-flight check and is about to take over.
func (c *Client) Upgrade(ctx context.Context) error {
	return c.call(ctx, "POST", "/v1/upgrade", nil, nil, &accepted{})
}

// Reload asks for a reload. With b.Wait it calls see for each line of the answer.
func (c *Client) Reload(ctx context.Context, b ReloadBody, see func(WaitLine)) error {
	if b.Wait {
		return stream(ctx, c, "POST", "/v1/reload", nil, b, see)
	}
	var a accepted
	err := c.call(ctx, "POST", "/v1/reload", nil, b, &a)
	if err == nil {
		see(WaitLine{Tickets: a.Tickets})
	}
	return err
}

// wait waits for what these tickets promise.
func (c *Client) wait(ctx context.Context, tickets []supervisor.Ticket, until string, timeout time.Duration, see func(WaitLine)) error {
	q := url.Values{"until": {until}, "timeout": {timeout.String()}}
	for _, t := range tickets {
		q.Add("ticket", fmt.Sprintf("%s:%d:%s", t.Program, t.Generation, t.Instance))
	}
	return stream(ctx, c, "GET", "/v1/wait", q, nil, see)
}

// Events follows what happens to a program, or to all ("").
func (c *Client) Events(ctx context.Context, name string, see func(supervisor.Update)) error {
	var end error
	err := stream(ctx, c, "GET", "/v1/events", onlyProgram(name), nil, func(e eventLine) {
		if e.APIError != nil {
			end = e.APIError
		} else if e.Update != nil {
			see(*e.Update)
		}
	})
	return errors.Join(end, err)
}

// Logs asks for the last n lines that the workers of a program wrote, and with follow for those that come.
func (c *Client) Logs(ctx context.Context, name string, n int, follow bool, see func(LogEntry)) error {
	q := url.Values{"lines": {strconv.Itoa(n)}}
	if follow {
		q.Set("follow", "yes")
	}
	return stream(ctx, c, "GET", programPath(name, "logs"), q, nil, see)
}

// call asks for one object.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, body, into any) error {
	answer, err := c.send(ctx, method, path, q, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

// stream asks for objects, one a line.
func stream[T any](ctx context.Context, c *Client, method, path string, q url.Values, body any, see func(T)) error {
	answer, err := c.send(ctx, method, path, q, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	for d := json.NewDecoder(answer.Body); ; {
		var line T
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		see(line)
	}
}

func (c *Client) send(ctx context.Context, method, path string, q url.Values, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://supervisord"+path, content)
	if err != nil {
		return nil, err
	}
	if c.means != nil {
		r.Header[configHeader] = c.means
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	e := &APIError{Status: answer.StatusCode, Code: Internal, What: answer.Status}
	json.NewDecoder(io.LimitReader(answer.Body, maxBody)).Decode(e) //nolint:errcheck // the status says enough
	return nil, e
}

// failure says why there was no answer.
func (c *Client) failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: user %d cannot use the socket %s: ask as root, as the user of supervisord, or as a member of control_group",
			ErrForbidden, os.Geteuid(), c.path)
	case absent(err):
		return fmt.Errorf("%w at %s: check that it runs, and that its configuration names this socket", ErrNotThere, c.path)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, ErrStranger) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}
