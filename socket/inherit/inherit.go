// Package inherit reads which sockets this process was started with: from systemd, from start_server, from another
// supervisord. It is the other end of package dialect.
//
//	LISTEN_PID=812 LISTEN_FDS=2 LISTEN_FDNAMES=http:admin    fd 3 is "http", fd 4 is "admin"; only for process 812
//	LISTEN_PIDFDID=4711                                      its inode tells the process from a later 812
//	SERVER_STARTER_PORT=8080=3;/run/web.sock=5               fd 3 is at port 8080, fd 5 at the path
//
// The descriptors belong to the process that was started with them: nothing here closes one, and what is returned is
// for one owner, such as socket.Table.Offer.
package inherit

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FirstFD is the number of the first socket in a worker: sd_listen_fds(3) fixes it, and SERVER_STARTER_PORT follows.
const FirstFD = 3

// Socket is one descriptor that this process was started with.
type Socket struct {
	FD      int
	Name    string // in LISTEN_FDNAMES ("unknown" where that is missing); without LISTEN_FDS, Starter
	Starter string // its name in SERVER_STARTER_PORT; "": not listed there
	Network string // "tcp", "udp", "unix", "unixgram", "unixpacket"; "": not a socket of these kinds
	Address string // where it is bound: "127.0.0.1:8080", "[::]:8080", "/run/web.sock", "@abstract"; "": nowhere
	Listens bool   // it accepts connections, or is a bound datagram socket that is not connected
	Ours    bool   // set by callers who know that a supervisor made it and no socket unit keeps it
	InUse   bool   // set by callers who know that a live worker has it, so that O_NONBLOCK must not change
}

// FromEnvironment returns the descriptors that environ (in the form of os.Environ) lists for the process pid (one's
// own): those of LISTEN_FDS in order, as sd_listen_fds_with_names(3) does, then those that only SERVER_STARTER_PORT
// names. It ignores the LISTEN_ variables if LISTEN_PID, or LISTEN_PIDFDID where set, names another process.
//
// It makes every descriptor close-on-exec. Errors: a variable is malformed, a descriptor is not open, or one that
// SERVER_STARTER_PORT names is not a listening socket. LISTEN_FDS may list other things (a pipe, a pidfd from the
// file-descriptor store): these have no Network. The caller should remove the variables from its environment.
func FromEnvironment(environ []string, pid int) ([]Socket, error) {
	found, err := parse(environ, pid)
	for i := range found {
		if err == nil {
			err = found[i].examine()
		}
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Examine describes a descriptor that this process got in another way than through its environment, and makes it
// close-on-exec.
func Examine(fd int, name string) (Socket, error) {
	s := Socket{FD: fd, Name: name}
	return s, s.examine()
}

// highestFD is above every possible descriptor: fs.nr_open is at most 2^31, in practice 2^20.
const highestFD = 1 << 30

// parse reads the variables and touches no descriptor.
func parse(environ []string, pid int) ([]Socket, error) {
	variables := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			variables[name] = value
		}
	}
	found, err := parseListen(variables, pid)
	if err != nil {
		return nil, err
	}
	return parseStarter(variables["SERVER_STARTER_PORT"], found)
}

func parseListen(variables map[string]string, pid int) ([]Socket, error) {
	if variables["LISTEN_PID"] == "" || variables["LISTEN_FDS"] == "" {
		return nil, nil
	}
	whose, err := strconv.ParseUint(variables["LISTEN_PID"], 10, 31)
	if err != nil || whose == 0 {
		return nil, malformed("LISTEN_PID", variables["LISTEN_PID"])
	}
	if int(whose) != pid || !isPidfd(variables["LISTEN_PIDFDID"], pid) {
		return nil, nil
	}
	count, err := fdNumber("LISTEN_FDS", variables["LISTEN_FDS"])
	if err != nil {
		return nil, err
	}
	var names []string
	if list, named := variables["LISTEN_FDNAMES"]; named && (list != "" || count > 0) {
		if names = strings.Split(list, ":"); len(names) != count {
			return nil, fmt.Errorf("LISTEN_FDNAMES has %d names for LISTEN_FDS=%d", len(names), count)
		}
	} else if count > 0 {
		// Only the number says how many there are: check that the last one is open before allocating that many.
		if _, err := unix.FcntlInt(uintptr(FirstFD+count-1), unix.F_GETFD, 0); err != nil {
			return nil, fmt.Errorf("LISTEN_FDS=%d: descriptor %d: %w", count, FirstFD+count-1, err)
		}
	}
	found := make([]Socket, count)
	for i := range found {
		found[i] = Socket{FD: FirstFD + i, Name: "unknown"}
		if names != nil {
			found[i].Name = names[i]
		}
	}
	return found, nil
}

// fdNumber reads a number of descriptors, or the number of one.
func fdNumber(variable, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n > highestFD {
		return 0, malformed(variable, text)
	}
	return int(n), nil
}

