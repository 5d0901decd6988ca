package socket

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// longestPath is the longest path of a unix socket: sun_path less the NUL that ends it, unix(7).
const longestPath = 107

// written is an address as a person writes it, taken apart and not looked up.
type written struct {
	network string // "tcp", "udp" or "unix"
	host    string // "": every address
	port    uint16
	path    string // unix: absolute, or abstract with its "@"
}

// address is where a socket is bound, in one form for each place.
type address struct {
	network string
	ip      netip.Addr
	port    uint16
	path    string
	dual    bool // an IPv6 socket that takes IPv4 too
}

func (a address) String() string {
	if a.network == "unix" {
		return "unix " + a.path
	}
	return a.network + " " + netip.AddrPortFrom(a.ip, a.port).String()
}

// onDisk tells whether the address is an inode in the file system.
func (a address) onDisk() bool { return a.network == "unix" && a.path[0] == '/' }

func parseAddress(s string) (written, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return written{network: "unix", path: path}, checkPath(path)
	}
	network, rest := "tcp", s
	if after, ok := strings.CutPrefix(s, "udp:"); ok {
		network, rest = "udp", after
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return written{}, malformed(s, rest)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return written{}, wrong("address", "the port of "+strconv.Quote(s)+" is no number", "a port is 0 to 65535; 0 lets the kernel choose")
	}
	return written{network: network, host: host, port: uint16(number)}, checkHost(host)
}

// malformed says what is the matter with an address that is not host:port.
func malformed(s, rest string) error {
	what := strconv.Quote(s) + " is not an address"
	switch _, err := strconv.Atoi(rest); {
	case err == nil:
		return wrong("address", strconv.Quote(s)+" has no host", "write "+strconv.Quote(":"+rest)+" for every interface, or "+strconv.Quote("127.0.0.1:"+rest)+" for this machine only")
	case strings.HasPrefix(rest, "/"), strings.HasPrefix(rest, "@"):
		return wrong("address", what, "a unix socket is written "+strconv.Quote("unix:"+rest))
	case strings.Count(rest, ":") > 1:
		return wrong("address", what, `an IPv6 address goes in brackets, as in "[::1]:8080"`)
	case rest != "" && !strings.Contains(rest, ":"):
		return wrong("address", strconv.Quote(s)+" has no port", "write it as in "+strconv.Quote(rest+":8080"))
	}
	return wrong("address", what, `write "127.0.0.1:8080", "[::1]:8080", ":8080", "unix:/run/web.sock" or "udp:127.0.0.1:53"`)
}

func checkPath(path string) error {
	quoted := strconv.Quote(path)
	switch {
	case path == "" || path == "@":
		return wrong("address", "the unix socket has no name", `write "unix:/run/web.sock", or "unix:@name" for an abstract one`)
	case path[0] != '/' && path[0] != '@':
		return wrong("address", "the path "+quoted+" is relative", "write the whole path, from /")
	case path[0] == '/' && path[len(path)-1] == '/':
		return wrong("address", "the path "+quoted+" is a directory's", "name the socket in it")
	case len(path) > longestPath && path[0] == '/', len(path) > longestPath+1:
		return wrong("address", "the path "+quoted+" is "+strconv.Itoa(len(path))+" bytes long", "a unix socket's can have 107: use a shorter directory, /run for one")
	case strings.ContainsFunc(path, isControl), strings.ContainsAny(path, ";="):
		return wrong("address", "the path "+quoted+" has a character that cannot be passed on", "leave out control characters, ';' and '='")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// checkHost accepts an IP address or what may be a host's name.
func checkHost(host string) error {
	if host == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return checkZone(host, ip)
	}
	if strings.Trim(host, "0123456789.") == "" {
		return wrong("address", strconv.Quote(host)+" is no IP address", "it has four numbers up to 255, without leading zeros")
	}
	plain := func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	if len(host) > 253 || strings.ContainsFunc(host, plain) {
		return wrong("address", strconv.Quote(host)+" is neither an IP address nor a host's name", "a name has letters, digits, '-' and '.'")
	}
	return nil
}

func checkZone(host string, ip netip.Addr) error {
	if strings.ContainsFunc(ip.Zone(), isControl) || strings.ContainsAny(ip.Zone(), ";=/ ") || len(ip.Zone()) > longestInterface {
		return wrong("address", "the zone of "+strconv.Quote(host)+" is no interface's name", `write it as in "[fe80::1%eth0]:8080"`)
	}
	return nil
}

// starterName is what SERVER_STARTER_PORT calls the socket: the port alone where every IPv4 address is meant, otherwise what
// was written, without the network.
func (w written) starterName() string {
	port := strconv.Itoa(int(w.port))
	switch {
	case w.network == "unix":
		return w.path
	case w.host == "" || w.host == "0.0.0.0":
		return port
	}
	return net.JoinHostPort(w.host, port)
}
