package diag

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ended collects what the kernel says of TCP connections that end: it sends a message about each socket that it frees to the groups
// SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY (linux/sock_diag.h), with the bytes that nobody has read and the struct tcp_info of
// its last moment. Anybody may listen. Nobody is woken: a filter lets the suspicious ones of some ports through, and they wait in the socket until
// somebody asks.
type ended struct{ fd int }

const (
	destroyGroups = 1<<0 | 1<<2 // IPv4, IPv6
	endedBuffer   = 4 << 20     // takes some thousand messages; without CAP_NET_ADMIN the kernel's limit is less

	endedAtMost = 1 << 16     // messages
	endedLimit  = time.Second // of one reading: other generations on the port may lose connections all the time

	// Where things are in such a message: netlink's head, struct inet_diag_msg, INET_DIAG_PROTOCOL, then INET_DIAG_INFO.
	endedSport    = unix.NLMSG_HDRLEN + 4
	endedReadable = unix.NLMSG_HDRLEN + 56
	endedTCPInfo  = unix.NLMSG_HDRLEN + inetMessageSize + 2*unix.NLA_HDRLEN + unix.NLA_HDRLEN
	endedSent     = endedTCPInfo + 44
	endedReceived = endedTCPInfo + 52
	endedDataIn   = endedTCPInfo + 152
	endedDataOut  = endedTCPInfo + 156
)

// listen begins to collect. Errors are those of a kernel without these groups, or a sandbox.
func listen(ports []uint16) (*ended, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	e := &ended{fd}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, endedBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, endedBuffer) // the kernel takes less if it wants less
	}
	filter := suspicious(ports)
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: destroyGroups})
	}
	if err != nil {
		e.close()
		return nil, os.NewSyscallError("listen(NETLINK_SOCK_DIAG)", err)
	}
	return e, nil
}

func (e *ended) close() {
	if e != nil && e.fd >= 0 {
		unix.Close(e.fd) //nolint:errcheck // it was only read
		e.fd = -1
	}
}

// read passes the connections that have ended to see, until there was no message for so many milliseconds, at most for endedLimit. It reports
// whether none was dropped or left.
func (e *ended) read(buf []byte, wait int, see func(s *inetSocket)) (complete bool) {
	complete = true
	var s inetSocket
	until := time.Now().Add(endedLimit)
	for read := 0; read < endedAtMost && time.Now().Before(until); read++ {
		n, err := unix.Read(e.fd, buf)
		switch {
		case err == nil:
			_, _, _ = messages(buf[:n], func(m []byte) {
				if parseInet(m, &s) {
					see(&s)
				}
			})
		case errors.Is(err, unix.ENOBUFS):
			complete = false
		case errors.Is(err, unix.EINTR):
		default: // EAGAIN
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}, wait); n == 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return complete
			}
		}
	}
	return false
}

// suspicious is a filter that lets messages about a connection on these ports through on which something was unread, or after whose last request
// nothing was sent: that is only sure where the kernel's clock has ticked in between, or nothing was ever sent. Connections with one request and its answer,
// of which there may be many, do not pass.
func suspicious(ports []uint16) []unix.SockFilter {
	const pass, drop = 254, 255 // jumps to the end
	var f []unix.SockFilter
	op := func(code uint16, k uint32) { f = append(f, unix.SockFilter{Code: code, K: k}) }
	jump := func(test uint16, k uint32, yes, no uint8) {
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | test, K: k, Jt: yes, Jf: no})
	}
	op(unix.BPF_LD|unix.BPF_H|unix.BPF_ABS, endedSport)
	for i, p := range ports {
		jump(unix.BPF_JEQ, uint32(p), uint8(len(ports)-i), 0)
	}
	op(unix.BPF_RET, 0)
	f = append(f, loadNative(endedReadable)...)
	jump(unix.BPF_JGT, 1, pass, 0) // the one byte is the client's FIN
	f = append(f, loadNative(endedDataIn)...)
	jump(unix.BPF_JEQ, 0, drop, 0)
	op(unix.BPF_ST, 0)
	f = append(f, loadNative(endedDataOut)...)
	jump(unix.BPF_JEQ, 0, pass, 0)
	op(unix.BPF_LD|unix.BPF_MEM, 0)
	jump(unix.BPF_JGT, 1, 0, drop)
	f = append(f, loadNative(endedSent)...)
	op(unix.BPF_ST, 1)
	f = append(f, loadNative(endedReceived)...)
	op(unix.BPF_MISC|unix.BPF_TAX, 0)
	op(unix.BPF_LD|unix.BPF_MEM, 1)
	jump(unix.BPF_JGE|unix.BPF_X, 0, pass, drop) // it was sent before that, or in the same tick
	end := len(f)
	op(unix.BPF_RET, 1<<16)
	op(unix.BPF_RET, 0)
	for i := range f {
		for _, to := range []*uint8{&f[i].Jt, &f[i].Jf} {
			if *to >= pass {
				*to = uint8(end + int(*to) - pass - i - 1)
			}
		}
	}
	return f
}

// loadNative loads a number of four bytes as the kernel has it in memory; BPF itself loads big-endian ones.
func loadNative(at uint32) (f []unix.SockFilter) {
	order := []uint32{0, 1, 2, 3}
	if bitNumber(0) == 0 {
		slices.Reverse(order)
	}
	f = append(f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: at + order[0]})
	for _, i := range order[1:] {
		f = append(f,
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_LSH | unix.BPF_K, K: 8},
			unix.SockFilter{Code: unix.BPF_MISC | unix.BPF_TAX},
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: at + i},
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_OR | unix.BPF_X})
	}
	return f
}
