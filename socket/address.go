package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"example.org/supervisord/internal/proc"
)

// longestPath is the longest path of a unix socket: sun_path less the NUL that ends it, unix(7).
const longestPath = 107

// Address is the address of a listener as a person writes it, taken apart and not looked up: plain, comparable
// data. It is parsed once, by ParseAddress; in JSON it is the text. The zero Address is none.
type Address struct {
	Host    string // of TCP and UDP: a name, an IP address without brackets, or "" for every address
	Port    uint16 // of TCP and UDP; 0: the kernel chooses
	Path    string // of a unix socket: absolute, or "@" and the name of an abstract one
	network string // "tcp", "udp" or "unix"
	text    string // as written
}

// ParseAddress reads "127.0.0.1:8080", "[::1]:8080", "host:8080", ":8080" (every interface), the same after "udp:",
// "unix:/run/web.sock" or "unix:@abstract". Errors are *SpecError.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return Address{network: "unix", Path: path, text: s}.checked(checkPath(path))
	}
	network, rest := "tcp", s
	if after, ok := strings.CutPrefix(s, "udp:"); ok {
		network, rest = "udp", after
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return Address{}, malformed(s, rest)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		what := " is not a number"
		if errors.Is(err, strconv.ErrRange) {
			what = " is too large"
		}
		return Address{}, wrong("address", "the port of "+strconv.Quote(s)+what,
			"a port is 0 to 65535; 0 lets the kernel choose")
	}
	return Address{network: network, Host: host, Port: uint16(number), text: s}.checked(checkHost(host))
}

func (a Address) checked(err error) (Address, error) {
	if err != nil {
		return Address{}, err
	}
	return a, nil
}

// UnixAddress is the address of the unix socket at path.
func UnixAddress(path string) Address {
	return Address{network: "unix", Path: path, text: "unix:" + path}
}

// String is the address as it was written.
func (a Address) String() string { return a.text }

// MarshalText writes the address as it was written.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.text), nil }

// UnmarshalText is ParseAddress; empty text is the zero Address.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a = Address{}
	if len(text) > 0 {
		*a, err = ParseAddress(string(text))
	}
	return err
}

// IsTCP reports whether the address is a TCP address.
func (a Address) IsTCP() bool { return a.network == "tcp" }

// IsUDP reports whether the address is a UDP address.
func (a Address) IsUDP() bool { return a.network == "udp" }

// IsUnix reports whether the address is that of a unix socket.
func (a Address) IsUnix() bool { return a.network == "unix" }

// OnDisk reports whether the address is that of a unix socket with a path in the file system.
func (a Address) OnDisk() bool { return a.IsUnix() && a.Path[0] == '/' }

// named reports whether the host is a name, to be looked up.
func (a Address) named() bool {
	_, err := netip.ParseAddr(a.Host)
	return a.Host != "" && err != nil
}

// IsLoopback reports whether only this machine can reach the address.
func (a Address) IsLoopback() bool {
	ip, err := netip.ParseAddr(a.Host)
	return a.IsUnix() || strings.EqualFold(a.Host, "localhost") || err == nil && ip.IsLoopback()
}

// StarterName is what SERVER_STARTER_PORT calls the socket: the port alone where every IPv4 address is meant,
// otherwise what was written, without the network.
func (a Address) StarterName() string {
	port := strconv.Itoa(int(a.Port))
	switch {
	case a.IsUnix():
		return a.Path
	case a.Host == "" || a.Host == "0.0.0.0":
		return port
	}
	return net.JoinHostPort(a.Host, port)
}

// malformed says what is wrong with an address that is not host:port.
func malformed(s, rest string) error {
	what := strconv.Quote(s) + " is not an address"
	switch _, err := strconv.Atoi(rest); {
	case err == nil:
		return wrong("address", strconv.Quote(s)+" has no host",
			"write "+strconv.Quote(":"+rest)+" for every interface, or "+strconv.Quote("127.0.0.1:"+rest)+
				" for this machine only")
	case strings.HasPrefix(rest, "/"), strings.HasPrefix(rest, "@"):
		return wrong("address", what, "a unix socket is written "+strconv.Quote("unix:"+rest))
	case strings.Count(rest, ":") > 1:
		return wrong("address", what, `an IPv6 address goes in brackets, as in "[::1]:8080"`)
	case rest != "" && !strings.Contains(rest, ":"):
		return wrong("address", strconv.Quote(s)+" has no port", "write it as in "+strconv.Quote(rest+":8080"))
	}
	return wrong("address", what,
		`write "127.0.0.1:8080", "[::1]:8080", ":8080", "unix:/run/web.sock" or "udp:127.0.0.1:53"`)
}

