package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/supervisord/worker/output"
)

// Probes that do not say how often, and how long one try may take. A command may take as long as it likes.
const (
	defaultInterval = 200 * time.Millisecond
	shortestTry     = 5 * time.Second
)

// Target tells where the probe of r goes: network and address as net.Dial wants them, "tcp" and host:port or "unix" and a path. Both are
// empty for a method that connects to nothing. An error says how a URL or address that is wrong has to look. Placeholders must be filled in.
// A probe must go to an address of that worker's own: a shared socket may be answered by another generation.
func (r Ready) Target() (network, address string, err error) {
	switch r.Method {
	case TCP:
		return splitAddress(r.Address)
	case HTTP:
		socket, target, err := splitURL(r.URL)
		if err != nil {
			return "", "", err
		}
		if socket != "" {
			return "unix", socket, nil
		}
		return "tcp", hostAndPort(target), nil
	}
	return "", "", nil
}

// splitURL gives the socket path ("" for TCP) and the URL to ask: "unix:/run/web.sock:/health" names both.
func splitURL(s string) (socket, target string, err error) {
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		path, query, _ := strings.Cut(rest, ":/")
		if err := checkPath(path); err != nil {
			return "", "", fmt.Errorf("%q %w", s, err)
		}
		return path, "http://localhost/" + query, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", "", fmt.Errorf("%q is neither http://host:port/path nor unix:/path/of/socket:/path", s)
	}
	return "", s, nil
}

// hostAndPort is where an http or https URL leads to.
func hostAndPort(target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return ""
	case u.Port() != "":
		return u.Host
	case u.Scheme == "https":
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// splitAddress gives what net.Dial wants.
func splitAddress(s string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if err := checkPath(path); err != nil {
			return "", "", fmt.Errorf("%q %w", s, err)
		}
		return "unix", path, nil
	}
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return "", "", fmt.Errorf("%q is neither host:port nor unix:/path/of/socket", s)
	}
	return "tcp", s, nil
}

// checkPath tells what is wrong with the address of a unix socket: a path, or a name after "@" (unix(7)).
func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") && (!strings.HasPrefix(path, "@") || path == "@"):
		return errors.New("must name a socket by an absolute path, as unix:/run/web.sock does, or by @name")
	case len(path) > maxSocketPath:
		return fmt.Errorf("has a path of %d bytes: at most %d fit into a socket's address", len(path), maxSocketPath)
	}
	return nil
}

// awaitReady begins what the method asks for. w.mu is held, and the command runs.
func (w *Worker) awaitReady() {
	r := &w.spec.Ready
	if w.process.ended || w.ready.said || w.mute {
		return
	}
	switch r.Method {
	case Delay, "":
		if r.Delay <= 0 {
			w.sayReady()
			return
		}
		w.ready.delay = time.AfterFunc(r.Delay, func() { w.locked(w.sayReady)(0) })
	case Accept:
		ctx, cancel := context.WithCancel(context.Background())
		w.ready.cancel = cancel
		pid, group := w.process.pid, w.process.group
		w.side.Go(func() { w.awaitAccept(ctx, pid, group) })
	case HTTP, TCP, Exec:
		ctx, cancel := context.WithCancel(context.Background())
		w.ready.cancel = cancel
		try := w.probe(*r, w.process.pid)
		w.side.Go(func() {
			if probe(ctx, r.Interval, try) {
				w.locked(w.sayReady)(0)
			}
		})
	}
}

// sayReady posts ReadySaid, once. w.mu is held.
func (w *Worker) sayReady() {
	if w.ready.said || !w.process.running || w.process.ended && w.spec.Ready.Method != Notify {
		return
	}
	w.ready.said = true
	w.events.put(ReadySaid{})
}

// stopReady ends the wait. w.mu is held.
func (w *Worker) stopReady() {
	if w.ready.delay != nil {
		w.ready.delay.Stop()
	}
	if w.ready.cancel != nil {
		w.ready.cancel()
	}
}

// endsProbe: a worker that was asked to go need not be asked whether it is ready.
func (w *Worker) endsProbe(sig syscall.Signal) {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL:
		if w.ready.cancel != nil {
			w.ready.cancel()
		}
	}
}

// probe tries until it succeeds (true) or ctx ends.
func probe(ctx context.Context, interval time.Duration, try func(context.Context) error) bool {
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
		if try(ctx) == nil {
			return ctx.Err() == nil
		}
		pause.Reset(interval)
	}
}

// Probe asks the worker once, as r says, and returns why it does not seem to be well. r must have the method HTTP, TCP or Exec.
// How long it may take is for ctx to say.
func (w *Worker) Probe(ctx context.Context, r Ready) error {
	w.mu.Lock()
	pid, there := w.process.pid, w.process.running && !w.process.ended
	w.mu.Unlock()
	if !there {
		return errors.New("it does not run")
	}
	err := w.probe(r, pid)(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// probe is one try of a method.
func (w *Worker) probe(r Ready, pid int) func(context.Context) error {
	fill := func(s string) string { return strings.ReplaceAll(s, "{pid}", strconv.Itoa(pid)) }
	bounded := func(try func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, max(shortestTry, r.Interval))
			defer cancel()
			return try(ctx)
		}
	}
	switch r.Method {
	case HTTP:
		return bounded(func(ctx context.Context) error { return getURL(ctx, fill(r.URL)) })
	case TCP:
		return bounded(func(ctx context.Context) error { return dial(ctx, fill(r.Address)) })
	}
	spec := w.probeSpec()
	for _, arg := range r.Command {
		spec.Command = append(spec.Command, fill(arg))
	}
	return func(ctx context.Context) error { return w.launcher.Run(ctx, spec) }
}

// probeSpec is a command with the worker's rights, without its sockets.
func (w *Worker) probeSpec() Spec {
	return Spec{Directory: w.spec.Directory, Environment: w.spec.Environment, Credential: w.spec.Credential, Limits: w.spec.Limits,
		Stdout: output.Destination{Kind: output.Null}, Stderr: output.Destination{Kind: output.Null}}
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

// getURL succeeds on 2xx and 3xx. Each try has a connection of its own and no proxy. When it returns, no connection is left, not even
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

// dialFor makes a connection, to a unix socket if there is one, which is closed when ctx ends.
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
