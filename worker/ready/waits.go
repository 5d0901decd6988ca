package ready

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
)

// waitCall is a system call that can wait until there is something to accept. The tables are in waitcalls_GOARCH.go.
type waitCall int

const (
	onDescriptor waitCall = iota + 1 // the first argument is the socket
	onEpoll                          // the first argument is an epoll
	onPoll                           // an array of struct pollfd, and its length
	onSelect                         // the number of descriptors, and the set of those to read from
)

// pollRDNORM is POLLRDNORM of poll(2), a synonym of POLLIN.
const pollRDNORM = 0x40

// maxPolled limits how many descriptors of a poll or select are read; a process that has more is not seen to wait.
const maxPolled = 1 << 20

// inodes is a set of sockets.
type inodes map[uint64]bool

func (n inodes) add(more inodes) { maps.Copy(n, more) }

// runnable are the threads that run, or wait for a processor: how often each has gone to sleep, by its number.
type runnable map[string]string

// since reports whether one of them has run since it was among others: a thread that only waits for a processor, on a
// busy machine, has slept meanwhile.
func (t runnable) since(others runnable) bool {
	for thread, naps := range t {
		if before, ran := others[thread]; ran && naps == before {
			return true
		}
	}
	return false
}

// kernelView finds out what processes wait for, by proc_pid_fd(5), proc_pid_fdinfo(5), proc_pid_syscall(5) and
// proc_pid_mem(5). It only reads, and stops no process.
type kernelView struct {
	sockets inodes   // to look for
	inodes  []uint64 // the same, as they were given
	// who watches a socket by an epoll need not be seen to wait: it has said that it is ready
	said   bool
	device string                   // of the sockets, as fdinfo has it
	local  map[uint64]unix.Sockaddr // the addresses of those that have connections
}

// newKernelView takes note of sockets of ours, by their inodes. It keeps no descriptor.
func newKernelView(sockets []int, said bool) (*kernelView, error) {
	k := &kernelView{sockets: inodes{}, said: said, local: map[uint64]unix.Sockaddr{}}
	for _, fd := range sockets {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, fmt.Errorf("a socket of the worker (descriptor %d): %w", fd, err)
		}
		k.sockets[st.Ino] = true
		k.inodes = append(k.inodes, st.Ino)
		kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if at, err := unix.Getsockname(fd); err == nil && kind == unix.SOCK_STREAM {
			k.local[st.Ino] = at
		}
		k.device = strconv.FormatUint(uint64(unix.Major(st.Dev))<<20|uint64(unix.Minor(st.Dev)), 16)
	}
	return k, nil
}

// machineOf reads what machine the program of a process is for: class, byte order and machine of elf(5).
func machineOf(pid int) []byte {
	var f *os.File
	var err error
	proc.AsOwner(pid, func() { f, err = os.Open(proc.Path(pid, "exe")) })
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 20)
	if n, _ := f.Read(head); n < len(head) {
		return nil
	}
	return append(head[4:6], head[18:20]...)
}

// waited returns the sockets that a process waits on in two looks, and those from which it has accepted a connection
// that it still has: a busy worker may never be seen to wait. One look at descriptors is enough where these show all
// that has to be seen. A process that is gone waits on none. waited also returns which threads run of a process that
// has one of the sockets. The error says that the kernel does not let us look.
func (k *kernelView) waited(pid int) (on inodes, runs runnable, err error) {
	for look := range 2 {
		has, err := k.descriptors(pid)
		if err != nil || len(has.waitable) == 0 {
			return nil, nil, unlessGone(err)
		}
		if k.said && len(has.watched) == len(k.sockets) {
			return has.watched, nil, nil
		}
		var found inodes
		if found, runs, err = k.look(pid, has); len(found) == 0 || err != nil {
			return nil, runs, err
		}
		if look > 0 {
			maps.DeleteFunc(found, func(inode uint64, _ bool) bool { return !on[inode] })
		}
		on = found
	}
	return on, runs, nil
}

// look returns what the threads of a process with these descriptors wait on at this moment, and which of them run.
func (k *kernelView) look(pid int, has descriptors) (found inodes, runs runnable, err error) {
	all, err := os.ReadDir(proc.Path(pid, "task"))
	if err != nil {
		return nil, nil, unlessGone(err)
	}
	found, runs = inodes{}, runnable{}
	for _, t := range all {
		thread := "task/" + t.Name() + "/"
		call, err := proc.ReadFile(pid, thread+"syscall")
		if unlessGone(err) != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(string(call), "running") {
			runs[t.Name()] = proc.Naps(pid, t.Name())
		}
		for _, fd := range waitsOn(pid, string(call)) {
			if len(has.waitable[fd]) > 0 && sameFile(pid, thread, fd) {
				found.add(has.waitable[fd])
			}
		}
	}
	if len(found) > 0 && !bytes.Equal(machineOf(pid), machineOf(os.Getpid())) {
		// the numbers of system calls belong to the machine
		clear(found)
	}
	if k.said {
		found.add(has.watched)
	}
	found.add(k.accepted(has.others))
	return found, runs, nil
}

// sameFile reports whether a descriptor of a thread is that of its process: a thread may have its own descriptors
// (unshare(2)).
func sameFile(pid int, thread string, fd int) bool {
	name := "fd/" + strconv.Itoa(fd)
	a, err1 := proc.Readlink(pid, name)
	b, err2 := proc.Readlink(pid, thread+name)
	return err1 == nil && err2 == nil && a == b
}

// unlessGone drops the error that says that a process or thread has ended, which is not one of ours.
func unlessGone(err error) error {
	if proc.Gone(err) {
		return nil
	}
	return err
}

