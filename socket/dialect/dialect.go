// Package dialect writes the environment variables by which programs find the sockets that they were started with. Package inherit
// reads some of them back.
package dialect

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// Name is the name of a dialect: a set of variables.
type Name string

// The dialects, each named after the program that defined it.
const (
	Systemd     Name = "systemd"      // LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID: sd_listen_fds(3)
	StartServer Name = "start_server" // SERVER_STARTER_PORT, SERVER_STARTER_GENERATION: Server::Starter
	Einhorn     Name = "einhorn"      // EINHORN_FD_COUNT, EINHORN_FD_0, …, and the control socket for the ack
	Nginx       Name = "nginx"        // NGINX, which an nginx sets for its successor
	PHPFPM      Name = "php-fpm"      // FPM_SOCKETS, likewise from php-fpm
	Unicorn     Name = "unicorn"      // UNICORN_FD, likewise from unicorn
	Gunicorn    Name = "gunicorn"     // GUNICORN_FD and GUNICORN_PID, likewise from gunicorn
)

var dialects = []struct {
	name    Name
	write   func(Message) []string
	upgrade bool // see IsUpgrade
}{
	{Systemd, systemd, false},
	{StartServer, startServer, false},
	{Einhorn, einhorn, false},
	{Nginx, nginx, true},
	{PHPFPM, phpFPM, true},
	{Unicorn, unicorn, true},
	{Gunicorn, gunicorn, true},
}

