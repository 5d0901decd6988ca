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
)

// Probes that do not say how often, and how long one try may take. A command may take as long as it likes.
const (
	defaultInterval = 200 * time.Millisecond
	shortestTry     = 5 * time.Second
)

// Check tells what is wrong with r, if anything: an unknown method, a URL or address that cannot be dialled.
// A probe must go to an address of that worker's own: a shared socket may be answered by another generation.
func (r Ready) Check() error {
	switch r.Method {
	case Notify, Delay, Accept, "":
		return nil
	case HTTP:
		_, _, err := splitURL(r.URL)
		return err
	case TCP:
		_, _, err := splitAddress(r.Address)
		return err
	case Exec:
		if len(r.Command) == 0 || r.Command[0] == "" {
			return errors.New("the command of the probe is missing")
		}
		return nil
	}
	return fmt.Errorf("unknown method %q: notify, accept, delay, http, tcp and exec are known", r.Method)
}

// splitURL gives the socket path ("" for TCP) and the URL to ask: "unix:/run/web.sock:/health" names both.
func splitURL(s string) (socket, target string, err error) {
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		path, query, found := strings.Cut(rest, ":/")
		if path == "" {
			return "", "", fmt.Errorf("the url %q names no socket: unix:/run/web.sock:/health would be right", s)
		}
		if !found {
			query = ""
		}
		return path, "http://localhost/" + query, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", "", err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", "", fmt.Errorf("the url %q is neither http://host:port/path nor unix:/run/web.sock:/path", s)
	}
	return "", s, nil
}

// splitAddress gives what net.Dial wants.
func splitAddress(s string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return "", "", fmt.Errorf("the address %q is neither host:port nor unix:/path", s)
	}
	return "tcp", s, nil
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
		Stdout: Output{Kind: Null}, Stderr: Output{Kind: Null}}
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

// getURL succeeds on 2xx and 3xx. Each try has a connection of its own, so that none is left behind, and no proxy.
func getURL(ctx context.Context, where string) error {
	socket, target, err := splitURL(where)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	client := &http.Client{
		Transport:     transport,
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
