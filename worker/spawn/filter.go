package spawn

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterPlan is what the child needs to install a filter and to pass its descriptor on. All of it lies in the plan, so
// addresses are numbers.
type filterPlan struct {
	flags   [3]uintptr // the newest first
	program struct {
		length uint16
		filter uintptr
	}
	message struct { // struct msghdr of a machine with 64 bits
		name          uintptr
		nameLength    uint32
		vector        uintptr
		vectors       uint64
		control       uintptr
		controlLength uint64
		flags         int32
	}
	vector struct {
		base   uintptr
		length uint64
	}
	rights struct { // struct cmsghdr and its data
		length      uint64
		level, kind int32
		fd, _       int32
	}
}

// rightsLength is CMSG_LEN(sizeof(int)), cmsg(3).
const rightsLength = 20

// withFilter is the byte with which the descriptor of a filter comes.
const withFilter = '*'

var filterByte = [1]byte{withFilter}

// filter installs Execution.Filter. It comes before the user is set: with CAP_SYS_ADMIN no_new_privs is not needed,
// seccomp(2).
func (b *builder) filter() *StepError {
	if len(b.c.Filter) == 0 {
		return nil
	}
	b.step = codeFilter
	if b.c.Limits.NoNewPrivileges {
		b.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	program := room[unix.SockFilter](b.area, len(b.c.Filter))
	copy(program, b.c.Filter)
	f := &b.p.filter
	const listener, spec = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	// Linux 5.19, 4.17
	f.flags = [3]uintptr{listener | spec | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, listener | spec, listener}
	f.program.length, f.program.filter = uint16(len(program)), uintptr(unsafe.Pointer(unsafe.SliceData(program)))
	f.vector.base, f.vector.length = address(b.area.text(string(filterByte[:]))), 1
	f.rights.length, f.rights.level, f.rights.kind = rightsLength, unix.SOL_SOCKET, unix.SCM_RIGHTS
	f.message.vector, f.message.vectors = uintptr(unsafe.Pointer(&f.vector)), 1
	f.message.control, f.message.controlLength = uintptr(unsafe.Pointer(&f.rights)), uint64(unsafe.Sizeof(f.rights))
	b.call(installFilter)
	return nil
}

// trial binds, and ends the process. A process that had file capabilities is a copy of this one that lets nobody read
// its memory; what it would execute lets itself be read.
func (b *builder) trial() *StepError {
	if len(b.c.Trial) == 0 {
		return nil
	}
	b.step = codeFilter
	b.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	b.call(unix.SYS_BIND, uintptr(len(b.c.Files)-1), b.text(string(b.c.Trial)), uintptr(len(b.c.Trial)))
	b.call(unix.SYS_EXIT_GROUP, 0)
	return nil
}

// reportChannel makes the two ends of a report: a pipe, or a pair of sockets if a descriptor comes with it.
func reportChannel(c *Execution) (read, write int, err error) {
	if len(c.Filter) == 0 {
		return Pipe()
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return -1, -1, err
	}
	return pair[0], pair[1], nil
}

// ReadReport is read(2) for a Report. filter is the descriptor of the notifications of Execution.Filter, which is then
// the caller's; -1: it did not come now.
func ReadReport(report int, into []byte) (n, filter int, err error) {
	n, filter, err = receive(report, into, 0)
	if errors.Is(err, unix.ENOTSOCK) {
		n, err = unix.Read(report, into)
	}
	return n, filter, err
}

// PeekFilter returns a duplicate of the descriptor that ReadReport would return, which is then the caller's; -1: none
// has come. The kernel keeps the one in the report.
func PeekFilter(report int) (filter int) {
	_, filter, _ = receive(report, make([]byte, 1), unix.MSG_PEEK) //nolint:errcheck // ReadReport tells
	return filter
}

// receive is recvmsg(2) with room for one descriptor, which comes close-on-exec. With MSG_PEEK the kernel makes a new
// descriptor each time, and keeps the message.
func receive(report int, into []byte, flags int) (n, filter int, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, length, _, _, err := unix.Recvmsg(report, into, rights, unix.MSG_CMSG_CLOEXEC|flags)
	if err != nil {
		return n, -1, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:length])
	for _, m := range messages {
		if fds, wrong := unix.ParseUnixRights(&m); wrong == nil && len(fds) > 0 {
			for _, more := range fds[1:] { // there is room for two
				unix.Close(more)
			}
			return n, fds[0], nil
		}
	}
	return n, -1, err
}
