package socket

import (
	"strconv"
	"strings"
)

// Passed is one socket as a worker gets it.
type Passed struct {
	Name    string // for LISTEN_FDNAMES
	Address string // as written in the configuration; SERVER_STARTER_PORT's name for it is made from this
}

// Environment describes sockets that a worker finds at FirstFD and up, in this order, in every dialect that needs no PID:
// SERVER_STARTER_PORT, LISTEN_FDS, LISTEN_FDNAMES. (LISTEN_PID is added between fork and exec.)
//
// SERVER_STARTER_PORT is what Server::Starter writes: "8080=3;127.0.0.1:8081=4;/run/web.sock=5", present and empty when there
// are no sockets. An address that it cannot express, which Spec.Check refuses, is left out of it. An abstract socket is
// "@name", and udp is not told from tcp, as there. LISTEN_FDNAMES has the names as FDName makes them.
func Environment(sockets []Passed) []string {
	var ports, names []string
	for i, s := range sockets {
		names = append(names, FDName(s.Name))
		if w, err := parseAddress(s.Address); err == nil {
			ports = append(ports, w.starterName()+"="+strconv.Itoa(FirstFD+i))
		}
	}
	environment := []string{"SERVER_STARTER_PORT=" + strings.Join(ports, ";")}
	if len(sockets) > 0 {
		environment = append(environment,
			"LISTEN_FDS="+strconv.Itoa(len(sockets)),
			"LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	return environment
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