func malformed(name, value string) error {
	return fmt.Errorf("the environment variable %s is malformed: %.200q", name, value)
}

// isPidfd reports whether the inode of a pidfd of pid is this one. Where that cannot be known it returns true.
func isPidfd(inode string, pid int) bool {
	if inode == "" {
		return true
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	var at unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &at) != nil || at.Type != unix.PID_FS_MAGIC || unix.Fstat(fd, &st) != nil {
		return true // before Linux 6.9 every pidfd has the same inode
	}
	return inode == strconv.FormatUint(st.Ino, 10)
}

// parseStarter reads SERVER_STARTER_PORT and adds what it names to found.
func parseStarter(value string, found []Socket) ([]Socket, error) {
	if value == "" {
		return found, nil
	}
	index := map[int]int{} // by descriptor
	for i, f := range found {
		index[f.FD] = i
	}
	for entry := range strings.SplitSeq(value, ";") {
		cut := strings.LastIndex(entry, "=") // the last one: a path may contain others
		if cut <= 0 {
			return nil, malformed("SERVER_STARTER_PORT", value)
		}
		fd, err := fdNumber("SERVER_STARTER_PORT", entry[cut+1:])
		if err != nil {
			return nil, malformed("SERVER_STARTER_PORT", value)
		}
		i, known := index[fd]
		if !known {
			i = len(found)
			index[fd] = i
			found = append(found, Socket{FD: fd, Name: entry[:cut]})
		}
		found[i].Starter = entry[:cut]
	}
	return found, nil
}

// examine finds out what the descriptor is and makes it close-on-exec.
func (s *Socket) examine() error {
	flags, err := unix.FcntlInt(uintptr(s.FD), unix.F_GETFD, 0)
	if err != nil {
		return fmt.Errorf("the inherited descriptor %d (%q) is not open: %w", s.FD, s.Name, err)
	}
	if _, err := unix.FcntlInt(uintptr(s.FD), unix.F_SETFD, flags|unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("cannot set close-on-exec on the inherited descriptor %d (%q): %w", s.FD, s.Name, err)
	}
	s.Network, s.Address, s.Listens = Describe(s.FD)
	if s.Starter != "" && !s.Listens {
		return fmt.Errorf("descriptor %d, which SERVER_STARTER_PORT calls %q, is not a listening socket", s.FD, s.Starter)
	}
	return nil
}

// networks are the kinds of sockets that can be listeners.
var networks = map[bool]map[int]string{ // by whether it is a unix socket
	true:  {unix.SOCK_STREAM: "unix", unix.SOCK_DGRAM: "unixgram", unix.SOCK_SEQPACKET: "unixpacket"},
	false: {unix.SOCK_STREAM: "tcp", unix.SOCK_DGRAM: "udp"},
}

// Describe returns Network, Address and Listens of a descriptor, as in Socket.
func Describe(fd int) (network, bound string, listens bool) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return "", "", false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return "", "", false
	}
	if at, isUnix := name.(*unix.SockaddrUnix); isUnix {
		network = networks[true][kind]
		if at.Name != "@" { // which is how x/sys/unix shows that it has no name
			bound = at.Name
		}
	} else if at, isIP := AddrPort(name); isIP {
		network, bound = networks[false][kind], at.String()
	}
	switch {
	case network == "":
		return "", "", false
	case kind == unix.SOCK_DGRAM:
		_, err := unix.Getpeername(fd) // a connected one hears its peer alone
		return network, bound, err != nil && bound != "" && !strings.HasSuffix(bound, ":0")
	}
	accepts, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return network, bound, err == nil && accepts != 0
}

// AddrPort returns the IP address, with the name of its zone, and the port of a socket address; false: it has none.
func AddrPort(name unix.Sockaddr) (netip.AddrPort, bool) {
	switch at := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)), true
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(at.Addr).Unmap()
		if at.ZoneId != 0 {
			zone := strconv.Itoa(int(at.ZoneId))
			if link, err := net.InterfaceByIndex(int(at.ZoneId)); err == nil {
				zone = link.Name
			}
			ip = ip.WithZone(zone)
		}
		return netip.AddrPortFrom(ip, uint16(at.Port)), true
	}
	return netip.AddrPort{}, false
}

// longestFDName is FDNAME_MAX of systemd.
const longestFDName = 255

// FDName returns name in the form that LISTEN_FDNAMES and FDNAME= can carry, sd_pid_notify_with_fds(3): ':' becomes
// '-', every other byte that is not printable ASCII becomes '_', and it is cut at 255 bytes. So a listener without a
// name of its own is found as "127.0.0.1-8080". The empty name becomes "unknown", as in systemd.
func FDName(name string) string {
	if name == "" {
		return "unknown"
	}
	plain := []byte(name[:min(len(name), longestFDName)])
	for i, c := range plain {
		switch {
		case c == ':':
			plain[i] = '-'
		case c < ' ' || c > '~':
			plain[i] = '_'
		}
	}
	return string(plain)
}
