package socket

import (
	"strconv"
	"strings"
)

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

// starterVariables are what Server::Starter writes: "8080=3;127.0.0.1:8081=4;/run/web.sock=5", present and empty when there are
// no sockets. An address that it cannot express, which Spec.Check refuses, is left out of it. An abstract socket is "@name",
// and udp is not told from tcp, as there.
func starterVariables(t Told) []string {
	var ports []string
	for _, s := range t.Sockets {
		if name := s.starterName(); name != "" {
			ports = append(ports, name+"="+strconv.Itoa(s.number))
		}
	}
	return []string{"SERVER_STARTER_PORT=" + strings.Join(ports, ";"), "SERVER_STARTER_GENERATION=" + strconv.Itoa(t.Generation)}
}

// listenVariables are those of sd_listen_fds_with_names(3), which can tell only of sockets that follow one another from FirstFD
// up; one that is elsewhere, because it was asked to be, is not among them. LISTEN_FDNAMES has the names as FDName makes them. LISTEN_PID is added between fork and exec.
func listenVariables(t Told) []string {
	at := map[int]Passed{}
	for _, s := range t.Sockets {
		at[s.number] = s
	}
	var names []string
	for fd := FirstFD; at[fd].number == fd; fd++ {
		names = append(names, FDName(at[fd].Name))
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"LISTEN_FDS=" + strconv.Itoa(len(names)), "LISTEN_FDNAMES=" + strings.Join(names, ":")}
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
