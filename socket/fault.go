package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// remedied is an error of the kernel's, or one that means the same, with what to do about it.
type remedied struct {
	err    error
	remedy string
}

func (e *remedied) Error() string { return e.err.Error() + ": " + e.remedy }
func (e *remedied) Unwrap() error { return e.err }

// refused says that r could not be opened, why, and what to do. The kernel's error is wrapped (unix.EADDRINUSE, …).
func refused(r Resolved, err error) error {
	if err == nil {
		return nil
	}
	at := r.at.String()
	if r.Interface != "" {
		at += " on " + r.Interface
	}
	return fmt.Errorf("cannot listen on %s: %w", at, advise(r, err))
}

// advise adds the remedy to an error that has none.
func advise(r Resolved, err error) error {
	if _, ok := errors.AsType[*remedied](err); ok {
		return err
	}
	remedy := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		remedy = inUse(r.at)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		remedy = forbidden(r)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = "this machine does not have the address: `ip address` lists what it has"
	case errors.Is(err, unix.ENODEV):
		remedy = "there is no such interface: `ip link` lists them"
	case errors.Is(err, unix.EAFNOSUPPORT):
		remedy = "this kernel has IPv6 switched off: use an IPv4 address"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		remedy = "raise LimitNOFILE= of the unit, or `ulimit -n`"
	case errors.Is(err, unix.EROFS):
		remedy = "choose a path on a file system that can be written, such as /run"
	}
	if remedy == "" {
		return err
	}
	return &remedied{err, remedy}
}

func forbidden(r Resolved) string {
	switch {
	case r.Interface != "" && (r.at.port == 0 || r.at.port >= 1024):
		return "binding to an interface needs CAP_NET_RAW"
	case !r.at.isUnix():
		return "a port this low needs root or CAP_NET_BIND_SERVICE (or a lower net.ipv4.ip_unprivileged_port_start, or a systemd socket unit)"
	case r.at.onDisk() && (r.uid >= 0 || r.gid >= 0):
		return "the supervisor must be able to write in " + filepath.Dir(r.at.path) + ", and to give a socket to another user needs root"
	case r.at.onDisk():
		return "the supervisor must be able to write in " + filepath.Dir(r.at.path)
	}
	return "the supervisor's user may not do this"
}

// inUse says who has the address, as far as /proc tells this user.
func inUse(at bindAddr) string {
	switch {
	case at.onDisk():
		return "another process has just taken it: `ss -xlp` shows which"
	case at.isUnix():
		return "another process has this name: `ss -xlp` shows which"
	}
	if pid := holder(at); pid == os.Getpid() {
		return "supervisord itself has it, for another listener or for [supervisor] http (one on 0.0.0.0 or [::] takes the port of every address): choose another port"
	} else if pid > 0 {
		return processName(pid) + " has it: stop that or choose another port"
	}
	tool := "ss -ltnp"
	if at.isUDP() {
		tool = "ss -lunp"
	}
	return "`" + tool + "` as root shows who has it: stop that or choose another port"
}

func processName(pid int) string {
	name := proc.Name(pid)
	if name == "" {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(name), pid)
}

// holder finds a process that has a socket at the address or at one that overlaps it; 0: unknown.
func holder(at bindAddr) int {
	links := make(map[string]bool)
	for _, table := range []string{at.network, at.network + "6"} {
		text, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if inode, ok := overlapping(line, at); ok {
				links["socket:["+inode+"]"] = true
			}
		}
	}
	if len(links) == 0 {
		return 0
	}
	if has(os.Getpid(), links) {
		return os.Getpid()
	}
	end := time.Now().Add(searchTime)
	for _, pid := range proc.PIDs() {
		if has(pid, links) {
			return pid
		}
		if time.Now().After(end) {
			break
		}
	}
	return 0
}

// searchTime bounds the search for a name in an error: programs wait for it.
const searchTime = 100 * time.Millisecond

// has reports whether a process has one of these descriptors, as far as this user may know.
func has(pid int, links map[string]bool) bool {
	fds, _ := proc.Descriptors(pid)
	for _, link := range fds {
		if links[link] {
			return true
		}
	}
	return false
}

// overlapping reads a line of /proc/net/tcp or udp, proc_pid_net(5), and returns the socket's inode if it is at the address.
func overlapping(line string, at bindAddr) (inode string, ok bool) {
	const listening, unconnected = "0A", "07"
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listening && fields[3] != unconnected {
		return "", false
	}
	ip, port, ok := parseProcAddress(fields[1])
	if !ok || port != at.port || ip != at.ip.WithZone("") && !ip.IsUnspecified() && !at.ip.IsUnspecified() {
		return "", false
	}
	return fields[9], true
}

// parseProcAddress reads "0100007F:1F90": the address in words of the machine's byte order, the port in plain hex.
func parseProcAddress(s string) (netip.Addr, uint16, bool) {
	host, service, _ := strings.Cut(s, ":")
	port, err := strconv.ParseUint(service, 16, 16)
	if err != nil || len(host) != 8 && len(host) != 32 {
		return netip.Addr{}, 0, false
	}
	var bytes []byte
	for ; host != ""; host = host[8:] {
		word, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return netip.Addr{}, 0, false
		}
		bytes = binary.NativeEndian.AppendUint32(bytes, uint32(word))
	}
	ip, ok := netip.AddrFromSlice(bytes)
	return ip.Unmap(), uint16(port), ok
}
