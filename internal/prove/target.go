package prove

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/socket"
)

// probeTimeout is how long the first request may take: the workers of a child may still be starting.
const probeTimeout = 30 * time.Second

// silence is how long a listener that does not speak HTTP may take to show that, or to answer a FIN.
const silence = 2 * time.Second

// endpoint receives the load.
type endpoint struct {
	network string   // tcp or unix
	address string   // for net.Dial
	url     *url.URL // of every request; its host is a made-up one for a unix socket
	secure  bool     // TLS
	guessed bool     // it was not given: it may speak no HTTP
	bare    bool     // it speaks no HTTP
	patient bool     // bare: it answers a FIN
}

func (t *endpoint) String() string {
	switch {
	case t.bare:
		return t.network + " " + t.address
	case t.network == "unix":
		return "unix:" + t.address + " " + t.url.RequestURI()
	}
	return t.url.String()
}

func (t *endpoint) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	plain, err := d.DialContext(ctx, t.network, t.address)
	if err != nil || !t.secure {
		return plain, err
	}
	private := tls.Client(plain, &tls.Config{ServerName: t.url.Hostname(), NextProtos: []string{"http/1.1"}})
	if err := private.HandshakeContext(ctx); err != nil {
		plain.Close() //nolint:errcheck // nothing was sent
		return nil, err
	}
	return private, nil
}

// targets returns the candidates: the URL if it is a whole one, otherwise the program's own stream listeners with the
// URL's path.
func targets(p *config.Program, raw string) ([]*endpoint, error) {
	if raw != "" && raw[0] != '/' {
		t, err := remote(raw)
		return []*endpoint{t}, err
	}
	path, err := url.ParseRequestURI("/")
	if raw != "" {
		path, err = url.ParseRequestURI(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("--url %q: %w; write a path such as /healthz, or a whole URL", raw, err)
	}
	var found []*endpoint
	var problems []error
	for _, spec := range p.Listen {
		t, err := own(spec, *path)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		t.guessed = raw == ""
		found = append(found, t)
	}
	if len(found) == 0 && len(problems) == 0 {
		return nil, fmt.Errorf("program %s has no listener to put load on: give --url if it listens by itself", p.Name)
	}
	if len(found) == 0 {
		return nil, errors.Join(problems...)
	}
	return found, nil
}

// remote is a target that --url names by its whole URL.
func remote(raw string) (*endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--url %q is neither a whole URL nor a path: write for example "+
			"http://127.0.0.1:8080/healthz, or /healthz for the program's own listener", raw)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	u.Fragment = ""
	return &endpoint{network: "tcp", address: net.JoinHostPort(u.Hostname(), port), url: u,
		secure: u.Scheme == "https"}, nil
}

// own is the target behind a listener of the configuration. Without a whole URL, only this machine gets load.
func own(spec socket.Spec, path url.URL) (*endpoint, error) {
	path.Scheme = "http"
	if spec.Address.IsUDP() {
		return nil, fmt.Errorf("listener %q is UDP: only stream sockets can be proved", spec.Name)
	}
	if spec.Address.IsUnix() {
		path.Host = "localhost"
		return &endpoint{network: "unix", address: spec.Address.Path, url: &path}, nil
	}
	if spec.Address.Port == 0 {
		return nil, fmt.Errorf("the kernel chooses the port of listener %q: give it a port, or name the address with --url",
			spec.Name)
	}
	host, err := loopback(spec.Address.Host)
	if err != nil {
		return nil, fmt.Errorf("listener %q is at %s, which is %w: to put load on it anyway, use --url http://%s/", spec.Name,
			spec.Address, err, spec.Address)
	}
	path.Host = net.JoinHostPort(host, strconv.Itoa(int(spec.Address.Port)))
	return &endpoint{network: "tcp", address: path.Host, url: &path}, nil
}

