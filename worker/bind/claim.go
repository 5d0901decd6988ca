package bind

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Claim is an address that a program binds, or is expected to.
type Claim struct {
	Network string         // tcp, udp or unix
	At      netip.AddrPort `json:",omitzero"`  // of tcp and udp; IPv4 as such, also in an IPv6 socket
	Path    string         `json:",omitempty"` // of unix: absolute, or "@" and an abstract name
}

// String is the address as the configuration writes it.
func (a Claim) String() string {
	switch a.Network {
	case "unix":
		return "unix:" + a.Path
	case "udp":
		return "udp:" + a.At.String()
	}
	return a.At.String()
}

// matches reports whether a program that binds to has the socket of the listener at a in mind: the same port, and the
// same address, or one of the two is every address.
func (a Claim) matches(to Claim) bool {
	if a.Network != to.Network {
		return false
	}
	if a.Network == "unix" {
		return a.Path == to.Path
	}
	mine, theirs := a.At.Addr(), to.At.Addr()
	return a.At.Port() != 0 && a.At.Port() == to.At.Port() &&
		(mine == theirs || mine.IsUnspecified() || theirs.IsUnspecified())
}

// exact reports whether a is just to, and not only fits.
func (a Claim) exact(to Claim) bool { return a == to }

// maxAddress is the longest sockaddr that is read: struct sockaddr_storage.
const maxAddress = 128

// parse reads a sockaddr as bind(2) takes it. The network is not in it. ok is false for other families, and for what is
// too short.
func parse(sockaddr []byte) (to Claim, family int, ok bool) {
	if len(sockaddr) < 2 {
		return Claim{}, 0, false
	}
	family = int(binary.NativeEndian.Uint16(sockaddr))
	switch {
	case family == unix.AF_INET && len(sockaddr) >= unix.SizeofSockaddrInet4:
		to.At = netip.AddrPortFrom(netip.AddrFrom4([4]byte(sockaddr[4:8])), binary.BigEndian.Uint16(sockaddr[2:]))
	case family == unix.AF_INET6 && len(sockaddr) >= 24:
		to.At = netip.AddrPortFrom(netip.AddrFrom16([16]byte(sockaddr[8:24])).Unmap(), binary.BigEndian.Uint16(sockaddr[2:]))
	case family == unix.AF_UNIX && len(sockaddr) > 2:
		to.Path = unixPath(sockaddr[2:])
	default:
		return Claim{}, family, false
	}
	return to, family, true
}

// unixPath is the path in a sun_path, unix(7).
func unixPath(raw []byte) string {
	if raw[0] == 0 {
		return "@" + string(raw[1:])
	}
	path, _, _ := strings.Cut(string(raw), "\x00")
	return path
}

// resolve makes the path of a unix socket absolute, for a process in this directory.
func (a Claim) resolve(directory string) Claim {
	if a.Path != "" && a.Path[0] != '@' {
		if !filepath.IsAbs(a.Path) {
			a.Path = filepath.Join(directory, a.Path)
		}
		a.Path = filepath.Clean(a.Path)
	}
	return a
}
