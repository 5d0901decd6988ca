package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The parts of linux/sock_diag.h, linux/inet_diag.h and linux/unix_diag.h that are used here; see sock_diag(7).
const (
	sockDiagByFamily = 20

	inetRequest   = 56 // struct inet_diag_req_v2
	inetSport     = 8  // … id.idiag_sport, in network order
	inetMessage   = 72 // struct inet_diag_msg
	inetInode     = 68 // … idiag_inode
	unixRequest   = 24 // struct unix_diag_req
	unixMessage   = 16 // struct unix_diag_msg
	unixShowName  = 0x01
	unixShowQueue = 0x10
	unixName      = 0 // attributes
	unixQueue     = 4

	established = 1 // tcp_states.h
	listening   = 10

	// open are the states in which a process can still have a socket that was once established.
	open = 1<<established | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11
)

// maxAnswer bounds what one dump may cost.
const maxAnswer = 64 << 20

// diag asks the kernel and hands each message of the answer to see.
func diag(request []byte, flags uint16, see func(message []byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	defer unix.Close(fd)
	patience := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	head := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(request))
	binary.NativeEndian.PutUint32(head, uint32(len(head)+len(request)))
	binary.NativeEndian.PutUint16(head[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(head[6:], unix.NLM_F_REQUEST|flags)
	if err := unix.Sendto(fd, append(head, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	return answer(fd, flags&unix.NLM_F_DUMP != 0, see)
}

// answer reads until the kernel says that this was all.
func answer(fd int, dump bool, see func(message []byte)) error {
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
		done, err := messages(buf[:n], see)
		if done || err != nil || !dump {
			return err
		}
	}
	return fmt.Errorf("more than %d bytes about sockets", maxAnswer)
}

// messages hands each message in a datagram to see; done: the last one was among them.
func messages(b []byte, see func(message []byte)) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return true, fmt.Errorf("a netlink message of %d bytes in %d", size, len(b))
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errors.New("a netlink error without a number")
			}
			if errno := int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				return true, os.NewSyscallError("sock_diag", unix.Errno(-errno))
			}
		case sockDiagByFamily:
			see(body)
		}
		b = b[min(len(b), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return false, nil
}

// tcpInodes finds the connections on a local port. Those whose process has closed them have no inode any more.
func tcpInodes(port uint16, see func(inode uint64)) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, inetRequest)
		request[0], request[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(request[4:], open)
		binary.BigEndian.PutUint16(request[inetSport:], port)
		err := diag(request, unix.NLM_F_DUMP, func(m []byte) {
			if len(m) >= inetMessage {
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
	request := make([]byte, unixRequest)
	request[0] = unix.AF_UNIX
	for i, v := range []uint32{states, inode, show, ^uint32(0), ^uint32(0)} { // the cookie is not known
		binary.NativeEndian.PutUint32(request[4+4*i:], v)
	}
	return diag(request, flags, func(m []byte) {
		if len(m) >= unixMessage {
			see(uint64(binary.NativeEndian.Uint32(m[4:])), attributes(m[unixMessage:]))
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
	return unixDiag(1<<established, 0, unixShowName, unix.NLM_F_DUMP, func(inode uint64, a map[uint16][]byte) {
		if string(a[unixName]) == name || string(a[unixName]) == name+"\x00" {
			see(inode)
		}
	})
}

// unixWaiting asks for the queue of one listening unix socket.
func unixWaiting(inode uint64) (waiting, limit int, err error) {
	waiting = -1
	err = unixDiag(1<<listening, uint32(inode), unixShowQueue, 0, func(_ uint64, a map[uint16][]byte) {
		if q := a[unixQueue]; len(q) >= 8 {
			waiting, limit = int(binary.NativeEndian.Uint32(q)), int(binary.NativeEndian.Uint32(q[4:]))
		}
	})
	if err == nil && waiting < 0 {
		err = errors.New("the kernel does not say how long the queue of a unix socket is")
	}
	return waiting, limit, err
}
