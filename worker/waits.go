package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// waitCall is a system call that can wait until there is something to accept.
type waitCall int

const (
	onDescriptor waitCall = iota + 1 // the first argument is the socket
	onEpoll                          // the first argument is an epoll
	onPoll                           // an array of struct pollfd, and how many
	onSelect                         // how many descriptors, and a set of those to read from
)

// pollRDNORM is POLLRDNORM of poll(2), which is another word for POLLIN.
const pollRDNORM = 0x40

// Most descriptors that a poll or select is read for; whoever has more is not seen to wait.
const maxPolled = 1 << 20

// kernelView finds out from the kernel what processes wait for, by proc_pid_fd(5), proc_pid_fdinfo(5), proc_pid_syscall(5) and
// proc_pid_mem(5). It only reads, and stops nobody.
type kernelView struct {
	sockets watched // to look for
	device  string  // of sockets, as fdinfo has it
	binary  []byte  // the kind of our own program: numbers of system calls are those of its machine
}

// newKernelView is for these sockets of ours.
func newKernelView(sockets []int) (*kernelView, error) {
	if len(waitCalls) == 0 {
		return nil, errors.New("the system calls of this kind of machine are not known to supervisord")
	}
	k := &kernelView{sockets: watched{}}
	for _, fd := range sockets {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, fmt.Errorf("a socket of the worker (descriptor %d): %w", fd, err)
		}
		k.sockets[st.Ino] = true
		k.device = strconv.FormatUint(uint64(unix.Major(st.Dev))<<20|uint64(unix.Minor(st.Dev)), 16)
	}
	k.binary = elf("self")
	return k, nil
}

