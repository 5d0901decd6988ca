package socket

import (
	"strconv"
	"strings"
)

// Passed is one socket as a worker gets it.
type Passed struct {
	Name    string // for LISTEN_FDNAMES
	Address string // as written in the configuration; SERVER_STARTER_PORT's name for it is made from this
	FD      Place  // the number that it asks for
	Starter string // its name in SERVER_STARTER_PORT; "": made from Address
}

// Places returns the number that each of these sockets has in a worker: the one that it asks for, or the lowest that is left
// from FirstFD up, in order.
func Places(asked []Place) []int {
	taken := map[int]bool{}
	for _, p := range asked {
		taken[p.Number] = taken[p.Number] || p.Fixed
	}
	numbers, next := make([]int, len(asked)), FirstFD
	for i, p := range asked {
		if p.Fixed {
			numbers[i] = p.Number
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

// Environment describes the sockets that a worker has, in every dialect that needs no PID: SERVER_STARTER_PORT, in the order
// given, and LISTEN_FDS with LISTEN_FDNAMES. (LISTEN_PID is added between fork and exec.) LISTEN_FDS can only tell of those
// that follow one another from FirstFD up; one that is elsewhere, because it was asked to be, is not among them.
//
// SERVER_STARTER_PORT is what Server::Starter writes: "8080=3;127.0.0.1:8081=4;/run/web.sock=5", present and empty when there
// are no sockets. An address that it cannot express, which Spec.Check refuses, is left out of it. An abstract socket is
// "@name", and udp is not told from tcp, as there. LISTEN_FDNAMES has the names as FDName makes them.
func Environment(sockets []Passed) []string {
	var ports, names []string
	asked, at := make([]Place, len(sockets)), map[int]string{}
	for i, s := range sockets {
		asked[i] = s.FD
	}
	for i, fd := range Places(asked) {
		at[fd] = FDName(sockets[i].Name)
		if name := sockets[i].starterName(); name != "" {
			ports = append(ports, name+"="+strconv.Itoa(fd))
		}
	}
	for fd := FirstFD; at[fd] != ""; fd++ {
		names = append(names, at[fd])
	}
	environment := []string{"SERVER_STARTER_PORT=" + strings.Join(ports, ";")}
	if len(names) > 0 {
		environment = append(environment,
			"LISTEN_FDS="+strconv.Itoa(len(names)),
			"LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	return environment
}

func (p Passed) starterName() string {
	if p.Starter != "" {
		return p.Starter
	}
	w, err := parseAddress(p.Address)
	if err != nil {
		return ""
	}
	return w.starterName()
}

// longestFDName is FDNAME_MAX of systemd.
const longestFDName = 255

// FDName is name as LISTEN_FDNAMES and FDNAME= can carry it, sd_pid_notify_with_fds(3): every ':' is a '-', every other byte
// that is not printable ASCII a '_', and it is cut at 255. So a listener without a name of its own is found as
// "127.0.0.1-8080"; nothing at all is "unknown", as systemd has it.
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
