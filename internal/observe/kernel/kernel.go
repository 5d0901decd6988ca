// Package kernel asks Linux what nobody else knows about a reload: how many connections a worker still has, how many wait to be
// accepted, and how many were turned away. Nothing in it needs the workers' help, and it keeps nothing between two questions.
package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoQueue says that connections do not queue on a socket.
var ErrNoQueue = errors.New("not a listening socket")

// AcceptQueue returns how many connections wait to be accepted from one of this process's own listening sockets, and how many can.
// It asks TCP sockets by TCP_INFO (tcp(7); tcpi_unacked and tcpi_sacked of a listener are the queue and its limit), unix sockets by
// sock_diag(7). Errors: ErrNoQueue for anything else.
func AcceptQueue(fd int) (waiting, limit int, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt", err)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return 0, 0, ErrNoQueue
	}
	switch domain {
	case unix.AF_INET, unix.AF_INET6:
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, 0, os.NewSyscallError("getsockopt", err)
		}
		return int(info.Unacked), int(info.Sacked), nil
	case unix.AF_UNIX:
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return 0, 0, os.NewSyscallError("fstat", err)
		}
		return unixWaiting(stat.Ino)
	}
	return 0, 0, ErrNoQueue
}

// Refused counts the connections that the kernel turned away in this network namespace, on whatever socket.
type Refused struct{ Overflows, Drops int64 }

// Listen reads ListenOverflows and ListenDrops out of /proc/net/netstat (proc(5)): how often an accept queue was full, and how often a
// connection was dropped for that or another reason.
func Listen() (Refused, error) {
	text, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		return Refused{}, err
	}
	return parseNetstat(text)
}

// parseNetstat reads pairs of lines: the names, then the values, both after the same first word.
func parseNetstat(text []byte) (r Refused, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		names := strings.Fields(lines.Text())
		if len(names) == 0 || names[0] != "TcpExt:" || !lines.Scan() {
			continue
		}
		values := strings.Fields(lines.Text())
		for name, into := range map[string]*int64{"ListenOverflows": &r.Overflows, "ListenDrops": &r.Drops} {
			i := slices.Index(names, name)
			if i < 0 || i >= len(values) {
				return r, fmt.Errorf("/proc/net/netstat has no %s", name)
			}
			if *into, err = strconv.ParseInt(values[i], 10, 64); err != nil {
				return r, fmt.Errorf("/proc/net/netstat: %s: %w", name, err)
			}
		}
		return r, nil
	}
	return r, errors.New("/proc/net/netstat has no TcpExt")
}