// elf reads what kind of machine the program of a process is for: class, byte order and machine of elf(5).
func elf(process string) []byte {
	f, err := os.Open("/proc/" + process + "/exe")
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

// waited returns the sockets that a process waits on: the same ones in two looks. A process that is gone waits on none. An error
// is that the kernel does not let us look.
func (k *kernelView) waited(pid int) (watched, error) {
	first, err := k.look(pid)
	if len(first) == 0 || err != nil {
		return nil, err
	}
	again, err := k.look(pid)
	maps.DeleteFunc(again, func(inode uint64, _ bool) bool { return !first[inode] })
	return again, err
}

// look returns what the threads of a process wait on at this moment.
func (k *kernelView) look(pid int) (watched, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	by, err := k.descriptors(dir)
	if err != nil || len(by) == 0 {
		return nil, gone(err)
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return nil, gone(err)
	}
	found := watched{}
	for _, t := range threads {
		thread := dir + "/task/" + t.Name()
		call, err := os.ReadFile(thread + "/syscall")
		if gone(err) != nil {
			return nil, err
		}
		for _, fd := range polled(dir, string(call)) {
			if len(by[fd]) > 0 && sameFile(dir, thread, fd) {
				found.add(by[fd])
			}
		}
	}
	if len(found) > 0 && !bytes.Equal(elf(strconv.Itoa(pid)), k.binary) {
		return nil, nil
	}
	return found, nil
}

// sameFile tells whether a descriptor of a thread is that of its process: a thread may have descriptors of its own (unshare(2)).
func sameFile(process, thread string, fd int) bool {
	a, err1 := os.Readlink(process + "/fd/" + strconv.Itoa(fd))
	b, err2 := os.Readlink(thread + "/fd/" + strconv.Itoa(fd))
	return err1 == nil && err2 == nil && a == b
}

// gone leaves the errors that do not mean that a process has ended.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// watched are sockets, by their inodes.
type watched map[uint64]bool

func (w watched) add(more watched) {
	for inode := range more {
		w[inode] = true
	}
}

// descriptors lists the descriptors of a process that are one of our sockets, or an epoll that watches one, with the sockets. It is
// empty without a descriptor of a socket itself: nobody else could accept from it.
func (k *kernelView) descriptors(dir string) (map[int]watched, error) {
	entries, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return nil, err
	}
	by, own := map[int]watched{}, watched{}
	var epolls []int
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		to, err := os.Readlink(dir + "/fd/" + e.Name())
		switch inode, isSocket := socketInode(to); {
		case gone(err) != nil:
			return nil, err
		case isSocket && k.sockets[inode]:
			by[fd] = watched{inode: true}
			own[inode] = true
		case to == "anon_inode:[eventpoll]":
			epolls = append(epolls, fd)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	return by, k.epolls(dir, epolls, own, by)
}

// socketInode reads the link of a descriptor that is a socket.
func socketInode(link string) (uint64, bool) {
	number, found := strings.CutPrefix(link, "socket:[")
	inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
	return inode, found && err == nil
}

// epolls adds the epolls that watch one of the sockets, or an epoll that does.
func (k *kernelView) epolls(dir string, epolls []int, own watched, by map[int]watched) error {
	inside := map[int][]int{}
	for _, fd := range epolls {
		text, err := os.ReadFile(dir + "/fdinfo/" + strconv.Itoa(fd))
		if gone(err) != nil {
			return err
		}
		by[fd] = watched{}
		for _, t := range targets(string(text)) {
			switch {
			case t.device == k.device && own[t.inode]:
				by[fd][t.inode] = true
			case t.device != k.device && slices.Contains(epolls, t.number):
				inside[fd] = append(inside[fd], t.number)
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

// target is one line of an epoll's fdinfo: what it waits for something to read from.
type target struct {
	number int // in the process that added it, at that time
	inode  uint64
	device string
}

// targets reads "tfd: 5 events: 19 data: … pos:0 ino:1f2e sdev:8". Those that are not watched for EPOLLIN are left out.
func targets(fdinfo string) (list []target) {
	for line := range strings.Lines(fdinfo) {
		words := strings.Fields(strings.ReplaceAll(line, ":", ": "))
		values := map[string]string{}
		for i := 0; i+1 < len(words); i += 2 {
			values[words[i]] = words[i+1]
		}
		number, err1 := strconv.Atoi(values["tfd:"])
		events, err2 := strconv.ParseUint(values["events:"], 16, 32)
		inode, err3 := strconv.ParseUint(values["ino:"], 16, 64)
		if errors.Join(err1, err2, err3) == nil && events&unix.EPOLLIN != 0 {
			list = append(list, target{number, inode, values["sdev:"]})
		}
	}
	return list
}

// polled lists the descriptors that a thread waits on for something to read, from what its syscall file says: the number of the
// call and its arguments, as in "232 0x5 0x7f… 0x400 … sp pc"; or "running".
func polled(dir, syscall string) []int {
	words := strings.Fields(syscall)
	if len(words) < 7 {
		return nil
	}
	number, err := strconv.Atoi(words[0])
	if err != nil {
		return nil
	}
	var args [2]uint64
	for i := range args {
		if args[i], err = strconv.ParseUint(strings.TrimPrefix(words[i+1], "0x"), 16, 64); err != nil {
			return nil
		}
	}
	switch waitCalls[number] {
	case onDescriptor, onEpoll:
		return []int{int(int32(args[0]))}
	case onPoll:
		return readPoll(dir, args[0], args[1])
	case onSelect:
		return readSelect(dir, args[1], args[0])
	}
	return nil
}

// readPoll reads an array of struct pollfd, poll(2).
func readPoll(dir string, at, count uint64) (fds []int) {
	data := memory(dir, at, count*8)
	for ; len(data) >= 8; data = data[8:] {
		events := binary.NativeEndian.Uint16(data[4:])
		if events&(unix.POLLIN|pollRDNORM) != 0 {
			fds = append(fds, int(int32(binary.NativeEndian.Uint32(data))))
		}
	}
	return fds
}

// readSelect reads a set of descriptors below count, select(2): words of the machine, the lowest bit first.
func readSelect(dir string, at, count uint64) (fds []int) {
	const bits = strconv.IntSize
	data := memory(dir, at, (count+bits-1)/bits*(bits/8))
	for n := uint64(0); n < count && len(data) >= bits/8; n += bits {
		word := uint64(binary.NativeEndian.Uint32(data))
		if bits == 64 {
			word = binary.NativeEndian.Uint64(data)
		}
		for bit := uint64(0); bit < bits && n+bit < count; bit++ {
			if word&(1<<bit) != 0 {
				fds = append(fds, int(n+bit))
			}
		}
		data = data[bits/8:]
	}
	return fds
}

// memory reads from the memory of a process; nothing if not all of it can be read.
func memory(dir string, at, size uint64) []byte {
	if at == 0 || size == 0 || size > maxPolled*8 {
		return nil
	}
	f, err := os.Open(dir + "/mem")
	if err != nil {
		return nil
	}
	defer f.Close()
	data := make([]byte, size)
	if n, err := unix.Pread(int(f.Fd()), data, int64(at)); err != nil || n != len(data) {
		return nil
	}
	return data
}
