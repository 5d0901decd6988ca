package socket

import (
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Literal is Resolve without looking anything up: it knows "localhost" (127.0.0.1, which Resolve prefers), and every address that
// is written in numbers. Another host comes back in lower case, and the rest of the result is not where the listener will be bound.
// It is for comparing listeners before they are opened.
func (s Spec) Literal() (r Resolved, host string, err error) {
	if err := s.Check(); err != nil {
		return Resolved{}, "", err
	}
	w, err := parseAddress(s.Address)
	if err != nil {
		return Resolved{}, "", err
	}
	r = Resolved{Spec: s, uid: -1, gid: -1, at: address{network: w.network, port: w.port, path: w.path}}
	switch ip, err := netip.ParseAddr(w.host); {
	case w.network == "unix":
		if r.at.onDisk() {
			r.at.path = filepath.Clean(w.path)
		}
	case w.host == "":
		r.at.ip, r.at.dual = netip.IPv6Unspecified(), s.IPv6Only != "true"
	case err == nil:
		r.at.ip = ip.Unmap()
		r.at.dual = r.at.ip.Is6() && s.IPv6Only == "false"
	case strings.EqualFold(w.host, "localhost"):
		r.at.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		host = strings.ToLower(w.host)
	}
	return r, host, nil
}

// Site is what two listeners that overlap have in common: the network and the port, or the path with its symbolic links
// resolved. It is "" if the kernel chooses the port, so that the listener overlaps no other.
func (r Resolved) Site() string {
	switch {
	case r.at.onDisk():
		dir, err := filepath.EvalSymlinks(filepath.Dir(r.at.path))
		if err != nil {
			dir = filepath.Dir(r.at.path)
		}
		return "unix " + filepath.Join(dir, filepath.Base(r.at.path))
	case r.at.network == "unix":
		return r.at.String()
	case r.at.port == 0:
		return ""
	}
	return r.at.network + " " + strconv.Itoa(int(r.at.port))
}

// Overlaps reports whether r and o cannot both be bound, or would both be given the same connections: they have one address, or one
// is on every address (0.0.0.0, [::]) and takes the port of the other. One that is on every address may stand beside another
// where both set SO_REUSEPORT: the kernel then prefers the one with the exact address.
func (r Resolved) Overlaps(o Resolved) bool {
	if site := r.Site(); site == "" || site != o.Site() {
		return false
	}
	if r.at.network == "unix" {
		return true
	}
	if r.Interface != "" && o.Interface != "" && r.Interface != o.Interface {
		return false
	}
	if r.at.ip == o.at.ip {
		return true
	}
	return (r.at.covers(o.at) || o.at.covers(r.at)) && !(r.groups() && o.groups())
}

// groups reports whether the listener's sockets set SO_REUSEPORT.
func (r Resolved) groups() bool { return r.ReusePort || r.PerSlot }

// covers reports whether a socket at a takes the port at b's address.
func (a address) covers(b address) bool {
	return a.ip.IsUnspecified() && (a.ip.Is4() == b.ip.Is4() || a.dual && b.ip.Is4())
}
