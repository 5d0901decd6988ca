// Package socket opens the listening sockets of the supervisor, keeps them, and hands them over: to workers, to systemd's
// file-descriptor store, and to the next image of the supervisor.
//
// The sockets are plain descriptors, made with system calls. Go's network poller never sees them, because the mode of an inherited
// socket (O_NONBLOCK) is shared with every worker that has it, and a master that polls its sockets wakes for every client. They are
// close-on-exec, blocking unless NonBlock says otherwise, TCP and never MPTCP.
package socket

import (
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// LastFD is the greatest number that a listener can ask for: every process may have 1024 descriptors (RLIMIT_NOFILE).
const LastFD = 1023

// Spec is one configured listener: plain, comparable data. Ranges are checked where it is read; see also Check.
type Spec struct {
	Program   string // whose it is; a port that the kernel chooses belongs to one program and name
	Name      string // how a worker finds it; the address as written unless configured
	Address   Address
	Backlog   int    // 0: net.core.somaxconn, which also caps it
	ReusePort bool   // SO_REUSEPORT, to share the address with other processes
	PerSlot   bool   // one SO_REUSEPORT socket for each worker slot
	Interface string // SO_BINDTODEVICE
	IPv6Only  string // "", "true" or "false"; "": false for ":port", true otherwise
	NonBlock  bool   // O_NONBLOCK as handed to the worker; set once when the socket is opened
	Access
	TCPOptions
	WhenDown    WhenDown // what happens to clients while nothing serves: for callers of SetOpen
	FD          FDNumber // its number in a worker
	StarterName string   // its name in SERVER_STARTER_PORT; "": made from the address
	Handover    Handover // how one generation takes over from another
	HandoverWhy string   // why it is Share although nobody asked for that; "": somebody did, or it is Steer
}

// Handover says which sockets the generations of a program have.
type Handover string

// The ways to hand over. "" means Share, in records that do not know the key.
const (
	Share Handover = "share" // all generations accept from the same sockets
	Steer Handover = "steer" // each has sockets of its own, and the kernel sends new connections to those of the one that serves
)

// Access says who may connect to a unix socket with a path.
type Access struct {
	Mode        fs.FileMode // permission bits; 0: 0777 less the umask
	User, Group string      // owner, a name or a number; "": the supervisor's
}

// TCPOptions are options of a TCP listener. Durations are rounded up to seconds.
type TCPOptions struct {
	DeferAccept time.Duration // TCP_DEFER_ACCEPT; 0: off
	FastOpen    int           // TCP_FASTOPEN queue length; 0: off
	KeepAlive   time.Duration // SO_KEEPALIVE and TCP_KEEPIDLE/INTVL on accepted connections; 0: the kernel's default (off)
}

// WhenDown says what happens to clients while nothing serves. The zero WhenDown lets them wait.
type WhenDown struct {
	Refuse bool
	After  time.Duration // clients wait this long before they are refused
}

func (w WhenDown) String() string {
	switch {
	case !w.Refuse:
		return "queue"
	case w.After == 0:
		return "refuse"
	}
	return "queue " + w.After.String()
}

// FDNumber is the number that a socket asks for in a worker: 0 (stdin), or FirstFD to LastFD. The zero FDNumber takes any.
type FDNumber struct {
	Fixed  bool
	Number int
}

// FixedFD asks for this number.
func FixedFD(number int) FDNumber { return FDNumber{Fixed: true, Number: number} }

// longestInterface is the longest name of a network interface: IFNAMSIZ less the NUL, netdevice(7).
const longestInterface = 15

// SpecError is something wrong in a Spec itself: retrying does not help.
type SpecError struct {
	Key    string // the key of the listen table, such as "address"
	What   string // what is wrong
	Remedy string // what would be right
}

func (e *SpecError) Error() string { return e.What + ": " + e.Remedy }

func wrong(key, what, remedy string) error { return &SpecError{Key: key, What: what, Remedy: remedy} }

// Check returns what is wrong with s, each key once: options that mean nothing for its kind of address or do not go together, and
// names that cannot be passed on. It looks nothing up.
func (s Spec) Check() (problems []*SpecError) {
	tcp, internet, onDisk := s.Address.IsTCP(), !s.Address.IsUnix(), s.Address.OnDisk()
	ip, _ := netip.ParseAddr(s.Address.Host)
	const paths, ports = "it is for unix sockets with a path", "it is for tcp and udp"
	for _, o := range []struct {
		key       string
		set, fits bool
		kind      string
	}{
		{"backlog", s.Backlog != 0, !s.Address.IsUDP(), "udp has none"},
		{"mode", s.Mode != 0, onDisk, paths},
		{"user", s.User != "", onDisk, paths},
		{"group", s.Group != "", onDisk, paths},
		{"reuse_port", s.ReusePort, internet, ports},
		{"per_slot", s.PerSlot, internet, ports},
		{"interface", s.Interface != "", internet, ports},
		{"ipv6_only", s.IPv6Only != "", internet && !ip.Unmap().Is4(), "it is for IPv6"},
		{"defer_accept", s.DeferAccept != 0, tcp, "it is for tcp"},
		{"fast_open", s.FastOpen != 0, tcp, "it is for tcp"},
		{"keep_alive", s.KeepAlive != 0, tcp, "it is for tcp"},
		{"when_down", s.WhenDown.Refuse, tcp || onDisk, "the kernel can refuse connections only for tcp and for unix sockets with a path"},
	} {
		if o.set && !o.fits {
			problems = append(problems, &SpecError{o.key, o.key + " cannot be set for " + strconv.Quote(s.Address.text), o.kind + ", so leave it out"})
		}
	}
	if s.ReusePort && s.PerSlot && internet {
		problems = append(problems, &SpecError{"reuse_port", "reuse_port and per_slot are both set", "set one: a socket for each slot cannot be shared with other processes as well"})
	}
	if len(s.Interface) > longestInterface || unfit(s.Interface, "/ ") {
		problems = append(problems, &SpecError{"interface", strconv.Quote(s.Interface) + " is not the name of an interface", `write it as in "eth0"`})
	}
	if unfit(s.StarterName, ";=") {
		problems = append(problems, &SpecError{"starter_name", strconv.Quote(s.StarterName) + " cannot be passed on", "leave out control characters, ';' and '='"})
	}
	return problems
}

// unfit reports whether s has control characters or one of the others.
func unfit(s, others string) bool {
	return strings.ContainsFunc(s, isControl) || strings.ContainsAny(s, others)
}

// Want is one listener that a configuration asks for.
type Want struct {
	Resolved
	Slots    int  // how many sockets when PerSlot; otherwise ignored
	Together bool // the workers of a generation begin to serve all at once, so that they can have another socket than those before
	Unused   bool // no process has the sockets, so that their mode can be changed in place
}

// sockets is how many sockets this listener consists of.
func (w Want) sockets() int {
	if !w.PerSlot {
		return 1
	}
	return max(1, w.Slots)
}
