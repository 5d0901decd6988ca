package socket

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Everything that a worker sets on its listening socket, and on the open file description, is also that of the next
// generation that gets the socket: SO_LINGER, a backlog of 1, O_ASYNC. So a socket is made as new before a
// generation gets it. What new means, a new socket tells.

// renew makes sockets what open would make of them, whatever the processes did that had them: only where they are
// bound, and the connections that wait in them, stay. No worker may accept from them now. Of the socket of a socket
// unit, renew changes only what a unit cannot set.
func (l *listener) renew(sockets []*sock, r Resolved) error {
	at := l.addressFor(r)
	for _, m := range sockets {
		if m.stray {
			continue // a process that is not one of our workers accepts from it
		}
		if m.deaf {
			if err := m.setDeaf(false, at); err != nil {
				return err
			}
		}
		if at.isUDP() && !l.serves(m) {
			m.empty()
		}
		if err := m.renew(r, at, l.sharesAddress()); err != nil {
			return err
		}
	}
	return nil
}

func (m *sock) renew(r Resolved, at bindAddr, shared bool) error {
	fresh, err := newSocket(r, at)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fresh) }()
	if err := m.copyFlags(fresh); err != nil || m.foreign {
		copyOptions(fresh, m.fd, unix.SOL_SOCKET, notOfUnits[:])
		return err
	}
	if err := setFixed(fresh, r, at, shared); err != nil {
		return err
	}
	if err := setTunables(fresh, r); err != nil {
		return err
	}
	for _, l := range levels(at) {
		copyOptions(fresh, m.fd, l.level, l.options())
	}
	_ = unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) // ENOENT: it has none
	if at.isUDP() {
		return nil
	}
	return setBacklog(m, r)
}

// copyFlags gives the open file description the flags of a new one (O_NONBLOCK, O_ASYNC), and no owner.
func (m *sock) copyFlags(fresh int) error {
	flags, err := unix.FcntlInt(uintptr(fresh), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(m.fd), unix.F_SETFL, flags)
	}
	for _, owner := range []int{unix.F_SETOWN, unix.F_SETSIG} {
		if err == nil {
			_, err = unix.FcntlInt(uintptr(m.fd), owner, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot set the flags of a socket: %w", err)
	}
	return nil
}

// empty drops the datagrams that wait: nobody steers others there, and these were for a generation that is gone.
func (m *sock) empty() {
	var none [1]byte
	for {
		if _, _, err := unix.Recvfrom(m.fd, none[:], unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// notOfUnits are options that systemd.socket(5) does not know.
var notOfUnits = [...]int{unix.SO_LINGER, unix.SO_RCVTIMEO, unix.SO_SNDTIMEO}

// level is a range of options of a socket: all that Linux 6.18 knows.
type level struct{ level, last int }

func levels(at bindAddr) []level {
	all := []level{{unix.SOL_SOCKET, 84}}
	if at.isUnix() {
		return all
	}
	all = append(all, level{unix.SOL_IP, 51})
	if at.ip.Is6() {
		all = append(all, level{unix.SOL_IPV6, 80})
	}
	if at.isTCP() {
		return append(all, level{unix.SOL_TCP, 45})
	}
	return append(all, level{unix.SOL_UDP, unix.UDP_GRO})
}

// options lists the options of a level whose value can be read and set as it was read.
func (l level) options() (list []int) {
	for o := 1; o <= l.last; o++ {
		switch {
		case l.level == unix.SOL_SOCKET && (o == unix.SO_ERROR || o == unix.SO_ATTACH_FILTER ||
			o == unix.SO_BINDTODEVICE || o == unix.SO_PEERPIDFD):
			// They do something, or the interface's number says the same.
		case l.level == unix.SOL_TCP && (o == unix.TCP_INFO || o == unix.TCP_CC_INFO || o == unix.TCP_ZEROCOPY_RECEIVE ||
			o == unix.TCP_TIMESTAMP):
			// They are no settings.
		default:
			list = append(list, o)
		}
	}
	return list
}

// copyOptions sets those options that have another value than those of a new socket. What cannot be read, or not be
// set, is no setting.
func copyOptions(fresh, fd, level int, options []int) {
	for _, o := range options {
		var a, b [64]byte
		want, known := rawOption(fresh, level, o, &a)
		have, is := rawOption(fd, level, o, &b)
		if !known || !is || len(want) == len(a) || bytes.Equal(want, have) {
			continue
		}
		switch {
		case level == unix.SOL_SOCKET && (o == unix.SO_RCVBUF || o == unix.SO_SNDBUF) && len(want) == 4:
			half := *(*int32)(unsafe.Pointer(&a)) / 2 // the kernel doubles what it is given
			_ = unix.SetsockoptInt(fd, level, o, int(half))
		case level == unix.SOL_TCP && o == unix.TCP_MAXSEG:
			_ = unix.SetsockoptInt(fd, level, o, 0) // what is read is not what was set
		case level == unix.SOL_TCP && o == unix.TCP_WINDOW_CLAMP:
			_ = unix.SetsockoptInt(fd, level, o, widest) // 0, none, cannot be set any more
		default:
			_, _, _ = unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(o), uintptr(unsafe.Pointer(&a)),
				uintptr(len(want)), 0)
		}
	}
}

// widest is what the kernel takes for the window if none is set: 65535 scaled by 14.
const widest = 65535 << 14

// rawOption reads an option as it is.
func rawOption(fd, level, option int, buf *[64]byte) (value []byte, known bool) {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(buf)), uintptr(unsafe.Pointer(&size)), 0)
	return buf[:min(size, uint32(len(buf)))], errno == 0
}
