package starter

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"supervisord/internal/pattern"
)

// listener is what one --port or --path asks for.
type listener struct {
	flag    string // as it was written
	address string // as supervisord writes it
	name    string // in SERVER_STARTER_PORT
	fd      string // at which the worker wants it; "": any
	path    bool
}

// The two forms of --port. Spaces are allowed where the reference allows them.
var (
	portAlone    = pattern.Lazy(`^\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
	portWithHost = pattern.Lazy(`^\s*(?:\[\s*)?([^\]]*?)\s*(?:\]\s*)?:\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
)

// parsePort reads a --port. A port alone is one of every IPv4 address, and no IPv6 address. The u of UDP is not part of the name.
func parsePort(spec string) (listener, error) {
	l := listener{flag: "--port=" + spec}
	network := func(u string) string {
		if u != "" {
			return "udp:"
		}
		return ""
	}
	if m := portAlone().FindStringSubmatch(spec); m != nil {
		l.address, l.name, l.fd = network(m[1])+"0.0.0.0:"+m[2], m[2], m[3]
		return l, nil
	}
	m := portWithHost().FindStringSubmatch(spec)
	if m == nil || m[1] == "" {
		return l, fmt.Errorf("invalid ``port'' value:%s: write PORT, HOST:PORT or [IPV6]:PORT, "+
			"with u before the port for UDP and =FD behind it for a descriptor of its own", spec)
	}
	host := m[1]
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	l.address, l.name, l.fd = network(m[2])+host+":"+m[3], host+":"+m[3], m[4]
	return l, nil
}

// parsePath reads a --path, which is relative to dir. The worker finds it under the name that was written.
func parsePath(path, dir string) (listener, error) {
	l := listener{flag: "--path=" + path, name: path, path: true}
	if strings.ContainsAny(path, ";=") {
		return l, errors.New(l.flag + ": the path cannot travel in SERVER_STARTER_PORT: leave out ';' and '='")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	l.address = "unix:" + path
	return l, nil
}

// toml is the listener's table.
func (l listener) toml(backlog int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n[[program.%s.listen]]\naddress = %s\nstarter_name = %s\n", program, quote(l.address), quote(l.name))
	if l.fd != "" {
		fmt.Fprintf(&b, "fd = %s\n", strings.TrimLeft(l.fd[:len(l.fd)-1], "0")+l.fd[len(l.fd)-1:])
	}
	if l.path {
		b.WriteString("mode = \"0777\"\n")
	}
	if backlog != 0 && !strings.HasPrefix(l.address, "udp:") {
		fmt.Fprintf(&b, "backlog = %d\n", backlog)
	}
	return b.String()
}
