package diag

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	inetDport  = 10 // … id.idiag_dport, in network order
	inetSource = 12
	inetDest   = 28
	inetCookie = 48
)

// Accepted reports whether a process of this machine has accepted a connection that this process has made, over TCP or
// to a unix socket: a connection is made as soon as it is in the queue of the listening socket, whether or not anybody
// ever takes it out.
func Accepted(conn net.Conn) (bool, error) {
	from, tcp := conn.LocalAddr().(*net.TCPAddr)
	to, both := conn.RemoteAddr().(*net.TCPAddr)
	if tcp && both {
		return acceptedTCP(from.AddrPort(), to.AddrPort())
	}
	s, is := conn.(syscall.Conn)
	if !is {
		return false, errors.New("cannot tell whether a connection was accepted: it has no descriptor")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false, err
	}
	var st unix.Stat_t
	if e := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); e != nil || err != nil {
		return false, errors.Join(e, err)
	}
	return acceptedUnix(uint32(st.Ino))
}

// acceptedTCP asks for the socket at the other end.
func acceptedTCP(from, to netip.AddrPort) (accepted bool, err error) {
	request := make([]byte, inetRequestSize)
	request[0], request[1] = unix.AF_INET6, unix.IPPROTO_TCP
	native.PutUint32(request[4:], openStates)
	binary.BigEndian.PutUint16(request[inetSport:], to.Port())
	binary.BigEndian.PutUint16(request[inetDport:], from.Port())
	if to.Addr().Unmap().Is4() {
		request[0] = unix.AF_INET
		copy(request[inetSource:], to.Addr().Unmap().AsSlice())
		copy(request[inetDest:], from.Addr().Unmap().AsSlice())
	} else {
		copy(request[inetSource:], to.Addr().AsSlice())
		copy(request[inetDest:], from.Addr().AsSlice())
	}
	native.PutUint64(request[inetCookie:], ^uint64(0)) // it is not known
	var s inetSocket
	_, err = ask(request, 0, make([]byte, datagram), func(m []byte) {
		if parseInet(m, &s) && s.state != listening {
			accepted = s.inode != 0
		}
	})
	return accepted, err
}

// acceptedUnix asks for the other end of a socket.
func acceptedUnix(inode uint32) (accepted bool, err error) {
	err = askUnix(1<<established, inode, unixShowPeer, 0, make([]byte, datagram), func(s *unixSocket) {
		accepted = s.peer != 0
	})
	return accepted, err
}

// Waits reports whether connections or datagrams wait in a socket. poll(2) always says so of one that was shut down:
// that can be read to the end, and then as ended.
func Waits(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 || fds[0].Revents&unix.POLLIN == 0 { // interrupted: none did
		return false
	}
	if fds[0].Revents&unix.POLLRDHUP == 0 {
		return true
	}
	waiting, err := unix.IoctlGetInt(fd, unix.SIOCINQ) // the length of the first datagram (udp(7)); nothing of TCP is left
	if err == unix.EINVAL {
		var st unix.Stat_t
		_ = unix.Fstat(fd, &st)
		waiting, _, err = UnixQueue(st.Ino) // the socket listens at a unix address
	}
	return err != nil || waiting > 0
}
