// Package dialect writes the environment variables by which programs find the sockets that they were started with.
// Package inherit reads some of them back. Of two sockets, "http" at every address and "local" at a path, a worker of
// generation 7 reads:
//
//	systemd        LISTEN_FDS=2 LISTEN_FDNAMES=http:local, and LISTEN_PID, which is written between fork and exec
//	start_server   SERVER_STARTER_PORT=8080=3;/run/web.sock=4 SERVER_STARTER_GENERATION=7
//
// Only numbers that follow one another from 3 up can be listed for systemd; start_server takes any.
package dialect

import (
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// Name is the name of a dialect: a set of variables.
type Name string

// The dialects, each named after the program that defined it. A worker that names none is spoken to in both.
const (
	Systemd     Name = "systemd"      // LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID: sd_listen_fds(3)
	StartServer Name = "start_server" // SERVER_STARTER_PORT, SERVER_STARTER_GENERATION: Server::Starter
)

// All lists the dialects.
func All() []Name { return []Name{Systemd, StartServer} }

// Message is what a worker is told about its sockets.
type Message struct {
	Dialects   []Name // to speak; nil: all of them; empty, but not nil: none
	Sockets    []Passed
	Generation int
}

// Passed is one socket as a worker gets it.
type Passed struct {
	Name    string // for LISTEN_FDNAMES
	Address socket.Address
	FD      int    // its number in the worker
	Starter string // its name in SERVER_STARTER_PORT; "": made from Address
}

// Environment returns the variables. LISTEN_PID is missing: it is known only between fork and exec.
func (m Message) Environment() []string {
	var environment []string
	speaks := func(n Name) bool { return m.Dialects == nil || slices.Contains(m.Dialects, n) }
	if speaks(Systemd) {
		environment = append(environment, systemd(m)...)
	}
	if speaks(StartServer) {
		environment = append(environment, startServer(m)...)
	}
	return environment
}

// systemd can list only sockets whose numbers follow one another from FirstFD up; a socket elsewhere is left out.
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

// startServer writes what Server::Starter does: "8080=3;127.0.0.1:8081=4;/run/web.sock=5", present and empty without
// sockets. An abstract socket is "@name". As there, UDP looks like TCP.
func startServer(m Message) []string {
	var ports []string
	for _, s := range m.Sockets {
		if s.Starter == "" {
			s.Starter = s.Address.StarterName()
		}
		ports = append(ports, s.Starter+"="+strconv.Itoa(s.FD))
	}
	return []string{"SERVER_STARTER_PORT=" + strings.Join(ports, ";"),
		"SERVER_STARTER_GENERATION=" + strconv.Itoa(m.Generation)}
}

// FDNumbers returns the number that each of these listeners has in a worker: the one that it asks for, or the lowest
// that is free from FirstFD up, in order.
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
