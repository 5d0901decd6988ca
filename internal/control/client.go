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
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
)

// Client sends requests to a supervisord. The methods return an *APIError if supervisord refuses, ErrNotThere,
// ErrForbidden or ErrStranger (wrapped) if the Client cannot ask at all, and ErrBroken (wrapped) if the connection
// broke before the answer was complete.
type Client struct {
	path    string // of the last socket, for messages
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

// NewClient returns a client for the first of these sockets that answers. It does not connect yet. The server must run
// as root, the caller, a user of Trust, or the owner of the socket's directory if no other user can have made that
// directory; otherwise the error is ErrStranger.
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
	// a connection that was idle may end while a request is on its way: nobody could say whether it was carried out
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return c
}

// connect(2) fails with EAGAIN while the queue of the socket is full. The client tries again at this interval, for this
// long.
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

// Means makes the client ask only a supervisord that runs with this configuration file: any other refuses
// (OtherConfig).
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

// Status asks for the status of one program, or of all (""). usage adds the figures that only the kernel knows.
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

func programPath(name, verb string) string {
	return "/v1/programs/" + url.PathEscape(name) + "/" + verb
}

// Request is a change that a client asks for.
type Request struct {
	path string
	body any
}

// OfProgram is the request for an action on a program, such as start, stop, scale, promote, rollback.
func OfProgram(name, verb string, body any) Request { return Request{programPath(name, verb), body} }

// OfReload is the request for a reload.
func OfReload(b ReloadBody) Request { return Request{"/v1/reload", b} }

// Ask makes a request and returns when supervisord has accepted the request. Await also waits for the outcome.
func (c *Client) Ask(ctx context.Context, q Request) ([]supervisor.Ticket, error) {
	var a accepted
	err := c.call(ctx, "POST", q.path, nil, q.body, &a)
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

// Logs asks for the last n lines of a program's workers, and with follow for all later lines.
func (c *Client) Logs(ctx context.Context, name string, n int, follow bool, see func(LogEntry)) error {
	q := url.Values{"lines": {strconv.Itoa(n)}}
	if follow {
		q.Set("follow", "yes")
	}
	return stream(ctx, c, "GET", programPath(name, "logs"), q, nil, see)
}

// call asks for one object. It returns ErrUnknown (wrapped) if supervisord died before it answered a request for a
// change: supervisord may have made the change.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, body, into any) (err error) {
	defer func() {
		if method != "GET" && errors.Is(err, ErrBroken) {
			err = fmt.Errorf("%w (%w)", ErrUnknown, err)
		}
	}()
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
		return fmt.Errorf("%w: user %d cannot use the socket %s: ask as root, as the user of supervisord, or as a member "+
			"of control_group",
			ErrForbidden, os.Geteuid(), c.path)
	case absent(err):
		return fmt.Errorf("%w at %s: check that supervisord runs, and that this is its socket", ErrNotThere, c.path)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, ErrStranger) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// Errors of changes. A wait that ends by itself has a Verdict with the outcome Unknown or TimedOut instead.
var (
	ErrUnknown = errors.New("outcome unknown: look at `supervisord status` and the log")
	ErrLate    = errors.New("timed out waiting; the operation continues")
)

const (
	// lostTimeout is how long Await looks for a supervisord that has gone.
	lostTimeout = 30 * time.Second
	// retryInterval is the time between two attempts: there is no event for a supervisord that comes back.
	retryInterval = 100 * time.Millisecond
	// lateness is how much later than the server the client gives up.
	lateness = 5 * time.Second
)

// Await makes a request, waits for its end and returns the verdict. When the connection breaks, Await continues the
// wait, so the wait survives an upgrade or the death of the supervisord that was asked. Await repeats the request only
// if no supervisord is known to have accepted the request. Await calls see for each line. until is "serves", "drained",
// "held" or "down".
func (c *Client) Await(ctx context.Context, q Request, until Until, timeout time.Duration,
	see func(WaitLine)) (*Verdict, error) {
	a := &awaiting{Client: c, wait: &wait{until: until}, deadline: time.Now().Add(timeout), request: q, see: see}
	ctx, cancel := context.WithDeadlineCause(ctx, a.deadline.Add(lateness), ErrLate)
	defer cancel()
	err := Lasting(ctx, func(ctx context.Context) (bool, error) {
		err := a.ask(ctx)
		if err == nil || ctx.Err() == nil {
			a.gone = errors.Is(err, ErrNotThere)
		}
		return a.over(), err
	})
	switch {
	case a.over():
		return a.verdict(), nil
	case a.asked && a.gone:
		return nil, fmt.Errorf("%w (%w)", ErrUnknown, err)
	}
	return nil, err
}

