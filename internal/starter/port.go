package starter

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/pattern"
)

// listener is what one --port or --path asks for.
type listener struct {
	Port
	flag string // as it was written
	path bool
}

// Port is what one --port asks for.
type Port struct {
	Address string // as supervisord writes it: "0.0.0.0:80", "udp:127.0.0.1:53", "[::1]:80"
	Name    string // under which a worker finds it in SERVER_STARTER_PORT
	FD      string // at which the worker wants it; "": any
}

// The two forms of --port. Spaces are allowed where the reference allows them.
var (
	portAlone    = pattern.Lazy(`^\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
	portWithHost = pattern.Lazy(`^\s*(?:\[\s*)?([^\]]*?)\s*(?:\]\s*)?:\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
)

// ParsePort reads a --port. A port alone is one of every IPv4 address, and no IPv6 address. The u of UDP is not part of the name.
func ParsePort(spec string) (Port, error) {
	host, name := "0.0.0.0", ""
	m := portAlone().FindStringSubmatch(spec)
	if m == nil {
		if m = portWithHost().FindStringSubmatch(spec); m == nil || m[1] == "" {
			return Port{}, fmt.Errorf("invalid ``port'' value:%s: write PORT, HOST:PORT or [IPV6]:PORT, "+
				"with u before the port for UDP and =FD behind it for a descriptor of its own", spec)
		}
		if host = m[1]; strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		name, m = host+":", m[1:]
	}
	p := Port{Address: host + ":" + unpadded(m[2]), Name: name + m[2], FD: unpadded(m[3])}
	if m[1] != "" {
		p.Address = "udp:" + p.Address
	}
	return p, nil
}

// unpadded is a number without zeros before it.
func unpadded(digits string) string {
	if len(digits) < 2 {
		return digits
	}
	return strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
}

func parsePort(spec string) (listener, error) {
	p, err := ParsePort(spec)
	return listener{Port: p, flag: "--port=" + spec}, err
}

// parsePath reads a --path, which is relative to dir. The worker finds it under the name that was written.
func parsePath(path, dir string) (listener, error) {
	l := listener{flag: "--path=" + path, Port: Port{Name: path}, path: true}
	if strings.ContainsAny(path, ";=") {
		return l, errors.New(l.flag + ": the path cannot travel in SERVER_STARTER_PORT: leave out ';' and '='")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	l.Address = "unix:" + path
	return l, nil
}

// toml is the listener's table.
func (l listener) toml(backlog int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n[[program.%s.listen]]\naddress = %s\nstarter_name = %s\n", program, config.Quote(l.Address), config.Quote(l.Name))
	if l.FD != "" {
		fmt.Fprintf(&b, "fd = %s\n", l.FD)
	}
	if l.path {
		b.WriteString("mode = \"0777\"\n")
	}
	if backlog != 0 && !strings.HasPrefix(l.Address, "udp:") {
		fmt.Fprintf(&b, "backlog = %d\n", backlog)
	}
	return b.String()
}
