// Package holder finds the process that has an address, for error messages. /proc/net shows the inode of each socket at
// the address, and /proc/PID/fd which process has that inode: to root the descriptors of all processes, to others those
// of their own user in the same PID namespace. Where nothing is found the message names the command that root may run.
// A search is only for the way to an error that a person reads, so it may take half a second.
package holder

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/proc"
)

// searchTime bounds a search: programs wait for its result.
const searchTime = 500 * time.Millisecond

// find returns a process with a "tcp" or "udp" socket at this address or at one that overlaps it: this one first, and
// rather the parent that has passed the socket on than its child, which the parent would start again. 0: unknown to
// this user.
func find(network string, at netip.AddrPort) (pid int) {
	links := map[string]bool{}
	for _, table := range []string{network, network + "6"} {
		text, _ := os.ReadFile("/proc/thread-self/net/" + table)
		for line := range strings.Lines(string(text)) {
			if inode, ok := overlapping(line, at); ok {
				links["socket:["+inode+"]"] = true
			}
		}
	}
	if len(links) == 0 {
		return 0
	}
	end := time.Now().Add(searchTime)
	for _, pid := range append([]int{os.Getpid()}, proc.PIDs()...) {
		if has(pid, links) {
			return eldest(pid, links)
		}
		if time.Now().After(end) {
			break
		}
	}
	return 0
}

// InUse says which process has an address that is in use, as far as this user may know, and what to do.
func InUse(network string, at netip.AddrPort) string {
	switch pid := find(network, at); {
	case pid == os.Getpid():
		return "supervisord itself has it, for another listener or for [supervisor] http (one on 0.0.0.0 or [::] takes " +
			"the port of every address): choose another port"
	case pid > 0:
		return Name(pid) + " has it: stop that or choose another port"
	case network == "udp":
		return "`ss -lunp` as root shows which process has it: stop that or choose another port"
	}
	return "`ss -ltnp` as root shows which process has it: stop that or choose another port"
}

// has reports whether a process has one of these sockets.
func has(pid int, links map[string]bool) bool {
	fds, _ := proc.Descriptors(pid)
	for _, link := range fds {
		if links[link] {
			return true
		}
	}
	return false
}

// eldest is the first ancestor of a process in a line of which each has one of these sockets.
func eldest(pid int, links map[string]bool) int {
	for {
		s, err := proc.ReadStat(pid)
		if err != nil || s.Parent <= 1 || !has(s.Parent, links) {
			return pid
		}
		pid = s.Parent
	}
}

// Name is a process as a person reads it: "nginx (process 12)".
func Name(pid int) string {
	name := strings.TrimSpace(proc.Name(pid))
	if name == "" {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", name, pid)
}

// overlapping reads a line of /proc/net/tcp or udp, proc_pid_net(5), and returns the socket's inode if it is at the
// address.
func overlapping(line string, at netip.AddrPort) (inode string, ok bool) {
	const listening, unconnected = "0A", "07"
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listening && fields[3] != unconnected {
		return "", false
	}
	found, ok := parse(fields[1])
	ip := found.Addr()
	same := ip == at.Addr().WithZone("") || ip.IsUnspecified() || at.Addr().IsUnspecified()
	return fields[9], ok && found.Port() == at.Port() && same
}

// parse reads "0100007F:1F90": the address in words of the machine's byte order, the port in plain hex.
func parse(s string) (netip.AddrPort, bool) {
	host, service, _ := strings.Cut(s, ":")
	port, err := strconv.ParseUint(service, 16, 16)
	if err != nil || len(host) != 8 && len(host) != 32 {
		return netip.AddrPort{}, false
	}
	var bytes []byte
	for ; host != ""; host = host[8:] {
		word, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		bytes = binary.NativeEndian.AppendUint32(bytes, uint32(word))
	}
	ip, ok := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), ok
}

// Of returns a process other than this one that has a socket, given by its inode, as a person reads it, or how root
// finds it where this user may not know, or the search took too long. Who came last is looked at first: it joined a
// port that supervisord had.
func Of(inode uint64) string {
	links := map[string]bool{"socket:[" + strconv.FormatUint(inode, 10) + "]": true}
	end := time.Now().Add(searchTime)
	for _, pid := range slices.Backward(proc.PIDs()) {
		if pid != os.Getpid() && has(pid, links) {
			if first := eldest(pid, links); first != os.Getpid() {
				pid = first
			}
			return Name(pid)
		}
		if time.Now().After(end) {
			break
		}
	}
	return "unknown: `ss -lnp` as root shows it"
}
