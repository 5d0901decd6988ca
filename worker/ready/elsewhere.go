package ready

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker/bind"
)

// mostElsewhere is how many sockets of its own a worker is told of.
const mostElsewhere = 3

// Elsewhere says why nobody may wait on the worker's sockets, as far as it can be seen, and what to do: its processes
// listen with sockets of their own, or LISTEN_PID, by which sd_listen_fds(3) refuses sockets, is that of a wrapper.
// "": nothing is strange. number is the worker's number of the first socket.
func (a Accepting) Elsewhere(number int) string {
	view, err := newKernelView(a.Sockets, false)
	if err != nil {
		return ""
	}
	listening, nowhere := map[uint64]string{}, map[uint64]bool{}
	tcp, err := diag.Listeners(0)
	for _, l := range tcp {
		listening[l.Inode], nowhere[l.Inode] = l.At.String(), l.At.Addr().Unmap() == bind.Nowhere
	}
	err = errors.Join(err, diag.UnixListeners(func(inode uint64, path string) { listening[inode] = "unix:" + path }))
	if err != nil {
		return ""
	}
	var facts []string
	var last, wrapped string
	for pid := range a.processes() {
		links, _ := proc.Descriptors(pid)
		heir := false // it has one of our sockets
		for _, fd := range slices.Sorted(maps.Keys(links)) {
			inode, _ := proc.SocketInode(links[fd])
			heir = heir || view.sockets[inode]
			at, listens := listening[inode]
			if !listens || view.sockets[inode] || len(facts) == mostElsewhere {
				continue
			}
			delete(listening, inode) // which its children may have, too
			who := fmt.Sprintf("%s (PID %d) listens ", proc.Name(pid), pid)
			if nowhere[inode] {
				facts = slices.Insert(facts, 0, who+"for IPv6 alone, and the listener is one of IPv4: let it listen for IPv4, "+
					"too, or write an IPv6 address in the listener")
				continue
			}
			facts, last = append(facts, who+"on "+at+" with a socket of its own"), at
		}
		if heir && wrapped == "" {
			wrapped = a.wrapped(pid)
		}
	}
	if last != "" {
		facts[len(facts)-1] += a.wayOut(number, last)
	}
	if wrapped != "" {
		facts = append(facts, wrapped)
	}
	return strings.Join(facts, "; ")
}

// wayOut says what to do about a worker that listens elsewhere. A path that is not there any more was renamed: its
// program cannot be given the listener's socket when it binds.
func (a Accepting) wayOut(number int, elsewhere string) string {
	path, isUnix := strings.CutPrefix(elsewhere, "unix:")
	if _, err := os.Lstat(path); isUnix && err != nil {
		return fmt.Sprintf(": let it use the inherited socket, fd %d (docs/servers.md)", number)
	}
	if a.Unbound == "" {
		return fmt.Sprintf(": if clients are to reach it there, write binds = %q in the listener", elsewhere)
	}
	return fmt.Sprintf(": %s, or let it use the inherited socket, fd %d (docs/servers.md)", a.Unbound, number)
}

// wrapped says that a process has the LISTEN_PID of another program. A process that only has the same program forked
// off uses the sockets of its parent.
func (a Accepting) wrapped(pid int) string {
	environ, err := proc.BoundedEnviron(a.Looks, pid)
	told, _ := strconv.Atoi(environ["LISTEN_PID"])
	if err != nil || told == 0 || told == pid || proc.Name(told) == proc.Name(pid) {
		return ""
	}
	return fmt.Sprintf("LISTEN_PID is %d, which is %s: %s (PID %d) takes no socket, so name it as the command itself, "+
		"or let %[2]s exec it",
		told, proc.Name(told), proc.Name(pid), pid)
}

// addressOf is the address of a socket, for people.
func addressOf(fd int) string {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return "?"
	}
	if path, is := at.(*unix.SockaddrUnix); is {
		return path.Name
	}
	address, _ := inherit.AddrPort(at)
	return address.String()
}
