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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
)

// Client asks a supervisord. Its methods return a *Problem when it answers that it will not, ErrNotThere or ErrForbidden when
// it cannot be asked at all, and ErrBroken when the connection broke before the answer was complete.
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

// NewClient returns a client for the socket at the first of these paths where somebody answers. Nothing is connected yet. Who
// answers must be root, the caller, a user of Trust, or the owner of the socket's folder if nobody else can have made that folder;
// otherwise the error is ErrStranger.
func NewClient(paths ...string) *Client {
	c := &Client{path: paths[len(paths)-1]}
	dial := func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		for _, path := range paths {
			if conn, err = connect(ctx, path); !absent(err) {
				if err == nil {
					err = c.known(conn.(*net.UnixConn), path)
				}
				break
			}
		}
		if err != nil && conn != nil {
			conn.Close() //nolint:errcheck // nothing was said
			return nil, err
		}
		return conn, err
	}
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1}}
	return c
}

// While the queue of the socket is full, connect(2) fails with EAGAIN. The client tries again so often, for so long.
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

// Means makes the client ask only a supervisord that runs with this configuration file: any other one refuses (OtherConfig).
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

// Status asks how things are, for one program or for all ("").
func (c *Client) Status(ctx context.Context, program string, usage bool) (*Status, error) {
	q := url.Values{}
	if program != "" {
		q.Set("program", program)
	}
	if !usage {
		q.Set("usage", "no")
	}
	st := &Status{}
	return st, c.call(ctx, "GET", "/v1/status", q, nil, st)
}

// Receipts asks for the last receipts of a program.
func (c *Client) Receipts(ctx context.Context, program string) (*ReceiptsAnswer, error) {
	a := &ReceiptsAnswer{}
	return a, c.call(ctx, "GET", "/v1/programs/"+url.PathEscape(program)+"/receipts", nil, nil, a)
}

// Program asks for something to happen to a program: start, stop, restart, scale, signal, abort, promote, kill.
func (c *Client) Program(ctx context.Context, program, verb string, body any) ([]supervisor.Ticket, error) {
	var a Accepted
	err := c.call(ctx, "POST", "/v1/programs/"+url.PathEscape(program)+"/"+verb, nil, body, &a)
	return a.Tickets, err
}

// Level changes the log level.
func (c *Client) Level(ctx context.Context, level string) error {
	return c.call(ctx, "PUT", "/v1/log-level", nil, LevelBody{level}, &Accepted{})
}

// Upgrade has the binary at supervisord's path tried. When it returns nil that has passed, and is about to take over.
func (c *Client) Upgrade(ctx context.Context) error {
	return c.call(ctx, "POST", "/v1/upgrade", nil, nil, &Accepted{})
}

// Reload asks for a reload. With b.Wait see is called for each line, up to its end.
func (c *Client) Reload(ctx context.Context, b ReloadBody, see func(Line)) error {
	if !b.Wait {
		var a Accepted
		if err := c.call(ctx, "POST", "/v1/reload", nil, b, &a); err != nil {
			return err
		}
		see(Line{Tickets: a.Tickets})
		return nil
	}
	return stream(ctx, c, "POST", "/v1/reload", nil, b, see)
}

// Wait waits for what these tickets are for. A ticket is "program:generation" or "program:generation:instance".
func (c *Client) Wait(ctx context.Context, tickets []string, until, timeout string, see func(Line)) error {
	return stream(ctx, c, "GET", "/v1/wait", url.Values{"ticket": tickets, "until": {until}, "timeout": {timeout}}, nil, see)
}

// Events follows what happens to a program, or to all ("").
func (c *Client) Events(ctx context.Context, program string, see func(supervisor.Update)) error {
	q := url.Values{}
	if program != "" {
		q.Set("program", program)
	}
	var end error
	err := stream(ctx, c, "GET", "/v1/events", q, nil, func(e Event) {
		if e.Problem != nil {
			end = e.Problem
		} else if e.Update != nil {
			see(*e.Update)
		}
	})
	return errors.Join(end, err)
}

// Logs asks for the last n lines that the workers of a program wrote, and for those that follow.
func (c *Client) Logs(ctx context.Context, program string, n int, follow bool, see func(LogEntry)) error {
	q := url.Values{"lines": {strconv.Itoa(n)}}
	if follow {
		q.Set("follow", "yes")
	}
	return stream(ctx, c, "GET", "/v1/programs/"+url.PathEscape(program)+"/logs", q, nil, see)
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
	d := json.NewDecoder(answer.Body)
	for {
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
	where := "http://supervisord" + path
	if len(q) > 0 {
		where += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, where, content)
	if err != nil {
		return nil, err
	}
	if c.means != nil {
		r.Header[ConfigHeader] = c.means
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	p := &Problem{Status: answer.StatusCode, Code: Internal, What: answer.Status}
	json.NewDecoder(io.LimitReader(answer.Body, maxBody)).Decode(p) //nolint:errcheck // the status says enough
	return nil, p
}

// failure says why there was no answer.
func (c *Client) failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the socket %s is not for user %d: ask as root, as the user of supervisord, or as a member of control_group",
			ErrForbidden, c.path, os.Geteuid())
	case absent(err):
		return fmt.Errorf("%w at %s: is it running, and is this the socket that its configuration names?", ErrNotThere, c.path)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, ErrStranger) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrBroken, strings.TrimSpace(err.Error()))
}
