package diag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxAnswer bounds what one answer may cost.
const maxAnswer = 64 << 20

// datagram is the size of the largest part of an answer: the kernel puts no more than 32 KiB into one (netlink_dump).
const datagram = 32 << 10

var native = binary.NativeEndian

// A request is a netlink header (16 bytes), and what the family wants to know; an answer consists of datagrams of
// messages, each of a header and a fixed part, with attributes behind it (netlink(7), sock_diag(7)):
//
//	answer    = datagram … datagram          a dump ends with NLMSG_DONE
//	datagram  = message … message
//	message   = header, inet_diag_msg or unix_diag_msg, attribute … attribute
//	attribute = length (2), kind (2), value, padded to 4 bytes
//
// Lengths come from the kernel, and are checked all the same: FuzzMessages.

// ask sends a request to NETLINK_SOCK_DIAG, passes each message of the answer to see, and returns of how many datagrams
// with messages the answer consisted. A message is valid only during the call of see.
func ask(request []byte, flags uint16, buf []byte, see func(message []byte)) (datagrams int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	head := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(request))
	native.PutUint32(head, uint32(len(head)+len(request)))
	native.PutUint16(head[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(head[6:], unix.NLM_F_REQUEST|flags)
	if err := unix.Sendto(fd, append(head, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	for total := 0; total < maxAnswer; {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, os.NewSyscallError("read(AF_NETLINK)", err)
		}
		total += n
		seen, last, err := messages(buf[:n], see)
		if seen {
			datagrams++
		}
		if last || err != nil || flags&unix.NLM_F_DUMP == 0 {
			return datagrams, err
		}
	}
	return datagrams, fmt.Errorf("more than %d bytes about sockets", maxAnswer)
}

// messages passes each message in a datagram to see, and reports whether there was one and whether the answer ends
// here.
func messages(b []byte, see func(message []byte)) (seen, last bool, err error) {
	for len(b) > 0 {
		if len(b) < unix.NLMSG_HDRLEN {
			return seen, true, errors.New("a netlink message is shorter than its head")
		}
		size := native.Uint32(b)
		if size < unix.NLMSG_HDRLEN || uint64(size) > uint64(len(b)) {
			return seen, true, fmt.Errorf("a netlink message claims %d bytes of %d", size, len(b))
		}
		data := b[unix.NLMSG_HDRLEN:size]
		switch native.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return seen, true, nil
		case unix.NLMSG_ERROR:
			if len(data) < 4 {
				return seen, true, errors.New("a netlink error has no number")
			}
			if errno := int32(native.Uint32(data)); errno != 0 {
				return seen, true, os.NewSyscallError("sock_diag", unix.Errno(-errno))
			}
		case unix.SOCK_DIAG_BY_FAMILY:
			seen = true
			see(data)
		}
		b = b[min(len(b), align(int(size))):]
	}
	return seen, false, nil
}

// attributes passes each attribute that follows a message (netlink(7): struct nlattr) to see.
func attributes(b []byte, see func(kind uint16, value []byte)) {
	for len(b) >= unix.NLA_HDRLEN {
		size := int(native.Uint16(b))
		if size < unix.NLA_HDRLEN || size > len(b) {
			return
		}
		see(native.Uint16(b[2:]), b[unix.NLA_HDRLEN:size])
		b = b[min(len(b), align(size)):]
	}
}

func align(size int) int { return (size + 3) &^ 3 }
