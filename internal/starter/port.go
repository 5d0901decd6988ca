package starter

import (
	"fmt"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// port is what one --port asks for.
type port struct {
	Address string // as supervisord writes it: "0.0.0.0:80", "udp:127.0.0.1:53", "[::1]:80"
	Name    string // its name in SERVER_STARTER_PORT
	FD      string // the descriptor at which the worker wants it; "": any
}

// The two forms of --port. Spaces are allowed where the reference allows them.
var (
	portAlone    = pattern.Lazy(`^\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
	portWithHost = pattern.Lazy(`^\s*(?:\[\s*)?([^\]]*?)\s*(?:\]\s*)?:\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
)

// parsePort reads a --port. A port alone means every IPv4 address, and no IPv6 address. The u of UDP is not part of the name.
func parsePort(spec string) (port, error) {
	host, name := "0.0.0.0", ""
	m := portAlone().FindStringSubmatch(spec)
	if m == nil {
		if m = portWithHost().FindStringSubmatch(spec); m == nil || m[1] == "" {
			return port{}, fmt.Errorf("invalid ``port'' value:%s: write PORT, HOST:PORT or [IPV6]:PORT, "+
				"with u before the port for UDP and =FD after it for a fixed descriptor", spec)
		}
		if host = m[1]; strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		name, m = host+":", m[1:]
	}
	p := port{Address: host + ":" + unpadded(m[2]), Name: name + m[2], FD: unpadded(m[3])}
	if m[1] != "" {
		p.Address = "udp:" + p.Address
	}
	return p, nil
}

// unpadded returns a number without leading zeros.
func unpadded(digits string) string {
	if len(digits) < 2 {
		return digits
	}
	return strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
}
