package socket

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Inherit is one descriptor that this process was started with.
type Inherit struct {
	FD      int
	Name    string // its name in LISTEN_FDNAMES ("unknown" where that is missing); without LISTEN_FDS, Starter
	Starter string // its name in SERVER_STARTER_PORT; "": it is not there
	Network string // "tcp", "udp", "unix", "unixgram", "unixpacket"; "": it is no such socket
	Address string // where it is bound: "127.0.0.1:8080", "[::]:8080", "/run/web.sock", "@abstract"; "": nowhere
	Listens bool   // connections can be accepted from it, or it is a datagram socket that is bound and not connected
	Ours    bool   // a supervisor made it, and no socket unit keeps it: said by whoever knows
	InUse   bool   // a live worker has it, so O_NONBLOCK must stay as it is: said by whoever knows
}

// Inherited returns the descriptors that environ (as os.Environ gives it) says the process pid (one's own) was started with:
// those of LISTEN_FDS, in order, as sd_listen_fds_with_names(3) does, then those that only SERVER_STARTER_PORT names. The
// LISTEN_ variables are ignored if LISTEN_PID, or LISTEN_PIDFDID where it is set, is another process's.
//
// Every descriptor becomes close-on-exec. It is an error if a variable is malformed, if a descriptor is not open, or if one
// that SERVER_STARTER_PORT names is no listening socket. LISTEN_FDS may well bring other things (a pipe, a pidfd from the file
// descriptor store): those have no Network. The caller should take the variables out of its environment.
func Inherited(environ []string, pid int) ([]Inherit, error) {
	found, err := parseEnvironment(environ, pid)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if err := found[i].examine(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// highestFD is above every descriptor that a process can have (fs.nr_open is at most 2^31, in practice 2^20).
const highestFD = 1 << 30

// parseEnvironment reads the variables and changes no descriptor.
func parseEnvironment(environ []string, pid int) ([]Inherit, error) {
	variables := make(map[string]string)
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

func parseListen(variables map[string]string, pid int) ([]Inherit, error) {
	if variables["LISTEN_PID"] == "" || variables["LISTEN_FDS"] == "" {
		return nil, nil
	}
	whose, err := strconv.ParseUint(variables["LISTEN_PID"], 10, 31)
	if err != nil || whose == 0 {
		return nil, malformedVariable("LISTEN_PID", variables["LISTEN_PID"])
	}
	if int(whose) != pid || !samePidfd(variables["LISTEN_PIDFDID"], pid) {
		return nil, nil
	}
	count, err := strconv.ParseUint(variables["LISTEN_FDS"], 10, 31)
	if err != nil || count > highestFD {
		return nil, malformedVariable("LISTEN_FDS", variables["LISTEN_FDS"])
	}
	names, named := variables["LISTEN_FDNAMES"]
	var each []string
	if named && (names != "" || count > 0) {
		each = strings.Split(names, ":")
		if uint64(len(each)) != count {
			return nil, fmt.Errorf("LISTEN_FDNAMES has %d names for LISTEN_FDS=%d", len(each), count)
		}
	} else if err := openUpTo(int(count)); err != nil {
		return nil, err
	}
	found := make([]Inherit, count)
	for i := range found {
		found[i] = Inherit{FD: FirstFD + i, Name: "unknown"}
		if each != nil {
			found[i].Name = each[i]
		}
	}
	return found, nil
}

// openUpTo checks the last descriptor before so many are made room for: nothing but the number says how many there are.
func openUpTo(count int) error {
	if count == 0 {
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(FirstFD+count-1), unix.F_GETFD, 0); err != nil {
		return fmt.Errorf("LISTEN_FDS=%d: descriptor %d: %w", count, FirstFD+count-1, err)
	}
	return nil
}

func malformedVariable(name, value string) error {
	return fmt.Errorf("the environment variable %s is malformed: %.200q", name, value)
}

// samePidfd tells whether the inode of a pidfd of pid is the one given. It is taken for right where nobody can know.
func samePidfd(inode string, pid int) bool {
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
func parseStarter(value string, found []Inherit) ([]Inherit, error) {
	if value == "" {
		return found, nil
	}
	place := make(map[int]int)
	for i, f := range found {
		place[f.FD] = i
	}
	for entry := range strings.SplitSeq(value, ";") {
		// The last '=': a path may have others.
		cut := strings.LastIndex(entry, "=")
		if cut <= 0 {
			return nil, malformedVariable("SERVER_STARTER_PORT", value)
		}
		fd, err := strconv.ParseUint(entry[cut+1:], 10, 31)
		if err != nil || fd > highestFD {
			return nil, malformedVariable("SERVER_STARTER_PORT", value)
		}
		i, known := place[int(fd)]
		if !known {
			i = len(found)
			place[int(fd)] = i
			found = append(found, Inherit{FD: int(fd), Name: entry[:cut]})
		}
		found[i].Starter = entry[:cut]
	}
	return found, nil
}

// examine finds out what the descriptor is and makes it close-on-exec.
func (f *Inherit) examine() error {
	flags, err := unix.FcntlInt(uintptr(f.FD), unix.F_GETFD, 0)
	if err != nil {
		return fmt.Errorf("the inherited descriptor %d (%q) is not open: %w", f.FD, f.Name, err)
	}
	if _, err := unix.FcntlInt(uintptr(f.FD), unix.F_SETFD, flags|unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("inherited descriptor %d (%q): %w", f.FD, f.Name, err)
	}
	f.Network, f.Address, f.Listens = describe(f.FD)
	if f.Starter != "" && !f.Listens {
		return fmt.Errorf("descriptor %d, which SERVER_STARTER_PORT calls %q, is no listening socket", f.FD, f.Starter)
	}
	return nil
}

// describe says what a descriptor is; all is empty when it is no socket of a kind that a listener can have.
func describe(fd int) (network, bound string, listens bool) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return "", "", false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return "", "", false
	}
	switch at := name.(type) {
	case *unix.SockaddrInet4:
		network, bound = inetNetwork(kind), netip.AddrPortFrom(ip4(at), uint16(at.Port)).String()
	case *unix.SockaddrInet6:
		network, bound = inetNetwork(kind), netip.AddrPortFrom(ip6(at), uint16(at.Port)).String()
	case *unix.SockaddrUnix:
		network, bound = unixNetwork(kind), at.Name
		if bound == "@" { // how x/sys/unix shows that it has no name
			bound = ""
		}
	}
	switch {
	case network == "":
		return "", "", false
	case kind == unix.SOCK_DGRAM:
		_, err := unix.Getpeername(fd) // one that is connected hears its peer alone
		return network, bound, err != nil && bound != "" && !strings.HasSuffix(bound, ":0")
	}
	accepts, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return network, bound, err == nil && accepts != 0
}

func inetNetwork(kind int) string {
	switch kind {
	case unix.SOCK_STREAM:
		return "tcp"
	case unix.SOCK_DGRAM:
		return "udp"
	}
	return ""
}

func unixNetwork(kind int) string {
	switch kind {
	case unix.SOCK_STREAM:
		return "unix"
	case unix.SOCK_DGRAM:
		return "unixgram"
	case unix.SOCK_SEQPACKET:
		return "unixpacket"
	}
	return ""
}

func ip4(at *unix.SockaddrInet4) netip.Addr { return netip.AddrFrom4(at.Addr) }

func ip6(at *unix.SockaddrInet6) netip.Addr {
	ip := netip.AddrFrom16(at.Addr)
	if at.ZoneId == 0 {
		return ip
	}
	if link, err := net.InterfaceByIndex(int(at.ZoneId)); err == nil {
		return ip.WithZone(link.Name)
	}
	return ip.WithZone(strconv.Itoa(int(at.ZoneId)))
}

// Examine says what a descriptor is that this process got under a name, in another way than through its environment,
// and makes it close-on-exec.
func Examine(fd int, name string) (Inherit, error) {
	i := Inherit{FD: fd, Name: name}
	return i, i.examine()
}
