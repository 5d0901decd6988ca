// Package socket opens the listening sockets of the supervisor, keeps them, and hands them over: to workers, to
// systemd's file-descriptor store, and to the next image of the supervisor.
//
// The sockets are plain descriptors, made with system calls. Go's network poller never sees them, because the mode
// of an inherited socket (O_NONBLOCK) is shared with every worker that has it, and a master that polls its sockets
// wakes for every client. They are close-on-exec, blocking unless NonBlock says otherwise, TCP and never MPTCP.
//
// # From a configuration to a generation
//
//	Spec ──Resolve──► Resolved ──Update──► Table ──Hold──► Lane ──FD──► the descriptor of a worker
//
// A Table belongs to one goroutine, that of the loop. It owns every descriptor that it returns: callers duplicate what
// they pass on, and close nothing. Only Resolve, Probe.Dial, Queue.Refuse and what Left returns are for other
// goroutines.
//
// # Since which kernel
//
//	SO_REUSEPORT, a group of sockets at one address            Linux 3.9
//	SO_ATTACH_REUSEPORT_CBPF, a program that chooses of it     4.6 (of UDP 4.5); taking it away 5.3
//	IP_MINTTL and IPV6_MINHOPCOUNT, deafness                   2.6.35
//	pidfd_getfd, to take the sockets out of orphaned workers   5.6
//	INET_DIAG_SOCKOPT, which shows whose a connection is       5.10; before, all of a port count
//	a table of flows                                           5.11, and CAP_BPF
package socket

