// Package socket opens the listening sockets of the supervisor, keeps them, and defines how they travel: to a worker, through
// systemd and its file-descriptor store, and to the next image of the supervisor.
//
// The sockets are plain numbers, made with system calls. They are never known to Go's network poller, because the mode of an
// inherited socket (O_NONBLOCK) is shared with every worker that has it, and a master that polls its sockets wakes for every
// client. They are close-on-exec, blocking unless NonBlock asks otherwise, TCP and never MPTCP.
package socket

import (
	"io/fs"
	"time"
)

// FirstFD is the number of the first socket in a worker: sd_listen_fds(3) fixes it, and SERVER_STARTER_PORT follows.
const FirstFD = 3

// LastFD is the greatest number that a listener can ask for: what every process may have open (RLIMIT_NOFILE is 1024 by default).
const LastFD = 1023

// Spec is one configured listener: plain, comparable data.
type Spec struct {
	Program     string        // whose it is; a port that the kernel chooses is one for each program and name
	Name        string        // how a worker finds it; the address as written unless configured
	Address     string        // as written: "127.0.0.1:8080", "[::1]:8080", ":8080", "unix:/run/web.sock", "unix:@abstract", "udp:127.0.0.1:53"
	Backlog     int           // 0: net.core.somaxconn, which also caps it
	Mode        fs.FileMode   // unix: permission bits; 0: 0777 less the umask
	User, Group string        // unix: owner, a name or a number; "": the supervisor's
	ReusePort   bool          // SO_REUSEPORT, to share the address with other processes
	PerSlot     bool          // one SO_REUSEPORT socket for each worker slot
	DeferAccept time.Duration // TCP_DEFER_ACCEPT, rounded up to seconds; 0: off
	FastOpen    int           // TCP_FASTOPEN queue length; 0: off
	KeepAlive   time.Duration // SO_KEEPALIVE and TCP_KEEPIDLE/INTVL on accepted connections, rounded up to seconds; 0: the kernel's default (off)
	Interface   string        // SO_BINDTODEVICE
	IPv6Only    string        // "", "true" or "false"; "": false for ":port", true otherwise
	NonBlock    bool          // O_NONBLOCK as handed to the worker; set once when the socket is opened
	WhenDown    WhenDown      // what becomes of clients while nothing serves: for whoever calls SetOpen
	FD          Place         // where a worker finds it
	StarterName string        // its name in SERVER_STARTER_PORT; "": made from the address
}

// WhenDown says what becomes of clients while nothing serves. The zero WhenDown lets them wait.
type WhenDown struct {
	Refuse bool
	After  time.Duration // that nothing serves; until then they wait
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

// Place is the number that a socket has in a worker: 0 (stdin), or FirstFD to LastFD. The zero Place is no number in particular.
type Place struct {
	Fixed  bool
	Number int
}

// At is the place with this number.
func At(number int) Place { return Place{Fixed: true, Number: number} }

// Resolved is a Spec whose names have been looked up. It is comparable.
type Resolved struct {
	Spec
	at       address
	uid, gid int // unix: the owner; -1: the supervisor's
}

// Key names the kernel's idea of the address ("tcp 127.0.0.1:8080"): two listeners with one key cannot both be bound.
// A port that the kernel chooses (0) is told apart by the program and the listener's name, so that a reload finds its socket again,
// and two programs, or two listeners of one, get different ports.
func (r Resolved) Key() string {
	if r.Program == "" {
		return r.oldKey()
	}
	return r.key(r.Program + "/" + r.Name)
}

// oldKey is the key by the rule of the first version, which did not know the program: in records and export names of that version.
func (r Resolved) oldKey() string { return r.key(r.Name) }

// key adds to the address what tells listeners of one address apart: of is whose it is.
func (r Resolved) key(of string) string {
	key := r.at.String()
	if r.at.network != "unix" && r.at.port == 0 {
		key += " " + of
	}
	if r.Interface != "" {
		key += " on " + r.Interface
	}
	return key
}

// Renamed returns the claims that an earlier version has made on these listeners, as this one writes them.
func Renamed(claims []string, listeners []Resolved) []string {
	renamed := make([]string, len(claims))
	for i, s := range claims {
		c := parseClaim(s)
		c.slots = max(1, c.slots)
		for _, r := range listeners {
			if c.key == r.oldKey() {
				c.key = r.Key()
				break
			}
		}
		renamed[i] = c.String()
	}
	return renamed
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
