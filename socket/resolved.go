package socket

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"example.org/supervisord/internal/proc"
)

// Resolved is a Spec whose names have been looked up. It is comparable.
type Resolved struct {
	Spec
	at       bindAddr
	uid, gid int // unix: the owner; -1: the supervisor's
}

// Resolve looks up the host, user and group that s, which must pass Check, names; of several addresses it prefers
// an IPv4 one. It may wait for a resolver: call it off the loop. An error that waiting cannot fix is a *SpecError.
func (s Spec) Resolve(ctx context.Context) (Resolved, error) {
	r := s.Literal()
	if s.Address.named() {
		ip, err := lookUp(ctx, s.Address.Host)
		if err != nil {
			return Resolved{}, err
		}
		r.setIP(ip)
	}
	if r.at.ip.Is4() && s.IPv6Only != "" {
		return Resolved{}, wrong("ipv6_only", "ipv6_only cannot be set for "+strconv.Quote(s.Address.text),
			"it is for IPv6, so leave it out")
	}
	if wrong := s.Unpermitted(); wrong != nil {
		return Resolved{}, wrong
	}
	var err error
	r.uid, r.gid, err = s.owner()
	return r, err
}

// Literal is s as far as it is known without a look-up: "localhost" (127.0.0.1, which Resolve prefers) and every
// address that is written in numbers. It is for Overlaps, before listeners are opened.
func (s Spec) Literal() Resolved {
	a := s.Address
	r := Resolved{Spec: s, uid: -1, gid: -1, at: bindAddr{network: a.network, port: a.Port, path: a.Path}}
	switch ip, err := netip.ParseAddr(a.Host); {
	case a.OnDisk():
		r.at.path = filepath.Clean(a.Path)
	case a.IsUnix():
	case a.Host == "":
		r.at.ip, r.at.dual = netip.IPv6Unspecified(), s.IPv6Only != "true"
	case err == nil:
		r.setIP(ip)
	case strings.EqualFold(a.Host, "localhost"):
		r.setIP(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return r
}

func (r *Resolved) setIP(ip netip.Addr) {
	r.at.ip = ip.Unmap()
	r.at.dual = r.at.ip.Is6() && r.IPv6Only == "false"
}

func lookUp(ctx context.Context, host string) (netip.Addr, error) {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cannot look up the listen address: %w; check the name, or write an IP address", err)
	}
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	return ips[0], nil
}

// owner looks up the numbers of the user and the group; -1: the supervisor's.
func (s Spec) owner() (uid, gid int, err error) {
	uid, gid = -1, -1
	for _, o := range []struct {
		key, name string
		number    *int
		lookUp    func(string) (uint32, error)
	}{{"user", s.User, &uid, proc.UID}, {"group", s.Group, &gid, proc.GID}} {
		if o.name == "" {
			continue
		}
		id, err := o.lookUp(o.name)
		if err != nil {
			return -1, -1, wrong(o.key, "there is no "+o.key+" "+strconv.Quote(o.name)+" for "+strconv.Quote(s.Address.text),
				"name one of this machine, or write a number")
		}
		*o.number = int(id)
	}
	return uid, gid, nil
}

// Key identifies the address to the kernel ("tcp 127.0.0.1:8080"): two listeners with one key cannot both be bound.
// Ports that the kernel chooses (0) differ by program and name, so that a reload finds its socket again, and two
// programs get different ports.
func (r Resolved) Key() string {
	key := r.at.String()
	if !r.at.isUnix() && r.at.port == 0 {
		key += " " + r.Program + "/" + r.Name
	}
	if r.Interface != "" {
		key += " on " + r.Interface
	}
	return key
}

// groups reports whether the listener's sockets set SO_REUSEPORT.
func (r Resolved) groups() bool { return r.ReusePort || r.PerSlot }

// Site is what listeners that overlap have in common; "": r overlaps no other.
func (r Resolved) Site() string { return r.at.site() }

// Overlaps reports whether r and o cannot both be bound, or would both get the same connections: they have one
// address, or one is on every address (0.0.0.0, [::]) and takes the port of the other. One that is on every address
// may stand beside another where both set SO_REUSEPORT: the kernel prefers the exact address. A host that is not
// looked up overlaps itself alone.
func (r Resolved) Overlaps(o Resolved) bool {
	switch site := r.Site(); {
	case site == "" || site != o.Site():
		return false
	case r.at.isUnix():
		return true
	case r.at.needsLookUp() || o.at.needsLookUp():
		return strings.EqualFold(r.Address.Host, o.Address.Host)
	case r.Interface != "" && o.Interface != "" && r.Interface != o.Interface:
		return false
	case r.at.ip == o.at.ip:
		return true
	}
	return (r.at.covers(o.at) || o.at.covers(r.at)) && !(r.groups() && o.groups())
}

// record is a Resolved as it is written down for the supervisor's next image, which then needs no resolver.
type record struct {
	Spec     Spec
	IP       netip.Addr
	UID, GID int
}

// MarshalJSON writes r down, with what was looked up for it.
func (r Resolved) MarshalJSON() ([]byte, error) {
	return json.Marshal(record{r.Spec, r.at.ip, r.uid, r.gid})
}

// UnmarshalJSON reads what MarshalJSON wrote. It refuses what Resolve could not have made.
func (r *Resolved) UnmarshalJSON(data []byte) error {
	var w record
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if problems := w.Spec.Check(); len(problems) > 0 {
		return problems[0]
	}
	found := w.Spec.Literal()
	if w.Spec.Address.named() {
		found.setIP(w.IP)
	}
	if w.Spec.Address == (Address{}) || found.at.ip != w.IP || found.at.needsLookUp() {
		return fmt.Errorf("the recorded listener %q contradicts itself", w.Spec.Address)
	}
	found.uid, found.gid = w.UID, w.GID
	*r = found
	return nil
}