import (
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LastFD is the greatest number that a listener can ask for: every process may have 1024 descriptors (RLIMIT_NOFILE).
const LastFD = 1023

// Spec is one configured listener: plain, comparable data. Ranges are checked where it is read; see also Check.
type Spec struct {
	Program string // whose it is; a port that the kernel chooses belongs to one program and name
	Name    string // how a worker finds it; the address as written unless configured
	Address Address
	Backlog int  // 0: net.core.somaxconn, which also caps it
	PerSlot bool // one SO_REUSEPORT socket for each worker slot
	Single  bool // one socket for all slots; without PerSlot and Single a lane has one for every SlotsOfSocket slots
	Rolling bool // the slots are replaced one after the other: without PerSlot and Single, SlotsOfSocket have one each
	Sockopts
	Access
	WhenDown WhenDown // what happens to clients while nothing serves: for callers of SetOpen
	Handover Handover // how one generation takes over from another
	Flows    int      // the size of the table of a Handover of Flow
	InWorker
	Unasked
}

// InWorker is how a worker finds a socket.
type InWorker struct {
	FD          FDNumber // its number in a worker
	StarterName string   // its name in SERVER_STARTER_PORT; "": made from the address
	Binds       Address  // what a program binds that opens its own port; zero: Address
}

// Unasked says why something is so although nobody asked for it; "": somebody did, or it is not so.
type Unasked struct {
	SingleWhy   string // why it is Single
	HandoverWhy string // why it is Share, and not Steer
}

// SlotsOfSocket is how many worker slots have one socket unless a Spec says otherwise. A connection wakes all
// workers that wait for it in epoll, so with many the CPU goes there; but workers that take one connection at a
// time need others at their socket, because one that waits behind a busy worker waits although others are free.
// docs/performance.md has the figures.
const SlotsOfSocket = 32

// Handover says which sockets the generations of a program have.
type Handover string

// The ways to hand over. "" means Share, in records that do not know the key.
const (
	Share Handover = "share" // all generations accept from the same sockets
	// each has sockets of its own, and the kernel sends new connections, or all datagrams, to those of the one that serves
	Steer Handover = "steer"
	// of UDP: the same, and the datagrams of a QUIC connection go to the generation that its connection ID names
	QUIC Handover = "quic"
	// of UDP: the same, and the later datagrams of a pair of addresses go to the generation that got the first one
	Flow Handover = "flow"
)

// Access says who may connect to a unix socket with a path.
type Access struct {
	Mode        fs.FileMode // permission bits; 0: 0777 less the umask
	User, Group string      // owner, a name or a number; "": the supervisor's
}

// Sockopts are options of the socket, the last three of TCP. Durations are rounded up to seconds.
type Sockopts struct {
	ReusePort   bool          // SO_REUSEPORT, to share the address with other processes
	Interface   string        // SO_BINDTODEVICE
	IPv6Only    string        // "", "true" or "false"; "": false for ":port", true otherwise
	NonBlock    bool          // O_NONBLOCK as a generation finds it; its processes may change it
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

// FDNumber is the number that a socket asks for in a worker: 0 (stdin), or FirstFD to LastFD. The zero FDNumber
// takes any.
type FDNumber struct {
	Fixed  bool
	Number int
}

// FixedFD asks for this number.
func FixedFD(number int) FDNumber { return FDNumber{Fixed: true, Number: number} }

// IsSteered reports whether every generation is to have sockets of its own.
func (s Spec) IsSteered() bool {
	return s.Handover == Steer || s.Handover == QUIC || s.Handover == Flow
}

// longestInterface is the longest name of a network interface: IFNAMSIZ less the NUL, netdevice(7).
const longestInterface = 15

// Slotting is the key per_slot as it was written: "auto", "true" or "false".
func (s Spec) Slotting() string {
	switch {
	case s.PerSlot:
		return "true"
	case s.Single && s.SingleWhy == "":
		return "false"
	}
	return "auto"
}

// EachOwn reports whether each of so many workers has a socket of its own.
func (s Spec) EachOwn(workers int) bool {
	return workers == 1 || s.PerSlot || s.Rolling && !s.Single && workers <= SlotsOfSocket
}

// SpecError is something wrong in a Spec itself: retrying does not help.
type SpecError struct {
	Key    string // the key of the listen table, such as "address"
	What   string // what is wrong
	Remedy string // what would be right
}

func (e *SpecError) Error() string { return e.What + ": " + e.Remedy }

func wrong(key, what, remedy string) error { return &SpecError{Key: key, What: what, Remedy: remedy} }

// Check returns what is wrong with s, each key once: options that mean nothing for its kind of address or do not go
// together, and names that cannot be passed on. It looks nothing up.
func (s Spec) Check() (problems []*SpecError) {
	for _, o := range s.options() {
		if o.set && !o.fits {
			problems = append(problems, &SpecError{o.key, o.key + " cannot be set for " + strconv.Quote(s.Address.text),
				o.kind + ", so leave it out"})
		}
	}
	if s.ReusePort && s.PerSlot && !s.Address.IsUnix() {
		problems = append(problems, &SpecError{"reuse_port", "reuse_port and per_slot are both set",
			"set one: a socket for each slot cannot be shared with other processes as well"})
	}
	if len(s.Interface) > longestInterface || unfit(s.Interface, "/ ") {
		problems = append(problems, &SpecError{"interface", strconv.Quote(s.Interface) +
			" is not the name of an interface", `write it as in "eth0"`})
	}
	if unfit(s.StarterName, ";=") {
		problems = append(problems, &SpecError{"starter_name", strconv.Quote(s.StarterName) + " cannot be passed on",
			"leave out control characters, ';' and '='"})
	}
	if what, remedy := s.unbindable(); what != "" {
		problems = append(problems, &SpecError{"binds", what, remedy})
	}
	return problems
}

// unbindable says why no program can get the socket with Binds, and what to write; "": there is no Binds, or one can.
func (s Spec) unbindable() (what, remedy string) {
	isUnix, host := s.Binds.IsUnix(), s.Binds.Host
	_, noIP := netip.ParseAddr(host)
	switch {
	case s.Binds == (Address{}):
	case isUnix != s.Address.IsUnix() || s.Binds.IsUDP() != s.Address.IsUDP():
		return "is of another kind than the address", "write both as TCP, both with udp:, or both with unix:"
	case isUnix && s.Binds == s.Address:
		return "is the path of the listener itself, which the program would remove", "write a path of the program's own"
	case isUnix:
	case s.Binds.Port == 0:
		return "has no port", "write the port that the program binds"
	case noIP != nil && host != "" && !strings.EqualFold(host, "localhost"):
		return "has the name of a host", "write the IP address that the program binds"
	}
	return "", ""
}

// suited is an option that means something for some kinds of addresses alone.
type suited struct {
	key       string
	set, fits bool
	kind      string // what it is for
}

func (s Spec) options() []suited {
	tcp, internet, onDisk := s.Address.IsTCP(), !s.Address.IsUnix(), s.Address.OnDisk()
	ip, _ := netip.ParseAddr(s.Address.Host)
	const paths, ports = "it is for unix sockets with a path", "it is for tcp and udp"
	return []suited{
		{"backlog", s.Backlog != 0, !s.Address.IsUDP(), "udp has none"},
		{"mode", s.Mode != 0, onDisk, paths},
		{"user", s.User != "", onDisk, paths},
		{"group", s.Group != "", onDisk, paths},
		{"reuse_port", s.ReusePort, internet, ports},
		{"per_slot", s.PerSlot, tcp, "it is for tcp"},
		{"interface", s.Interface != "", internet, ports},
		{"ipv6_only", s.IPv6Only != "", internet && !ip.Unmap().Is4(), "it is for IPv6"},
		{"defer_accept", s.DeferAccept != 0, tcp, "it is for tcp"},
		{"fast_open", s.FastOpen != 0, tcp, "it is for tcp"},
		{"keep_alive", s.KeepAlive != 0, tcp, "it is for tcp"},
		{"flows", s.Flows != 0, s.Address.IsUDP(), "it is for udp"},
		{"when_down", s.WhenDown.Refuse, tcp || onDisk,
			"the kernel can refuse connections only for tcp and for unix sockets with a path"},
	}
}

// unfit reports whether s has control characters or one of the others.
func unfit(s, others string) bool {
	return strings.ContainsFunc(s, isControl) || strings.ContainsAny(s, others)
}

// Want is one listener that a configuration asks for.
type Want struct {
	Resolved
	Slots int // how many workers a generation has
}

// descriptors is how many lanes as large as can be a process has room for: the lanes of a program are a small part
// of what it holds.
const descriptors = 64

// sockets is how many sockets a lane of one generation consists of that has so many workers.
func (r Resolved) sockets(slots int) int {
	switch {
	case r.PerSlot:
		return max(1, slots)
	case r.Single, !r.at.isTCP():
		return 1
	}
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // on error, one socket
	most := min(limit.Cur/descriptors, LastFD)
	wanted := (slots + SlotsOfSocket - 1) / SlotsOfSocket
	if r.Rolling {
		wanted = max(wanted, min(slots, SlotsOfSocket))
	}
	return max(1, min(wanted, int(most)))
}
