// Package reach finds out whether a probe connects to a socket that several workers accept from.
//
// A probe must be answered by the worker that it is about. An address that supervisord holds open for workers outlives each of them:
// any worker that has the socket would answer, the old generation above all, and a release that never starts would pass.
package reach

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
)

// lookUpTimeout bounds all host names that one check of the probes looks up.
const lookUpTimeout = 2 * time.Second

// Endpoint is a socket that several workers accept from, or none.
type Endpoint struct {
	Program string // whose listener it is; "": supervisord's own
	Name    string // of the listener
	Address socket.Address
}

// Destination is where a probe connects. Host, port and path may have placeholders.
type Destination struct {
	host, port string
	path       string // of a unix socket; "" for TCP
}

// URL is where a probe of a URL connects. Package net/url would refuse it: a port may have a placeholder.
func URL(s string) Destination {
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		path, _, _ := strings.Cut(rest, ":/")
		return Destination{path: path}
	}
	scheme, rest, _ := strings.Cut(s, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	rest = rest[strings.LastIndex(rest, "@")+1:]
	port := map[string]string{"http": "80", "https": "443"}[strings.ToLower(scheme)]
	host, given, err := net.SplitHostPort(rest)
	if err != nil {
		return Destination{host: strings.Trim(rest, "[]"), port: port}
	}
	return Destination{host: host, port: cmp.Or(given, port)}
}

// Address is where a probe of an address connects, which is host:port or unix:/path.
func Address(s string) Destination {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return Destination{path: path}
	}
	host, port, _ := net.SplitHostPort(s) // without a port it reaches nothing
	return Destination{host: host, port: port}
}

// Finder finds out whether probes reach endpoints. It looks up host names, all of them within two seconds.
type Finder struct {
	Unknown map[string]error // names that could not be looked up; the caller may clear it

	ctx    context.Context
	lookUp func(ctx context.Context, network, name string) ([]netip.Addr, error)
	known  map[string][]netip.Addr // by name
	local  []netip.Addr            // of this machine's interfaces; nil: not asked for yet
}

// NewFinder returns a Finder. The caller must call the other result after its last question.
func NewFinder() (*Finder, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), lookUpTimeout)
	return &Finder{Unknown: map[string]error{}, ctx: ctx, lookUp: net.DefaultResolver.LookupNetIP, known: map[string][]netip.Addr{}}, cancel
}

// First returns the first of these endpoints that a probe reaches.
func (f *Finder) First(d Destination, endpoints []Endpoint) (Endpoint, bool) {
	i := slices.IndexFunc(endpoints, func(e Endpoint) bool { return f.reaches(d, e.Address) })
	if i < 0 {
		return Endpoint{}, false
	}
	return endpoints[i], true
}

// reaches reports whether a connection to d can arrive at a listener with this address. A name that cannot be looked up
// reaches nothing; see Unknown.
func (f *Finder) reaches(d Destination, a socket.Address) bool {
	if a.IsUnix() {
		return d.path != "" && samePath(d.path, a.Path)
	}
	host := a.Host
	if d.path != "" || a.IsUDP() || !samePort(d.port, a.Port) {
		return false
	}
	if sameName(d.host, host) {
		return true
	}
	listens := f.addresses(host)
	everywhere := host == "" || slices.ContainsFunc(listens, netip.Addr.IsUnspecified)
	if everywhere {
		listens = f.ofThisMachine()
	}
	here := func(ip netip.Addr) bool {
		return everywhere && ip.IsLoopback() || slices.Contains(listens, ip)
	}
	return slices.ContainsFunc(listens, func(ip netip.Addr) bool { return matches(d.host, ip.String()) }) ||
		slices.ContainsFunc(dialled(f.addresses(FillIn(d.host))), here)
}

// dialled returns what a client connects to that is given these addresses: an unspecified address means this machine.
func dialled(addresses []netip.Addr) []netip.Addr {
	if len(addresses) == 0 || !addresses[0].IsUnspecified() {
		return addresses
	}
	return loopback
}

var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// addresses returns the addresses of a host: an IP address, a name, or "" for all of them.
func (f *Finder) addresses(host string) []netip.Addr {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	withoutZone, _, _ := strings.Cut(name, "%") // an address with another zone is too rare to tell apart
	switch ip, err := netip.ParseAddr(withoutZone); {
	case name == "":
		return []netip.Addr{netip.IPv6Unspecified()}
	case err == nil:
		return []netip.Addr{ip.Unmap()}
	case name == "localhost", strings.HasSuffix(name, ".localhost"):
		return loopback
	}
	return f.named(name)
}

func (f *Finder) named(name string) []netip.Addr {
	if found, ok := f.known[name]; ok {
		return found
	}
	found, err := f.lookUp(f.ctx, "ip", name)
	if err != nil {
		f.Unknown[name] = err
	}
	for i := range found {
		found[i] = found[i].Unmap().WithZone("")
	}
	f.known[name] = found
	return found
}

// ofThisMachine returns the addresses that a listener on every address takes connections for.
func (f *Finder) ofThisMachine() []netip.Addr {
	if f.local != nil {
		return f.local
	}
	f.local = slices.Clone(loopback)
	interfaces, _ := net.InterfaceAddrs() // without them the loopback addresses are still known
	for _, i := range interfaces {
		if prefix, err := netip.ParsePrefix(i.String()); err == nil {
			f.local = append(f.local, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return f.local
}

// sameName reports whether two hosts are written alike.
func sameName(a, b string) bool {
	return a != "" && strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// samePort reports whether a port, perhaps with placeholders, can be this one.
func samePort(template string, port uint16) bool {
	for zeros := range 6 { // a port may be written with leading zeros
		if port != 0 && matches(template, strings.Repeat("0", zeros)+strconv.Itoa(int(port))) {
			return true
		}
	}
	return false
}

// samePath reports whether a path, perhaps with placeholders, can lead to this unix socket.
func samePath(template, path string) bool {
	abstract := strings.HasPrefix(path, "@")
	if abstract || strings.HasPrefix(template, "@") {
		return matches(template, path)
	}
	if matches(filepath.Clean(template), filepath.Clean(path)) || matches(realPath(template), realPath(path)) {
		return true
	}
	a, err := os.Stat(template)
	b, bad := os.Stat(path)
	return err == nil && bad == nil && os.SameFile(a, b)
}

// realPath resolves the symlinks in path as far as its parts exist.
func realPath(path string) string {
	const maxLinks = 40
	for range maxLinks {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			return resolved
		}
		link, err := os.Readlink(path)
		if err != nil {
			break
		}
		path = document.Absolute(filepath.Dir(path), link)
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(realPath(dir), filepath.Base(path))
}

// FillIn replaces the placeholders {pid}, {slot} and {generation} in a text by values that they may have.
func FillIn(text string) string { return exampleValues.Replace(text) }

var exampleValues = strings.NewReplacer("{pid}", "1", "{slot}", "0", "{generation}", "1")

// placeholderValues are regular expressions for what the placeholders of a probe can stand for. {slot} is not bounded by the number
// of workers, which may be scaled.
var placeholderValues = strings.NewReplacer(`\{pid\}`, `[1-9]\d*`, `\{slot\}`, `(?:0|[1-9]\d{0,3})`, `\{generation\}`, `[1-9]\d*`)

// matches reports whether text with placeholders can become exactly this.
func matches(template, text string) bool {
	if !strings.Contains(template, "{") {
		return template == text
	}
	pattern, err := regexp.Compile("^" + placeholderValues.Replace(regexp.QuoteMeta(template)) + "$")
	return err == nil && pattern.MatchString(text)
}
