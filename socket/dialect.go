package socket

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Dialect is a set of environment variables by which programs learn of the sockets that they were started with.
type Dialect string

// The dialects, each as the program has it that the name is of.
const (
	Systemd     Dialect = "systemd"      // LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID: sd_listen_fds(3)
	StartServer Dialect = "start_server" // SERVER_STARTER_PORT, SERVER_STARTER_GENERATION: Server::Starter
	Einhorn     Dialect = "einhorn"      // EINHORN_FD_COUNT, EINHORN_FD_0, …, and the control socket for the ack
	Nginx       Dialect = "nginx"        // NGINX, which an nginx sets for the one that replaces it
	PHPFPM      Dialect = "php-fpm"      // FPM_SOCKETS, likewise of a php-fpm
	Unicorn     Dialect = "unicorn"      // UNICORN_FD, likewise of a unicorn
	Gunicorn    Dialect = "gunicorn"     // GUNICORN_FD and GUNICORN_PID, likewise of a gunicorn
)

// dialect is what is to be known of one.
type dialect struct {
	name     Dialect
	write    func(Told) []string
	reserved []string // names of its variables; one that ends in _ is the beginning of many
	upgrade  bool     // it makes a program believe that it replaces another one, so it has to be asked for
}

var dialects = []dialect{
	{Systemd, listenVariables, []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDNAMES"}, false},
	{StartServer, starterVariables, []string{"SERVER_STARTER_PORT", "SERVER_STARTER_GENERATION"}, false},
	{Einhorn, einhornVariables, []string{"EINHORN_"}, false},
	{Nginx, nginxVariables, []string{"NGINX"}, true},
	{PHPFPM, fpmVariables, []string{"FPM_SOCKETS", "FPM_SOCKETS_"}, true},
	{Unicorn, unicornVariables, []string{"UNICORN_FD"}, true},
	{Gunicorn, gunicornVariables, []string{"GUNICORN_FD", "GUNICORN_PID"}, true},
}

// Dialects lists all there are.
func Dialects() []Dialect {
	var names []Dialect
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

// IsUpgrade tells whether d is the language of one program for its own successor. Such a program must find one of its listeners
// by it, and it takes whoever started it for itself.
func (d Dialect) IsUpgrade() bool {
	return slices.ContainsFunc(dialects, func(o dialect) bool { return o.name == d && o.upgrade })
}

// Reserved tells whether the variable belongs to one of these dialects (nil: those that are spoken by default), so that nobody
// else may set it.
func Reserved(spoken []Dialect, variable string) bool {
	for _, d := range dialects {
		if spoken == nil && d.upgrade || spoken != nil && !slices.Contains(spoken, d.name) {
			continue
		}
		for _, name := range d.reserved {
			if variable == name || strings.HasSuffix(name, "_") && strings.HasPrefix(variable, name) {
				return true
			}
		}
	}
	return false
}

// Told is what a worker is told of its sockets, and of itself as far as a dialect has words for it.
type Told struct {
	// Dialects are those to speak. nil: systemd, start_server, and of einhorn's the descriptors alone: they harm nobody who does not
	// look for them. None, but not nil: none.
	Dialects   []Dialect
	Sockets    []Passed
	Parent     int // the PID of the process that starts the worker, which some workers compare with their getppid(2)
	Slot       int
	Generation int
}

// Passed is one socket as a worker gets it.
type Passed struct {
	Name    string // for LISTEN_FDNAMES
	Address string // as written in the configuration; SERVER_STARTER_PORT's name for it is made from this
	Bound   string // where it is bound, as Table.Address has it
	FD      Place  // the number that it asks for
	Starter string // its name in SERVER_STARTER_PORT; "": made from Address

	number int // in the worker
}

// Environment is what Told comes to. What can be known only between fork and exec is not there: LISTEN_PID and the variables
// of the control socket, EINHORN_SOCK_PATH and EINHORN_SOCK_FD.
func (t Told) Environment() []string {
	t.Sockets = slices.Clone(t.Sockets)
	asked := make([]Place, len(t.Sockets))
	for i, s := range t.Sockets {
		asked[i] = s.FD
	}
	for i, number := range Places(asked) {
		t.Sockets[i].number = number
	}
	var environment []string
	for _, d := range dialects {
		if t.Dialects == nil && !d.upgrade || slices.Contains(t.Dialects, d.name) {
			environment = append(environment, d.write(t)...)
		}
	}
	return environment
}

// network is that of a socket, by the configuration.
func (p Passed) network() string {
	w, err := parseAddress(p.Address)
	if err != nil {
		return ""
	}
	return w.network
}

// numbers lists the descriptors of the stream sockets: the programs of the upgrade dialects know what to do with no others.
func (t Told) numbers() []string {
	var numbers []string
	for _, s := range t.Sockets {
		if s.network() != "udp" {
			numbers = append(numbers, strconv.Itoa(s.number))
		}
	}
	return numbers
}

// einhornVariables: without being asked for, only where the sockets are. The variables that say that einhorn is the parent make
// clients of it send an ack, and some end themselves where they cannot.
func einhornVariables(t Told) []string {
	var vars, all []string
	for i, s := range t.Sockets {
		n := strconv.Itoa(i)
		vars = append(vars, "EINHORN_FD_"+n+"="+strconv.Itoa(s.number), "EINHORN_FD_FAMILY_"+n+"="+s.family())
		all = append(all, strconv.Itoa(s.number))
	}
	if t.Dialects == nil && len(t.Sockets) == 0 {
		return nil
	}
	vars = append(vars, "EINHORN_FD_COUNT="+strconv.Itoa(len(t.Sockets)))
	if t.Dialects == nil {
		return vars
	}
	return append(vars, "EINHORN_FDS="+strings.Join(all, " "),
		"EINHORN_MASTER_PID="+strconv.Itoa(t.Parent), "EINHORN_CHILD_INDEX="+strconv.Itoa(t.Slot))
}

// family is the name of the constant in C, Ruby and Python.
func (p Passed) family() string {
	if p.network() == "unix" {
		return "AF_UNIX"
	}
	if at, err := netip.ParseAddrPort(p.Bound); err == nil && at.Addr().Is6() {
		return "AF_INET6"
	}
	return "AF_INET"
}

// nginxVariables: every number is followed by a semicolon. nginx asks the kernel where a socket is bound, takes those that its
// configuration has a listen directive for, and closes the others. It takes udp too.
func nginxVariables(t Told) []string {
	if len(t.Sockets) == 0 {
		return nil
	}
	value := ""
	for _, s := range t.Sockets {
		value += strconv.Itoa(s.number) + ";"
	}
	return []string{"NGINX=" + value}
}

// fpmVariables: php-fpm finds a socket by its address, spelled as itself spells it. It removes the path of a unix socket that
// its configuration does not have.
func fpmVariables(t Told) []string {
	var pairs []string
	for _, s := range t.Sockets {
		if key := s.fpmKey(); key != "" {
			pairs = append(pairs, key+"="+strconv.Itoa(s.number))
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return []string{"FPM_SOCKETS=" + strings.Join(pairs, ",")}
}

// fpmKey is what inet_ntop(3) makes of the address, a colon and the port, without brackets around IPv6; or a path.
func (p Passed) fpmKey() string {
	switch p.network() {
	case "tcp":
		at, err := netip.ParseAddrPort(p.Bound)
		if err != nil {
			return ""
		}
		return at.Addr().WithZone("").String() + ":" + strconv.Itoa(int(at.Port()))
	case "unix":
		if strings.HasPrefix(p.Bound, "/") && !strings.Contains(p.Bound, ",") {
			return p.Bound
		}
	}
	return ""
}

// unicornVariables: unicorn closes what its configuration does not have, by the address that the kernel tells.
func unicornVariables(t Told) []string {
	if numbers := t.numbers(); len(numbers) > 0 {
		return []string{"UNICORN_FD=" + strings.Join(numbers, ",")}
	}
	return nil
}

// gunicornVariables: gunicorn looks at GUNICORN_FD only if GUNICORN_PID is there; and while that is its parent's PID it goes on
// to believe that another one serves beside it, and leaves the paths of unix sockets alone when it stops.
func gunicornVariables(t Told) []string {
	numbers := t.numbers()
	if len(numbers) == 0 {
		return nil
	}
	return []string{"GUNICORN_FD=" + strings.Join(numbers, ","), "GUNICORN_PID=" + strconv.Itoa(t.Parent)}
}
