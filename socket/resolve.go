package socket

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/proc"
)

// longestInterface is the longest name of a network interface: IFNAMSIZ less the NUL, netdevice(7).
const longestInterface = 15

// longestKeepAlive is the kernel's limit for TCP_KEEPIDLE and TCP_KEEPINTVL (MAX_TCP_KEEPIDLE).
const longestKeepAlive = 32767 * time.Second

// SpecError is something wrong in a Spec itself: it will not get better by waiting.
type SpecError struct {
	Key    string // the key of the listen table, such as "address"
	What   string // what is wrong
	Remedy string // what would be right
}

func (e *SpecError) Error() string { return e.What + ": " + e.Remedy }

func wrong(key, what, remedy string) error { return &SpecError{Key: key, What: what, Remedy: remedy} }

// Check finds what is wrong with s without looking anything up. Every error is a *SpecError.
func (s Spec) Check() error {
	w, err := parseAddress(s.Address)
	if err != nil {
		return err
	}
	if err := s.checkNetwork(w); err != nil {
		return err
	}
	return s.checkValues()
}

// checkNetwork refuses the options that mean nothing for the kind of socket.
func (s Spec) checkNetwork(w written) error {
	onDisk := w.network == "unix" && w.path[0] == '/'
	for _, o := range []struct {
		key  string
		set  bool
		fits bool
		kind string
	}{
		{"backlog", s.Backlog != 0, w.network != "udp", "udp has none"},
		{"mode", s.Mode != 0, onDisk, "it is for unix sockets with a path"},
		{"user", s.User != "", onDisk, "it is for unix sockets with a path"},
		{"group", s.Group != "", onDisk, "it is for unix sockets with a path"},
		{"reuse_port", s.ReusePort, w.network != "unix", "it is for tcp and udp"},
		{"per_slot", s.PerSlot, w.network != "unix", "it is for tcp and udp"},
		{"interface", s.Interface != "", w.network != "unix", "it is for tcp and udp"},
		{"ipv6_only", s.IPv6Only != "", w.network != "unix", "it is for tcp and udp"},
		{"defer_accept", s.DeferAccept != 0, w.network == "tcp", "it is for tcp"},
		{"fast_open", s.FastOpen != 0, w.network == "tcp", "it is for tcp"},
		{"keep_alive", s.KeepAlive != 0, w.network == "tcp", "it is for tcp"},
		{"when_down", s.WhenDown.Refuse, w.network == "tcp" || onDisk, "the kernel can refuse connections only for tcp and for unix sockets with a path"},
	} {
		if o.set && !o.fits {
			return wrong(o.key, o.key+" cannot be set for "+strconv.Quote(s.Address), o.kind+", so leave it out")
		}
	}
	return nil
}

