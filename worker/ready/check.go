// Package ready finds out whether a worker is ready: by probes, by what the kernel shows (accept), and by what the
// worker says in the protocol of sd_notify(3). It also owns the directory in which the workers' notify sockets live.
//
// What accept reads of a process, all in /proc and without stopping the process:
//
//	fd               which of its descriptors are our sockets, epoll sets, or connections (proc_pid_fd(5))
//	fdinfo           what an epoll set watches: the inodes (Linux 4.13)
//	task/TID/syscall where each thread waits, and for which descriptors (the rights of ptrace(2))
//	mem              the arrays of poll(2) and select(2) (likewise)
//
// and from sock_diag(7), which of the connections were accepted from our sockets. io_uring hides what it waits for, and
// programs of another machine number their calls otherwise: for those a connection of our own finds out.
package ready

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Method is a way to find out that a worker is ready.
type Method string

// The readiness methods.
const (
	Notify Method = "notify" // READY=1 on NOTIFY_SOCKET, or a newline on NOTIFY_FD
	Delay  Method = "delay"  // the worker has run for Check.Delay
	HTTP   Method = "http"   // GET Check.URL answers with a status that counts
	TCP    Method = "tcp"    // Check.Address accepts a connection
	Exec   Method = "exec"   // Check.Command exits with status 0
	Accept Method = "accept" // the kernel shows that the worker's processes wait on each of its sockets
)

// Probes are the methods that ask repeatedly.
var Probes = []Method{HTTP, TCP, Exec}

// Key is a part of a Check that other methods than these ignore, by its name in a configuration.
type Key struct {
	Name     string
	Methods  []Method
	Required bool // it has no default
}

// Keys are those parts. The others are for every method.
var Keys = []Key{
	{"fd", []Method{Notify}, false},
	{"delay", []Method{Delay}, false},
	{"interval", Probes, false},
	{"url", []Method{HTTP}, true},
	{"headers", []Method{HTTP}, false},
	{"status", []Method{HTTP}, false},
	{"address", []Method{TCP}, true},
	{"command", []Method{Exec}, true},
}

// Check says how to find out that a worker is ready, or still well. In URL, Address and Command {pid} stands for the
// worker's PID; {slot} and {generation} must be filled in before. The supervisor keeps the timeout.
type Check struct {
	Method Method
	Delay  time.Duration
	// of Accept: where the kernel may not be looked into, a worker is ready after this time; 0: never
	Fallback time.Duration
	Listener string // URL or Address has "{listener:NAME}" as its host and port: the listener's name; "": none
	URL      string
	Address  string
	Headers  map[string]string // of the request for URL
	Status   []StatusRange     // of the answers that count; none: Success
	Command  []string
	Interval time.Duration // between probes; 0: 200 ms
	// the worker's number of NOTIFY_FD, from 3; 0: any. A worker that is told no number may rely on it
	FD int

	// Believed says that a worker which any other method than Accept finds ready is ready. Otherwise it is ready when
	// somebody accepts from each of its sockets, too, or receives if that is one for datagrams: see Accepting.
	Believed bool
}

// StatusRange is the statuses of HTTP from First to Last.
type StatusRange struct{ First, Last int }

// Success is what counts by default.
var Success = StatusRange{200, 399}

// counts reports whether an answer with this status is a success.
func (c Check) counts(status int) bool {
	within := func(r StatusRange) bool { return r.First <= status && status <= r.Last }
	return slices.ContainsFunc(c.Status, within) || len(c.Status) == 0 && within(Success)
}

// Target returns where a probe connects to: network and address as net.Dial wants them, "tcp" and host:port or "unix"
// and a path. Both are empty for a method that connects to nothing. The error says how a wrong URL or address must
// look. {pid} must be filled in.
//
// A probe must go to an address of that worker's own: a shared socket may be answered by another generation. The target
// of a probe on a Listener is known to the supervisor alone, so it has neither network nor address.
func (c Check) Target() (network, address string, err error) {
	if c.Listener != "" {
		return "", "", c.checkListener()
	}
	switch c.Method {
	case TCP:
		return splitAddress(c.Address)
	case HTTP:
		socket, target, err := splitURL(c.URL)
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

// placeholder stands for host and port in URL or Address if Listener is set.
func (c Check) placeholder() string { return "{listener:" + c.Listener + "}" }

// asked returns the URL to ask of a probe on a Listener.
func (c Check) asked() string { return strings.Replace(c.URL, c.placeholder(), "localhost", 1) }

// checkListener says what is wrong with the URL or Address of a probe on a Listener.
func (c Check) checkListener() error {
	switch c.Method {
	case TCP:
		if c.Address != c.placeholder() {
			return fmt.Errorf("%q must be %q alone", c.Address, c.placeholder())
		}
	case HTTP:
		for _, scheme := range []string{"http://", "https://"} {
			path, found := strings.CutPrefix(c.URL, scheme+c.placeholder())
			if _, err := url.Parse(c.asked()); found && err == nil && (path == "" || path[0] == '/' || path[0] == '?') {
				return nil
			}
		}
		return fmt.Errorf("%q must be such as %q", c.URL, "http://"+c.placeholder()+"/healthz")
	}
	return nil
}

// splitURL returns the URL to ask, and the path of the unix socket to connect to ("": by TCP).
// "unix:/run/web.sock:/health" names both.
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

// hostAndPort returns where an http or https URL leads to.
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

// splitAddress returns what net.Dial wants.
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

// checkPath says what is wrong with the address of a unix socket: it must be a path, or a name after "@" (unix(7)).
func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") && (!strings.HasPrefix(path, "@") || path == "@"):
		return errors.New("must name a socket by an absolute path, as unix:/run/web.sock does, or by @name")
	case len(path) > maxSocketPath:
		return fmt.Errorf("has a path of %d bytes: at most %d fit into a socket's address", len(path), maxSocketPath)
	}
	return nil
}