// loopback returns the address at which this machine reaches a listener on host without leaving itself.
func loopback(host string) (string, error) {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || host == "localhost":
		return "127.0.0.1", nil
	case err != nil:
		return "", errors.New("a name that may belong to another machine")
	case ip.IsUnspecified() && ip.Is4():
		return "127.0.0.1", nil
	case ip.IsUnspecified():
		return "::1", nil
	case ip.IsLoopback():
		return host, nil
	}
	return "", errors.New("not a loopback address")
}

// choose returns the first target that answers by HTTP. It waits until a worker answers.
func choose(ctx context.Context, all []*endpoint) (*endpoint, error) {
	var first error
	for _, t := range all {
		err := t.probe(ctx)
		if err == nil {
			return t, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if t := all[0]; t.guessed && errors.Is(first, errNoHTTP) {
		t.bare = true
		t.patient = t.probeFarewell(ctx) == nil
		return t, nil
	}
	return nil, first
}

var errNoHTTP = errors.New("it does not speak HTTP")

// probe sends one request, whose answer must not be an error.
func (t *endpoint) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	plain, err := t.dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w%s", t, err, t.advice(err))
	}
	defer plain.Close()
	defer context.AfterFunc(ctx, func() { plain.Close() })()
	r := &http.Request{Method: http.MethodGet, URL: t.url, Host: t.url.Host, Header: http.Header{}}
	timeout := probeTimeout
	if t.guessed {
		timeout = silence
	}
	plain.SetDeadline(time.Now().Add(timeout)) //nolint:errcheck // then the request fails, too
	answer, err := load.Exchange(load.NewWire(plain), r, true, io.Discard)
	if err != nil {
		return fmt.Errorf("%w: GET %s: %w; use --url if another address does", errNoHTTP, t, err)
	}
	if answer.StatusCode >= 400 {
		return fmt.Errorf("GET %s answers %q before anything was reloaded: name a path that works, for example --url "+
			"/healthz%s", t, answer.Status, t.hint(answer))
	}
	return nil
}

// advice is what to do when no connection can be made.
func (t *endpoint) advice(err error) string {
	var unknown *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return "; set SSL_CERT_FILE to the certificate of its authority"
	case t.guessed:
		return ""
	}
	return "; check --url"
}

// hint recognises a TLS server that was spoken to in the clear.
func (t *endpoint) hint(answer *http.Response) string {
	if answer.StatusCode == http.StatusBadRequest && !t.secure {
		return " (if it speaks TLS: --url https://…)"
	}
	return ""
}

// probeFarewell finds out whether a listener without HTTP answers a FIN with its own.
func (t *endpoint) probeFarewell(ctx context.Context) error {
	plain, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer plain.Close()
	plain.SetDeadline(time.Now().Add(silence)) //nolint:errcheck // then the farewell fails, too
	_, err = load.Farewell(load.NewWire(plain), true)
	return err
}

// round is how long a keep-alive connection is idle between two requests, about: far less than any server's idle
// timeout.
const round = 200 * time.Millisecond

// mostKept bounds the connections that are kept.
const mostKept = 200

// kept is how many connections the load keeps, and uses again and again.
func (t *endpoint) kept(o Plan) int {
	if t.patient || t.bare {
		return 0
	}
	return min(mostKept, 1+int(float64(o.Rate-o.Rate/2)*round.Seconds()))
}

// press puts the load on the target. With HTTP, half of the requests come on new connections.
func (t *endpoint) press(o Plan, each func(load.Attempt)) *load.Load {
	l := load.New(each)
	sender := func(keep int, ask load.Ask) *load.Driver {
		return &load.Driver{Dial: t.dial, Ask: ask, Keep: keep, Timeout: o.Timeout,
			RoundTrip: max(o.RoundTrip, time.Nanosecond)}
	}
	switch half := o.Rate / 2; {
	case t.patient:
		l.Rate(sender(0, load.Farewell), o.Rate)
	case t.bare:
		l.Rate(sender(0, load.Bare), o.Rate)
	default:
		get := load.HTTP(&http.Request{Method: http.MethodGet, URL: t.url, Host: t.url.Host, Header: http.Header{}}, nil)
		l.Rate(sender(t.kept(o), get), o.Rate-half)
		l.Rate(sender(0, get), half)
	}
	return l
}