// awaiting is one call of Await.
type awaiting struct {
	*Client
	*wait
	deadline time.Time
	request  Request
	see      func(WaitLine)
	asked    bool // a supervisord has got the request, or a part of it
	gone     bool // no supervisord answered the last attempt
}

// ask makes the request, or takes up the wait for it, and folds the lines until the stream ends.
func (a *awaiting) ask(ctx context.Context) (err error) {
	method, path, body := "POST", a.request.path, a.request.body
	q := url.Values{"until": {string(a.until)}, "timeout": {max(time.Second, time.Until(a.deadline)).String()}}
	if a.goals != nil {
		method, path, body = "GET", "/v1/wait", nil
		for _, g := range a.goals {
			q.Add("ticket", fmt.Sprintf("%s:%d:%s", g.Program, g.Generation, g.instance))
		}
	}
	err = stream(ctx, a.Client, method, path, q, body, func(l WaitLine) {
		a.asked = true
		a.fold(l)
		a.see(l)
	})
	a.asked = a.asked || errors.Is(err, ErrBroken)
	return err
}

// Lasting calls attempt until it is done, again after it has ended, because supervisord may be upgraded, or die and
// come back. Lasting gives up when no supervisord answers the first attempt, or later for lostTimeout, and when
// another attempt cannot help.
func Lasting(ctx context.Context, attempt func(context.Context) (done bool, err error)) error {
	var there time.Time // when supervisord answered last
	for {
		done, err := attempt(ctx)
		refused, _ := errors.AsType[*APIError](err)
		absent, before := errors.Is(err, ErrNotThere), !there.IsZero()
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, ErrBroken), refused != nil && refused.Code == Stopping && before:
			there = time.Now()
		case !absent || time.Since(there) > lostTimeout:
			return err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// switchTimeout is how long a new image may take until it answers.
const switchTimeout = 40 * time.Second

// AwaitImage waits until another image than the one with the status before answers, and returns the status of that
// image. The two differ in when they began; the new image seems to have begun earlier if somebody set the clock
// back. AwaitImage returns an error when the upgrade has failed. The kernel keeps a request that the old image has
// not accepted for the new image, so AwaitImage hardly ever needs more than two attempts.
func (c *Client) AwaitImage(ctx context.Context, before *supervisor.Status) (now *supervisor.Status, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, switchTimeout,
		errors.New("the upgraded supervisord does not answer: see the log"))
	defer cancel()
	err = Lasting(ctx, func(ctx context.Context) (bool, error) {
		now, err = c.Status(ctx, "", false)
		if err == nil && now.Upgrade != "" {
			return true, errors.New("upgrade failed: " + now.Upgrade)
		}
		return err == nil && !now.Started.Equal(before.Started), err
	})
	return now, err
}

// Trust makes the client also ask a supervisord that runs as the owner of this configuration file's directory: that
// user decides what the file says.
func (c *Client) Trust(config string) {
	dir, err := filepath.Abs(filepath.Dir(config))
	if err != nil {
		return
	}
	if info, err := os.Stat(dir); err == nil {
		c.trusted = append(c.trusted, ownerOf(info))
	}
}

// check returns an error wrapping ErrStranger if the process that listens at path cannot be trusted: a process that was
// there first, in /tmp for example, could answer that a reload went well.
func (c *Client) check(conn *net.UnixConn, path string) error {
	p, err := peerOf(conn)
	if err != nil {
		return err
	}
	own := uint32(os.Geteuid())
	if p.UID == 0 || p.UID == own || slices.Contains(c.trusted, p.UID) {
		return nil
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err == nil && ownerOf(info) == p.UID && isGiven(dir, own) {
		return nil
	}
	return fmt.Errorf("%w: process %d at %s runs as user %d, who is neither root nor you: find out who made the "+
		"socket; if the supervisord is theirs, ask as that user",
		ErrStranger, p.PID, path, p.UID)
}

// isGiven reports whether root or the user own has made dir, or has given it to its owner: no part of its path is in a
// directory where everybody may create files.
func isGiven(dir string, own uint32) bool {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for _, path := range []string{dir, resolved} {
		for ; path != filepath.Dir(path); path = filepath.Dir(path) {
			here, err := os.Lstat(path)
			above, bad := os.Stat(filepath.Dir(path))
			if err != nil || bad != nil {
				return false
			}
			if owner := ownerOf(here); above.Mode()&0o002 != 0 && owner != 0 && owner != own {
				return false
			}
		}
	}
	return true
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