// descriptors are those of a process that matter here. There are none if it has none of our sockets: it could not
// accept from them.
type descriptors struct {
	waitable map[int]inodes // our sockets, and epolls that watch some, each with these sockets
	watched  inodes         // by an epoll
	others   inodes         // its other sockets
}

// descriptors lists those of a process that matter. It needs the rights of ptrace(2): the error says if they are
// missing.
func (k *kernelView) descriptors(pid int) (descriptors, error) {
	links, err := proc.Descriptors(pid)
	if err != nil {
		return descriptors{}, err
	}
	has := descriptors{map[int]inodes{}, inodes{}, inodes{}}
	own := inodes{}
	var epolls []int
	for fd, link := range links {
		switch inode, isSocket := proc.SocketInode(link); {
		case isSocket && k.sockets[inode]:
			has.waitable[fd] = inodes{inode: true}
			own[inode] = true
		case isSocket:
			has.others[inode] = true
		case link == "anon_inode:[eventpoll]":
			epolls = append(epolls, fd)
		}
	}
	if len(own) == 0 {
		return descriptors{}, nil
	}
	err = k.epolls(pid, epolls, own, has.waitable)
	for _, fd := range epolls {
		has.watched.add(has.waitable[fd])
	}
	return has, err
}

// hidden returns why a process may wait for connections without being seen to; nil: it would be seen.
func (k *kernelView) hidden(pid int) error {
	links, err := proc.Descriptors(pid)
	for _, link := range links {
		if link == "anon_inode:[io_uring]" {
			return fmt.Errorf("process %d (%q) uses io_uring, and the kernel does not show what that waits for", pid,
				proc.Name(pid))
		}
	}
	if machine := machineOf(pid); err == nil && machine != nil && !bytes.Equal(machine, machineOf(os.Getpid())) {
		return fmt.Errorf("process %d (%q) is a program for another kind of machine, such as one of 32 bits", pid,
			proc.Name(pid))
	}
	return nil
}

// accepted returns those of our sockets from which one of these connections was accepted, as far as the kernel tells.
func (k *kernelView) accepted(connections inodes) inodes {
	if len(connections) == 0 {
		return nil
	}
	from := inodes{}
	for socket, at := range k.local {
		Connections(at, func(inode uint64) {
			if connections[inode] {
				from[socket] = true
			}
		})
	}
	return from
}

// Connections calls see with the inode of each connection that was accepted at an address, by whatever process; 0 is
// one that nobody has accepted yet. It calls nothing where the kernel does not tell.
func Connections(at unix.Sockaddr, see func(inode uint64)) {
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		diag.TCPInodes(uint16(at.Port), see) //nolint:errcheck // see above
	case *unix.SockaddrInet6:
		diag.TCPInodes(uint16(at.Port), see) //nolint:errcheck // see above
	case *unix.SockaddrUnix:
		diag.UnixInodes(at.Name, see) //nolint:errcheck // see above
	}
}

// epolls adds to by the epolls that watch one of the sockets, or an epoll that does.
func (k *kernelView) epolls(pid int, epolls []int, own inodes, by map[int]inodes) error {
	inside := map[int][]int{}
	for _, fd := range epolls {
		targets, err := proc.EpollTargets(pid, fd)
		if unlessGone(err) != nil {
			return err
		}
		by[fd] = inodes{}
		for _, t := range targets {
			switch {
			case t.Events&unix.EPOLLIN == 0:
			case t.Device == k.device && own[t.Inode]:
				by[fd][t.Inode] = true
			case t.Device != k.device && slices.Contains(epolls, t.Number):
				inside[fd] = append(inside[fd], t.Number)
			}
		}
	}
	for range inside { // as deep as they can be
		for fd, numbers := range inside {
			for _, n := range numbers {
				by[fd].add(by[n])
			}
		}
	}
	return nil
}

// waitsOn lists the descriptors that a thread of a process waits on for something to read. call is its syscall file.
func waitsOn(pid int, call string) []int {
	c, is := proc.ParseCall(call)
	if !is {
		return nil
	}
	switch waitCalls[c.Number] {
	case onDescriptor, onEpoll:
		return []int{int(int32(c.Args[0]))}
	case onPoll:
		return readPoll(pid, c.Args[0], c.Args[1])
	case onSelect:
		return readSelect(pid, c.Args[1], c.Args[0])
	}
	return nil
}

// readPoll reads an array of struct pollfd, poll(2).
func readPoll(pid int, at, count uint64) (fds []int) {
	data := readMemory(pid, at, count*8)
	for ; len(data) >= 8; data = data[8:] {
		events := binary.NativeEndian.Uint16(data[4:])
		if events&(unix.POLLIN|pollRDNORM) != 0 {
			fds = append(fds, int(int32(binary.NativeEndian.Uint32(data))))
		}
	}
	return fds
}

// readSelect reads a set of descriptors below count, select(2): words of 64 bits, the lowest bit first.
func readSelect(pid int, at, count uint64) (fds []int) {
	data := readMemory(pid, at, (count+63)/64*8)
	for n := uint64(0); n < count && len(data) >= 8; n += 64 {
		word := binary.NativeEndian.Uint64(data)
		for bit := uint64(0); bit < 64 && n+bit < count; bit++ {
			if word&(1<<bit) != 0 {
				fds = append(fds, int(n+bit))
			}
		}
		data = data[8:]
	}
	return fds
}

// readMemory reads from the memory of a process; nothing if not all of it can be read, or if that is too much.
func readMemory(pid int, at, size uint64) []byte {
	if at == 0 || size == 0 || size > maxPolled*8 {
		return nil
	}
	data, err := proc.ReadMemory(pid, at, int(size))
	if err != nil {
		return nil
	}
	return data
}
