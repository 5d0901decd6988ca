package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The parts of linux/inet_diag.h and linux/unix_diag.h that are used here; see sock_diag(7).
const (
	inetRequestSize = 56 // struct inet_diag_req_v2
	inetSport       = 8  // … id.idiag_sport, in network order
	inetMessageSize = 72 // struct inet_diag_msg
	inetInode       = 68 // … idiag_inode
	unixRequestSize = 24 // struct unix_diag_req
	unixMessageSize = 16 // struct unix_diag_msg
	unixShowName    = 0x01
	unixShowQueue   = 0x10
	unixAttrName    = 0
	unixAttrQueue   = 4

	established = 1 << 1 // tcp_states.h
	listening   = 1 << 10

	// open are the states in which a process can still have a socket that was once established.
	open = established | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11
)

// maxAnswer bounds what one dump may cost.
const maxAnswer = 64 << 20

// diag asks the kernel and passes each message of the answer to see.
func diag(request []byte, flags uint16, see func(message []byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	head := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(request))
	binary.NativeEndian.PutUint32(head, uint32(len(head)+len(request)))
	binary.NativeEndian.PutUint16(head[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(head[6:], unix.NLM_F_REQUEST|flags)
	if err := unix.Sendto(fd, append(head, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 32<<10)
	for total := 0; total < maxAnswer; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		total += n
		last, err := messages(buf[:n], see)
		if last || err != nil || flags&unix.NLM_F_DUMP == 0 {
			return err
		}
	}
	return fmt.Errorf("more than %d bytes about sockets", maxAnswer)
}

// messages passes each message in a datagram to see, and reports whether the answer ends with it.
func messages(b []byte, see func(message []byte)) (last bool, err error) {
	all, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return true, fmt.Errorf("invalid netlink message: %w", err)
	}
	for _, m := range all {
		switch m.Header.Type {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(m.Data) < 4 {
				return true, errors.New("a netlink error without a number")
			}
			if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
				return true, os.NewSyscallError("sock_diag", unix.Errno(-errno))
			}
		case unix.SOCK_DIAG_BY_FAMILY:
			see(m.Data)
		}
	}
	return false, nil
}

// tcpInodes finds the connections on a local port. Those that their process has closed have no inode any more.
func tcpInodes(port uint16, see func(inode uint64)) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, inetRequestSize)
		request[0], request[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(request[4:], open)
		binary.BigEndian.PutUint16(request[inetSport:], port)
		err := diag(request, unix.NLM_F_DUMP, func(m []byte) {
			if len(m) >= inetMessageSize {
				see(uint64(binary.NativeEndian.Uint32(m[inetInode:])))
			}
		})
		if err != nil && !(family == unix.AF_INET6 && errors.Is(err, unix.ENOENT)) { // a kernel without IPv6
			return err
		}
	}
	return nil
}

func unixDiag(states, inode, show uint32, flags uint16, see func(inode uint64, attributes map[uint16][]byte)) error {
	request := make([]byte, unixRequestSize)
	request[0] = unix.AF_UNIX
	for i, v := range []uint32{states, inode, show, ^uint32(0), ^uint32(0)} { // the cookie is not known
		binary.NativeEndian.PutUint32(request[4+4*i:], v)
	}
	return diag(request, flags, func(m []byte) {
		if len(m) >= unixMessageSize {
			see(uint64(binary.NativeEndian.Uint32(m[4:])), attributes(m[unixMessageSize:]))
		}
	})
}

// attributes splits what follows a message (netlink(7): struct nlattr).
func attributes(b []byte) map[uint16][]byte {
	found := map[uint16][]byte{}
	for len(b) >= unix.NLA_HDRLEN {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.NLA_HDRLEN || size > len(b) {
			break
		}
		found[binary.NativeEndian.Uint16(b[2:])] = b[unix.NLA_HDRLEN:size]
		b = b[min(len(b), (size+3)&^3):]
	}
	return found
}

// unixInodes finds the connections that were accepted from the listening socket with this name.
func unixInodes(name string, see func(inode uint64)) error {
	return unixDiag(established, 0, unixShowName, unix.NLM_F_DUMP, func(inode uint64, a map[uint16][]byte) {
		if string(a[unixAttrName]) == name || string(a[unixAttrName]) == name+"\x00" {
			see(inode)
		}
	})
}

// unixQueue asks for the queue of one listening unix socket.
func unixQueue(inode uint64) (waiting, limit int, err error) {
	waiting = -1
	err = unixDiag(listening, uint32(inode), unixShowQueue, 0, func(_ uint64, a map[uint16][]byte) {
		if q := a[unixAttrQueue]; len(q) >= 8 {
			waiting, limit = int(binary.NativeEndian.Uint32(q)), int(binary.NativeEndian.Uint32(q[4:]))
		}
	})
	if err == nil && waiting < 0 {
		err = errors.New("the kernel does not say how long the queue of a unix socket is")
	}
	return waiting, limit, err
}
