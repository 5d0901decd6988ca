package bind

import (
	"errors"
	"maps"

	"golang.org/x/sys/unix"
)

// option is one that a program may set before it binds. It would be lost with the socket that the lane replaces;
// accepted connections inherit it.
type option struct{ level, name int }

var options = []option{
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.SOL_SOCKET, unix.SO_PRIORITY}, {unix.SOL_SOCKET, unix.SO_RCVLOWAT},
	{unix.SOL_SOCKET, unix.SO_MARK}, {unix.SOL_SOCKET, unix.SO_TIMESTAMP}, {unix.SOL_SOCKET, unix.SO_PASSCRED},
	{unix.SOL_SOCKET, unix.SO_BUSY_POLL}, {unix.SOL_SOCKET, unix.SO_BROADCAST}, {unix.SOL_SOCKET, unix.SO_RXQ_OVFL},
	{unix.SOL_SOCKET, unix.SO_RCVBUF}, {unix.SOL_SOCKET, unix.SO_SNDBUF},
	{unix.IPPROTO_IP, unix.IP_TOS}, {unix.IPPROTO_IP, unix.IP_TTL}, {unix.IPPROTO_IP, unix.IP_PKTINFO},
	{unix.IPPROTO_IP, unix.IP_RECVERR}, {unix.IPPROTO_IP, unix.IP_RECVTOS}, {unix.IPPROTO_IP, unix.IP_RECVTTL},
	{unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR}, {unix.IPPROTO_IP, unix.IP_MTU_DISCOVER}, {unix.IPPROTO_IP,
		unix.IP_FREEBIND},
	{unix.IPPROTO_IP, unix.IP_TRANSPARENT}, {unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT}, {unix.IPPROTO_IPV6,
		unix.IPV6_FREEBIND},
	{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}, {unix.IPPROTO_IPV6, unix.IPV6_TCLASS},
	{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS}, {unix.IPPROTO_IPV6, unix.IPV6_RECVERR},
	{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP,
		unix.TCP_USER_TIMEOUT},
	{unix.IPPROTO_TCP, unix.TCP_FASTOPEN}, {unix.IPPROTO_TCP, unix.TCP_SYNCNT}, {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
	{unix.IPPROTO_TCP, unix.TCP_LINGER2},
}

// optionValues are the values of options.
type optionValues map[option]int

// deviceOf returns the interface that a socket is bound to, SO_BINDTODEVICE in socket(7); "": none.
func deviceOf(socket int) string {
	name, _ := unix.GetsockoptString(socket, unix.SOL_SOCKET, unix.SO_BINDTODEVICE) //nolint:errcheck // not where there are interfaces
	return name
}

// settingsOf reads the options of a socket.
func settingsOf(socket int) optionValues {
	s := optionValues{}
	for _, o := range options {
		if value, err := unix.GetsockoptInt(socket, o.level, o.name); err == nil {
			s[o] = value
		}
	}
	return s
}

// changedOf reads the options of a socket that are not what a new socket of its kind has: the others are the
// listener's, also where its configuration sets them.
func changedOf(socket int) optionValues {
	s := settingsOf(socket)
	domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, also := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE)
	protocol, last := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if errors.Join(err, also, last) != nil {
		return nil
	}
	fresh, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil
	}
	defer unix.Close(fresh)
	first := settingsOf(fresh)
	maps.DeleteFunc(s, func(o option, value int) bool { return first[o] == value })
	return s
}

// apply gives a socket what is set otherwise there. What the kernel refuses stays.
func (s optionValues) apply(to int) {
	for o, wanted := range s {
		have, err := unix.GetsockoptInt(to, o.level, o.name)
		if err != nil || wanted == have {
			continue
		}
		if o.level == unix.SOL_SOCKET && (o.name == unix.SO_RCVBUF || o.name == unix.SO_SNDBUF) {
			wanted /= 2 // socket(7): the kernel doubles it
		}
		_ = unix.SetsockoptInt(to, o.level, o.name, wanted)
	}
}
