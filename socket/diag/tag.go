package diag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Tags is how many different tags there are: 0 to Tags-1.
const Tags = 32

const (
	ipRecverrRFC4884 = 26 // linux/in.h: IP_RECVERR_RFC4884, since Linux 5.9

	// struct inet_diag_sockopt (linux/inet_diag.h) is a bit field of two bytes; where its bits are depends on the byte
	// order.
	sockoptSize = 2
)

// tagBit is one bit of a tag: a socket option that means nothing to a TCP socket that listens or was accepted.
type tagBit struct {
	option  int
	name    string
	set     int // the option's value if the bit is set
	unset   int // … and if it is not: the option's default
	at, bit int // where inet_diag_sockopt shows the option
}

var tagBits = [...]tagBit{
	{unix.IP_MULTICAST_ALL, "IP_MULTICAST_ALL", 0, 1, 0, 6},
	{unix.IP_MULTICAST_LOOP, "IP_MULTICAST_LOOP", 0, 1, 0, 4},
	{unix.IP_FREEBIND, "IP_FREEBIND", 1, 0, 0, 2},
	{unix.IP_BIND_ADDRESS_NO_PORT, "IP_BIND_ADDRESS_NO_PORT", 1, 0, 1, 0},
	{ipRecverrRFC4884, "IP_RECVERR_RFC4884", 1, 0, 1, 1},
}

// SetTag gives a listening TCP socket, IPv4 or IPv6, a tag of 0 to Tags-1. The connections that are accepted from it
// have the tag, too: the tag is made of options that mean nothing to them, that they inherit, and that
// INET_DIAG_SOCKOPT shows. Tag 0 is the default of all of them. Call it after bind(2): one of them (IP_FREEBIND) means
// something there.
func SetTag(fd, tag int) error {
	if tag < 0 || tag >= Tags {
		return fmt.Errorf("socket tag %d: must be 0 to %d", tag, Tags-1)
	}
	for i, b := range tagBits {
		value := b.unset
		if tag>>i&1 == 1 {
			value = b.set
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, b.option, value); err != nil && value == b.set {
			return fmt.Errorf("socket tag %d: %w", tag, os.NewSyscallError("setsockopt("+b.name+")", err))
		}
	}
	return nil
}

// GetTag returns the tag of a TCP socket that this process has.
func GetTag(fd int) (tag int, err error) {
	for i, b := range tagBits {
		value, err := unix.GetsockoptInt(fd, unix.SOL_IP, b.option)
		if err == nil && value == b.set {
			tag |= 1 << i
		} else if err != nil && !errors.Is(err, unix.ENOPROTOOPT) { // the kernel does not know the option, so it is not set
			return 0, fmt.Errorf("socket tag: %w", os.NewSyscallError("getsockopt("+b.name+")", err))
		}
	}
	return tag, nil
}

// TagsShown reports whether the kernel shows the tag of a socket (since Linux 5.10). The error says why it shows no
// sockets at all.
func TagsShown() (shown bool, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 1)); err != nil {
		return false, os.NewSyscallError("listen", err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return false, os.NewSyscallError("getsockname", err)
	}
	port := uint16(at.(*unix.SockaddrInet4).Port)
	_, err = dumpInet(inetRequest(unix.AF_INET, 1<<listening, 0, []uint16{port}), make([]byte, datagram),
		func(s *inetSocket) { shown = shown || s.tagged })
	return shown, err
}

// tagOf reads the tag of a socket from its INET_DIAG_SOCKOPT.
func tagOf(sockopt []byte) (tag int, ok bool) {
	if len(sockopt) < sockoptSize {
		return 0, false
	}
	for i, b := range tagBits {
		if int(sockopt[b.at]>>bitNumber(b.bit)&1) == b.set {
			tag |= 1 << i
		}
	}
	return tag, true
}

// bitNumber is the number of a bit field's n-th bit: compilers fill a byte from its lowest bit on little-endian
// machines, and from its highest on others.
func bitNumber(n int) int {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return n
	}
	return 7 - n
}