func checkPath(path string) error {
	quoted := strconv.Quote(path)
	switch {
	case path == "" || path == "@":
		return wrong("address", "the unix socket has no name",
			`write "unix:/run/web.sock", or "unix:@name" for an abstract one`)
	case path[0] != '/' && path[0] != '@':
		return wrong("address", "the path "+quoted+" is relative", "write the whole path, from /")
	case path[0] == '/' && path[len(path)-1] == '/':
		return wrong("address", "the path "+quoted+" is a directory's", "name the socket in it")
	case len(path) > longestPath && path[0] == '/', len(path) > longestPath+1:
		return wrong("address", "the path "+quoted+" is "+strconv.Itoa(len(path))+" bytes long",
			"a unix socket's can have 107: use a shorter directory, /run for one")
	case strings.ContainsFunc(path, isControl), strings.ContainsAny(path, ";="):
		return wrong("address", "the path "+quoted+" has a character that cannot be passed on",
			"leave out control characters, ';' and '='")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// checkHost accepts an IP address or what may be a host name.
func checkHost(host string) error {
	ip, err := netip.ParseAddr(host)
	badZone := strings.ContainsFunc(ip.Zone(), isControl) || strings.ContainsAny(ip.Zone(), ";=/ ") ||
		len(ip.Zone()) > longestInterface
	notPlain := func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	switch {
	case err == nil && badZone:
		return wrong("address", "the zone of "+strconv.Quote(host)+" is not the name of an interface",
			`write it as in "[fe80::1%eth0]:8080"`)
	case err == nil, host == "":
		return nil
	case strings.Trim(host, "0123456789.") == "":
		return wrong("address", strconv.Quote(host)+" is not an IP address",
			"it has four numbers up to 255, without leading zeros")
	case len(host) > 253 || strings.ContainsFunc(host, notPlain):
		return wrong("address", strconv.Quote(host)+" is neither an IP address nor a host name",
			"a name has letters, digits, '-' and '.'")
	}
	return nil
}

// bindAddr is what a socket is bound to: one form for each address of the kernel.
type bindAddr struct {
	network string
	ip      netip.Addr
	port    uint16
	path    string
	dual    bool // an IPv6 socket that takes IPv4 too
}

func (a bindAddr) String() string {
	if a.isUnix() {
		return "unix " + a.path
	}
	return a.network + " " + netip.AddrPortFrom(a.ip, a.port).String()
}

func (a bindAddr) isTCP() bool  { return a.network == "tcp" }
func (a bindAddr) isUDP() bool  { return a.network == "udp" }
func (a bindAddr) isUnix() bool { return a.network == "unix" }

// onDisk reports whether the address is an inode in the file system.
func (a bindAddr) onDisk() bool { return a.isUnix() && a.path[0] == '/' }

// needsLookUp reports whether the host has not been looked up.
func (a bindAddr) needsLookUp() bool { return !a.isUnix() && !a.ip.IsValid() }

// site is what two addresses that overlap have in common: the network and the port, or the path with its symbolic
// links resolved. It is "" if the kernel chooses the port, because such an address overlaps no other.
func (a bindAddr) site() string {
	switch {
	case a.onDisk():
		dir, err := filepath.EvalSymlinks(filepath.Dir(a.path))
		if err != nil {
			dir = filepath.Dir(a.path)
		}
		return "unix " + filepath.Join(dir, filepath.Base(a.path))
	case a.isUnix():
		return a.String()
	case a.port == 0:
		return ""
	}
	return a.network + " " + strconv.Itoa(int(a.port))
}

// covers reports whether a socket at a takes the port of the address b.
func (a bindAddr) covers(b bindAddr) bool {
	return a.ip.IsUnspecified() && (a.ip.Is4() == b.ip.Is4() || a.dual && b.ip.Is4())
}

// Resolved is a Spec whose names have been looked up. It is comparable.
type Resolved struct {
	Spec
	at       bindAddr
	uid, gid int // unix: the owner; -1: the supervisor's
}

// Resolve looks up the host, user and group that s, which must pass Check, names; of several addresses it prefers
// an IPv4 one. It may wait for a resolver: call it off the loop. An error that waiting cannot fix is a *SpecError.
func (s Spec) Resolve(ctx context.Context) (Resolved, error) {
	r := s.Literal()
	if s.Address.named() {
		ip, err := lookUp(ctx, s.Address.Host)
		if err != nil {
			return Resolved{}, err
		}
		r.setIP(ip)
	}
	if r.at.ip.Is4() && s.IPv6Only != "" {
		return Resolved{}, wrong("ipv6_only", "ipv6_only cannot be set for "+strconv.Quote(s.Address.text),
			"it is for IPv6, so leave it out")
	}
	if wrong := s.Unpermitted(); wrong != nil {
		return Resolved{}, wrong
	}
	var err error
	r.uid, r.gid, err = s.owner()
	return r, err
}

// Literal is s as far as it is known without a look-up: "localhost" (127.0.0.1, which Resolve prefers) and every
// address that is written in numbers. It is for Overlaps, before listeners are opened.
func (s Spec) Literal() Resolved {
	a := s.Address
	r := Resolved{Spec: s, uid: -1, gid: -1, at: bindAddr{network: a.network, port: a.Port, path: a.Path}}
	switch ip, err := netip.ParseAddr(a.Host); {
	case a.OnDisk():
		r.at.path = filepath.Clean(a.Path)
	case a.IsUnix():
	case a.Host == "":
		r.at.ip, r.at.dual = netip.IPv6Unspecified(), s.IPv6Only != "true"
	case err == nil:
		r.setIP(ip)
	case strings.EqualFold(a.Host, "localhost"):
		r.setIP(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return r
}

func (r *Resolved) setIP(ip netip.Addr) {
	r.at.ip = ip.Unmap()
	r.at.dual = r.at.ip.Is6() && r.IPv6Only == "false"
}

func lookUp(ctx context.Context, host string) (netip.Addr, error) {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cannot look up the listen address: %w; check the name, or write an IP address", err)
	}
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	return ips[0], nil
}

// owner looks up the numbers of the user and the group; -1: the supervisor's.
func (s Spec) owner() (uid, gid int, err error) {
	uid, gid = -1, -1
	for _, o := range []struct {
		key, name string
		number    *int
		lookUp    func(string) (uint32, error)
	}{{"user", s.User, &uid, proc.UID}, {"group", s.Group, &gid, proc.GID}} {
		if o.name == "" {
			continue
		}
		id, err := o.lookUp(o.name)
		if err != nil {
			return -1, -1, wrong(o.key, "there is no "+o.key+" "+strconv.Quote(o.name)+" for "+strconv.Quote(s.Address.text),
				"name one of this machine, or write a number")
		}
		*o.number = int(id)
	}
	return uid, gid, nil
}

// Key identifies the address to the kernel ("tcp 127.0.0.1:8080"): two listeners with one key cannot both be bound.
// Ports that the kernel chooses (0) differ by program and name, so that a reload finds its socket again, and two
// programs get different ports.
func (r Resolved) Key() string {
	key := r.at.String()
	if !r.at.isUnix() && r.at.port == 0 {
		key += " " + r.Program + "/" + r.Name
	}
	if r.Interface != "" {
		key += " on " + r.Interface
	}
	return key
}

// groups reports whether the listener's sockets set SO_REUSEPORT.
func (r Resolved) groups() bool { return r.ReusePort || r.PerSlot }

// Site is what listeners that overlap have in common; "": r overlaps no other.
func (r Resolved) Site() string { return r.at.site() }

// Overlaps reports whether r and o cannot both be bound, or would both get the same connections: they have one
// address, or one is on every address (0.0.0.0, [::]) and takes the port of the other. One that is on every address
// may stand beside another where both set SO_REUSEPORT: the kernel prefers the exact address. A host that is not
// looked up overlaps itself alone.
func (r Resolved) Overlaps(o Resolved) bool {
	switch site := r.Site(); {
	case site == "" || site != o.Site():
		return false
	case r.at.isUnix():
		return true
	case r.at.needsLookUp() || o.at.needsLookUp():
		return strings.EqualFold(r.Address.Host, o.Address.Host)
	case r.Interface != "" && o.Interface != "" && r.Interface != o.Interface:
		return false
	case r.at.ip == o.at.ip:
		return true
	}
	return (r.at.covers(o.at) || o.at.covers(r.at)) && !(r.groups() && o.groups())
}

// record is a Resolved as it is written down for the supervisor's next image, which then needs no resolver.
type record struct {
	Spec     Spec
	IP       netip.Addr
	UID, GID int
}

// MarshalJSON writes r down, with what was looked up for it.
func (r Resolved) MarshalJSON() ([]byte, error) {
	return json.Marshal(record{r.Spec, r.at.ip, r.uid, r.gid})
}

// UnmarshalJSON reads what MarshalJSON wrote. It refuses what Resolve could not have made.
func (r *Resolved) UnmarshalJSON(data []byte) error {
	var w record
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if problems := w.Spec.Check(); len(problems) > 0 {
		return problems[0]
	}
	found := w.Spec.Literal()
	if w.Spec.Address.named() {
		found.setIP(w.IP)
	}
	if w.Spec.Address == (Address{}) || found.at.ip != w.IP || found.at.needsLookUp() {
		return fmt.Errorf("the recorded listener %q contradicts itself", w.Spec.Address)
	}
	found.uid, found.gid = w.UID, w.GID
	*r = found
	return nil
}
