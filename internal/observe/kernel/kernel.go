// Package kernel asks Linux what nobody else knows about a reload: how many connections a worker still has, how many wait to be
// accepted, and how many were turned away. Nothing in it needs the workers' help, and it keeps nothing between two questions.
package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoQueue says that a socket is none that connections wait for.
var ErrNoQueue = errors.New("not a listening socket")

// Queue is the queue of connections that are established and wait to be accepted.
type Queue struct {
	Waiting int `json:"waiting"`
	Limit   int `json:"limit"`
}

// AcceptQueue looks at the queue of one of this process's own listening sockets: of TCP by TCP_INFO (tcp(7), where
// tcpi_unacked and tcpi_sacked of a listener are its queue and the limit), of a unix socket by sock_diag(7).
// Errors: ErrNoQueue for anything else.
func AcceptQueue(fd int) (Queue, error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return Queue{}, os.NewSyscallError("getsockopt", err)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return Queue{}, ErrNoQueue
	}
	switch domain {
	case unix.AF_INET, unix.AF_INET6:
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err != nil {
			return Queue{}, os.NewSyscallError("getsockopt", err)
		}
		return Queue{int(info.Unacked), int(info.Sacked)}, nil
	case unix.AF_UNIX:
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return Queue{}, os.NewSyscallError("fstat", err)
		}
		waiting, limit, err := unixWaiting(stat.Ino)
		return Queue{waiting, limit}, err
	}
	return Queue{}, ErrNoQueue
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

// maxDescriptors bounds what one count of connections may cost: about a microsecond for each.
const maxDescriptors = 100_000

// ErrTooMany says that there are more descriptors than are looked at.
var ErrTooMany = fmt.Errorf("more than %d descriptors", maxDescriptors)

// Connections counts the connections that these processes and their descendants have open, of those that came in on the listeners
// with these addresses, as the kernel gives them ("127.0.0.1:8080", "/run/web.sock", "@abstract"). It needs what ptrace(2) calls read
// access to the processes: their user, or CAP_SYS_PTRACE. Errors: fs.ErrPermission (wrapped) without that, and ErrTooMany.
func Connections(pids []int, addresses []string) (int, error) {
	held, err := sockets(family(pids))
	if err != nil || len(held) == 0 {
		return 0, err
	}
	n := 0
	count := func(inode uint64) {
		if held[inode] {
			n++
		}
	}
	for _, address := range slices.Compact(slices.Sorted(slices.Values(addresses))) {
		if err := inodes(address, count); err != nil {
			return n, err
		}
	}
	return n, nil
}

func inodes(address string, see func(inode uint64)) error {
	if name, abstract := strings.CutPrefix(address, "@"); abstract {
		return unixInodes("\x00"+name, see)
	}
	if strings.HasPrefix(address, "/") {
		return unixInodes(address, see)
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	return tcpInodes(uint16(port), see)
}

// family adds the descendants of processes.
func family(pids []int) []int {
	all := slices.Clone(pids)
	for i := 0; i < len(all) && i < maxDescriptors; i++ {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", all[i], all[i]))
		if err != nil {
			continue // gone, or a kernel without CONFIG_PROC_CHILDREN
		}
		for _, word := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(word); err == nil && !slices.Contains(all, pid) {
				all = append(all, pid)
			}
		}
	}
	return all
}

// sockets collects the inodes of the sockets that processes have open. A process that has gone has none.
func sockets(pids []int) (map[uint64]bool, error) {
	held := map[uint64]bool{}
	seen := 0
	for _, pid := range pids {
		dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = eachSocket(dir, &seen, held)
		dir.Close() //nolint:errcheck // it was only read
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

func eachSocket(dir *os.File, seen *int, held map[uint64]bool) error {
	for {
		names, err := dir.Readdirnames(1024)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if *seen += len(names); *seen > maxDescriptors {
			return ErrTooMany
		}
		for _, name := range names {
			link, err := os.Readlink(dir.Name() + "/" + name)
			if errors.Is(err, os.ErrPermission) {
				return err
			}
			number, ok := strings.CutPrefix(strings.TrimSuffix(link, "]"), "socket:[")
			if inode, bad := strconv.ParseUint(number, 10, 64); ok && bad == nil {
				held[inode] = true
			}
		}
	}
}