func (s Spec) checkValues() error {
	switch {
	case s.Backlog < 0 || s.Backlog > math.MaxInt32:
		return wrong("backlog", fmt.Sprintf("backlog %d is out of range", s.Backlog), "leave it out for the kernel's limit, or set 1 or more")
	case s.Mode&^fs.ModePerm != 0:
		return wrong("mode", fmt.Sprintf("mode %#o has more than permission bits", uint32(s.Mode)), "write it as in 0o660")
	case s.ReusePort && s.PerSlot:
		return wrong("reuse_port", "reuse_port and per_slot are both set", "set one: a socket for each slot cannot be shared with other processes as well")
	case s.DeferAccept < 0 || s.DeferAccept > time.Hour:
		return wrong("defer_accept", "defer_accept "+s.DeferAccept.String()+" is out of range", `set up to an hour, as in "5s"`)
	case s.FastOpen < 0 || s.FastOpen > math.MaxInt32:
		return wrong("fast_open", fmt.Sprintf("fast_open %d is out of range", s.FastOpen), "it is the length of a queue, such as 256")
	case s.KeepAlive < 0 || s.KeepAlive > longestKeepAlive:
		return wrong("keep_alive", "keep_alive "+s.KeepAlive.String()+" is out of range", `set up to 32767 seconds, as in "30s"`)
	case s.WhenDown.After < 0:
		return wrong("when_down", "when_down has a negative time", `write "queue", "queue 30s" or "refuse"`)
	case len(s.Interface) > longestInterface || strings.ContainsFunc(s.Interface, isControl) || strings.ContainsAny(s.Interface, "/ "):
		return wrong("interface", strconv.Quote(s.Interface)+" is no interface's name", `write it as in "eth0"`)
	case s.FD.Fixed && s.FD.Number != 0 && (s.FD.Number < FirstFD || s.FD.Number > LastFD):
		return wrong("fd", fmt.Sprintf("fd %d cannot be a listener's", s.FD.Number), fmt.Sprintf("write 0, which is stdin, or %d to %d", FirstFD, LastFD))
	case strings.ContainsAny(s.StarterName, ";=") || strings.ContainsFunc(s.StarterName, isControl):
		return wrong("starter_name", strconv.Quote(s.StarterName)+" cannot be passed on", "leave out control characters, ';' and '='")
	case s.IPv6Only != "" && s.IPv6Only != "true" && s.IPv6Only != "false":
		return wrong("ipv6_only", strconv.Quote(s.IPv6Only)+" is neither true nor false", "set true or false")
	}
	return nil
}

// Resolve checks s and looks up the host, user and group that it names; of several addresses an IPv4 one is preferred.
// It may wait for a resolver: call it off the loop. What waiting cannot mend is a *SpecError.
func (s Spec) Resolve(ctx context.Context) (Resolved, error) {
	if err := s.Check(); err != nil {
		return Resolved{}, err
	}
	w, err := parseAddress(s.Address)
	if err != nil {
		return Resolved{}, err
	}
	r := Resolved{Spec: s}
	if r.at, err = w.resolve(ctx); err != nil {
		return Resolved{}, err
	}
	if r.at.dual, err = s.dualStack(w, r.at.ip); err != nil {
		return Resolved{}, err
	}
	if r.uid, r.gid, err = s.owner(); err != nil {
		return Resolved{}, err
	}
	return r, nil
}

func (w written) resolve(ctx context.Context) (address, error) {
	at := address{network: w.network, port: w.port}
	switch {
	case w.network == "unix" && w.path[0] == '/':
		at.path = filepath.Clean(w.path)
		return at, nil
	case w.network == "unix":
		at.path = w.path
		return at, nil
	case w.host == "":
		at.ip = netip.IPv6Unspecified()
		return at, nil
	}
	ip, err := lookUp(ctx, w.host)
	at.ip = ip
	return at, err
}

func lookUp(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
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

// dualStack tells whether an IPv6 socket takes IPv4 too.
func (s Spec) dualStack(w written, ip netip.Addr) (bool, error) {
	if w.network == "unix" || ip.Is4() {
		if s.IPv6Only != "" && w.network != "unix" {
			return false, wrong("ipv6_only", "ipv6_only cannot be set for "+strconv.Quote(s.Address), "it is for IPv6, so leave it out")
		}
		return false, nil
	}
	return s.IPv6Only == "false" || s.IPv6Only == "" && w.host == "", nil
}

func (s Spec) owner() (uid, gid int, err error) {
	uid, gid = -1, -1
	if s.User != "" {
		id, err := proc.UID(s.User)
		if err != nil {
			return 0, 0, wrong("user", "there is no user "+strconv.Quote(s.User)+" for "+strconv.Quote(s.Address), "name one of this machine, or write a number")
		}
		uid = int(id)
	}
	if s.Group != "" {
		id, err := proc.GID(s.Group)
		if err != nil {
			return 0, 0, wrong("group", "there is no group "+strconv.Quote(s.Group)+" for "+strconv.Quote(s.Address), "name one of this machine, or write a number")
		}
		gid = int(id)
	}
	return uid, gid, nil
}