// All lists the dialects.
func All() []Name {
	var names []Name
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

// IsUpgrade reports whether n imitates a server's own protocol for binary upgrades. The server then takes its parent for its
// predecessor, and must find at least one of its sockets. Such a dialect is spoken only to programs that ask for it.
func (n Name) IsUpgrade() bool {
	for _, d := range dialects {
		if d.name == n {
			return d.upgrade
		}
	}
	return false
}

// Message is what a worker is told about its sockets, and about itself where a dialect has words for it.
type Message struct {
	// Dialects to speak. nil: systemd, start_server, and from einhorn the descriptors alone, which are harmless to programs that do not
	// look for them. Empty, but not nil: none.
	Dialects   []Name
	Sockets    []Passed
	Parent     int // PID of the process that starts the worker, which some programs compare with getppid(2)
	Slot       int
	Generation int
}

// Passed is one socket as a worker gets it.
type Passed struct {
	Name    string // for LISTEN_FDNAMES
	Address socket.Address
	Bound   string // where it is bound, as Table.Address returns it
	FD      int    // its number in the worker
	Starter string // its name in SERVER_STARTER_PORT; "": made from Address
}

// Environment returns the variables. Those that are known only between fork and exec are missing: LISTEN_PID, EINHORN_SOCK_PATH and
// EINHORN_SOCK_FD.
func (m Message) Environment() []string {
	var environment []string
	for _, d := range dialects {
		if m.Dialects == nil && !d.upgrade || slices.Contains(m.Dialects, d.name) {
			environment = append(environment, d.write(m)...)
		}
	}
	return environment
}

// systemd can list only sockets whose numbers follow one another from FirstFD up; a socket elsewhere is left out. LISTEN_PID is added
// between fork and exec.
func systemd(m Message) []string {
	names := map[int]string{}
	for _, s := range m.Sockets {
		names[s.FD] = inherit.FDName(s.Name)
	}
	var list []string
	for fd := inherit.FirstFD; names[fd] != ""; fd++ {
		list = append(list, names[fd])
	}
	if len(list) == 0 {
		return nil
	}
	return []string{"LISTEN_FDS=" + strconv.Itoa(len(list)), "LISTEN_FDNAMES=" + strings.Join(list, ":")}
}

// startServer writes what Server::Starter does: "8080=3;127.0.0.1:8081=4;/run/web.sock=5", present and empty without sockets.
// An abstract socket is "@name". As there, UDP looks like TCP.
func startServer(m Message) []string {
	var ports []string
	for _, s := range m.Sockets {
		if s.Starter == "" {
			s.Starter = s.Address.StarterName()
		}
		ports = append(ports, s.Starter+"="+strconv.Itoa(s.FD))
	}
	return []string{"SERVER_STARTER_PORT=" + strings.Join(ports, ";"), "SERVER_STARTER_GENERATION=" + strconv.Itoa(m.Generation)}
}

// einhorn: by default only where the sockets are. The variables that make einhorn the parent cause its clients to send an ack, and
// some exit where they cannot.
func einhorn(m Message) []string {
	if m.Dialects == nil && len(m.Sockets) == 0 {
		return nil
	}
	var vars, all []string
	for i, s := range m.Sockets {
		n, fd := strconv.Itoa(i), strconv.Itoa(s.FD)
		vars = append(vars, "EINHORN_FD_"+n+"="+fd, "EINHORN_FD_FAMILY_"+n+"="+s.family())
		all = append(all, fd)
	}
	vars = append(vars, "EINHORN_FD_COUNT="+strconv.Itoa(len(m.Sockets)))
	if m.Dialects == nil {
		return vars
	}
	return append(vars, "EINHORN_FDS="+strings.Join(all, " "),
		"EINHORN_MASTER_PID="+strconv.Itoa(m.Parent), "EINHORN_CHILD_INDEX="+strconv.Itoa(m.Slot))
}

// family is the name of the constant in C, Ruby and Python.
func (s Passed) family() string {
	if s.Address.IsUnix() {
		return "AF_UNIX"
	}
	if at, err := netip.ParseAddrPort(s.Bound); err == nil && at.Addr().Is6() {
		return "AF_INET6"
	}
	return "AF_INET"
}

// nginx expects a semicolon after every number. It asks the kernel where a socket is bound, takes those that its configuration has a
// listen directive for, UDP included, and closes the others.
func nginx(m Message) []string {
	if len(m.Sockets) == 0 {
		return nil
	}
	value := ""
	for _, s := range m.Sockets {
		value += strconv.Itoa(s.FD) + ";"
	}
	return []string{"NGINX=" + value}
}

// phpFPM finds a socket by its address in its own spelling. It removes the path of a unix socket that its configuration does not list.
func phpFPM(m Message) []string {
	var pairs []string
	for _, s := range m.Sockets {
		if key := s.fpmKey(); key != "" {
			pairs = append(pairs, key+"="+strconv.Itoa(s.FD))
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return []string{"FPM_SOCKETS=" + strings.Join(pairs, ",")}
}

// fpmKey is what inet_ntop(3) makes of the address, a colon and the port, without brackets around IPv6; or a path.
func (s Passed) fpmKey() string {
	at, err := netip.ParseAddrPort(s.Bound)
	switch {
	case s.Address.OnDisk() && !strings.Contains(s.Bound, ","):
		return s.Bound
	case s.Address.IsUnix(), s.Address.IsUDP(), err != nil:
		return ""
	}
	return at.Addr().WithZone("").String() + ":" + strconv.Itoa(int(at.Port()))
}

// streams lists the descriptors of the stream sockets, the only ones that unicorn and gunicorn know what to do with.
func (m Message) streams() string {
	var numbers []string
	for _, s := range m.Sockets {
		if !s.Address.IsUDP() {
			numbers = append(numbers, strconv.Itoa(s.FD))
		}
	}
	return strings.Join(numbers, ",")
}

// unicorn closes the sockets that its configuration does not list, by the address that the kernel returns.
func unicorn(m Message) []string {
	if list := m.streams(); list != "" {
		return []string{"UNICORN_FD=" + list}
	}
	return nil
}

// gunicorn looks at GUNICORN_FD only if GUNICORN_PID is set. While that is its parent's PID it believes that another gunicorn serves
// beside it, and leaves the paths of unix sockets alone when it stops.
func gunicorn(m Message) []string {
	if list := m.streams(); list != "" {
		return []string{"GUNICORN_FD=" + list, "GUNICORN_PID=" + strconv.Itoa(m.Parent)}
	}
	return nil
}

// FDNumbers returns the number that each of these listeners has in a worker: the one that it asks for, or the lowest that is free
// from FirstFD up, in order.
func FDNumbers(listeners []socket.Spec) []int {
	taken := map[int]bool{}
	for _, s := range listeners {
		taken[s.FD.Number] = taken[s.FD.Number] || s.FD.Fixed
	}
	numbers, next := make([]int, len(listeners)), inherit.FirstFD
	for i, s := range listeners {
		if s.FD.Fixed {
			numbers[i] = s.FD.Number
			continue
		}
		for taken[next] {
			next++
		}
		numbers[i] = next
		next++
	}
	return numbers
}
