// Package reach finds out whether a probe connects to a socket that several workers accept from.
//
// A probe must be answered by the worker that it is about. An address that supervisord holds open for workers outlives
// each of them: any worker that has the socket would answer, the old generation above all, and a release that never
// starts would pass.
package reach

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/ready"
)

// Endpoint is a socket that several workers accept from, or none.
type Endpoint struct {
	Program string // whose listener it is; "": supervisord's own
	Name    string // of the listener
	Address socket.Address
}

// Aimed is a probe of a program that connects to something, and the key that says where.
type Aimed struct {
	Table, Key string // "ready" or "health"; "url" or "address"
	program    string
	text       string // as written
	to         aim
}

// Of returns the probe of a check in a table of a program; false: the check connects to nothing, or names a listener.
func Of(program, table string, c ready.Check) (p Aimed, connects bool) {
	switch {
	case c.Listener != "":
	case c.Method == ready.HTTP:
		return Aimed{table, "url", program, c.URL, ofURL(c.URL)}, true
	case c.Method == ready.TCP:
		return Aimed{table, "address", program, c.Address, ofAddress(c.Address)}, true
	}
	return Aimed{}, false
}

// IsOwn reports whether, as far as the text shows, no two workers of such generations that run at the same time have
// this address.
func (p Aimed) IsOwn(g socket.Generations) bool {
	has := func(placeholder string) bool { return strings.Contains(p.text, placeholder) }
	return has("{pid}") || (has("{generation}") || g.StopFirst) && (has("{slot}") || g.Slots == 1)
}

// Refusal says why the probe must not connect to one of these endpoints, and what to write; "": it reaches none. listen
// are the listeners of the program.
func (p Aimed) Refusal(endpoints []Endpoint, listen []socket.Spec) (what, remedy string) {
	e, reached := p.to.first(endpoints)
	own := fmt.Sprintf(`or let each worker answer at an address of its own, such as "unix:/run/%s/{pid}.sock"`, p.program)
	remedy = `write method = "notify" or "accept", ` + own
	if p.Table == "health" {
		remedy = `let the workers send WATCHDOG=1 and write watchdog = "30s", ` + own
	}
	at := fmt.Sprintf("reaches the listener %q at %s, ", e.Name, e.Address)
	steered := func(l socket.Spec) bool { return l.Name == e.Name && l.IsSteered() }
	switch {
	case !reached:
		return "", ""
	case e.Program == "":
		what = fmt.Sprintf("reaches supervisord itself at %s, and no worker", e.Address)
	case e.Program != p.program:
		what = fmt.Sprintf("reaches the listener %q of program %s at %s: its workers would answer, and no worker of %s",
			e.Name, e.Program, e.Address, p.program)
	case slices.ContainsFunc(listen, steered):
		what = at + "where the generation that serves answers: it would answer for the one on trial"
		if p.Table == "health" {
			what = at + "where any worker of the generation that serves answers"
		}
		remedy = fmt.Sprintf("write %s = %q to reach the worker's own generation", p.Key, ToListener(p.text, e.Name))
	case p.Table == "health":
		what = at + "which all workers of " + p.program + " share: a healthy one would answer for one that hangs"
	default:
		what = at + "which all generations of " + p.program + " share: an old worker would answer for a new one"
	}
	return what, remedy
}

// urlInCommand finds the URLs in a word of a command.
var urlInCommand = pattern.Lazy(`https?://[^\s"'<>|;&]+`)

// ByCommand says which URLs of listeners are in the command of a check.
func ByCommand(c ready.Check, endpoints []Endpoint) (reached []string) {
	for _, url := range urlInCommand().FindAllString(strings.Join(c.Command, "\n"), -1) {
		if e, ok := ofURL(url).first(endpoints); ok {
			reached = append(reached, fmt.Sprintf("%s reaches the listener %q of program %s, where any worker answers", url,
				e.Name, e.Program))
		}
	}
	return reached
}

// aim is where a probe connects. Host, port and path may have placeholders.
type aim struct {
	host, port string
	path       string // of a unix socket; "" for TCP
}

// ofURL is where a probe of a URL connects. Package net/url would refuse it: a port may have a placeholder.
func ofURL(s string) aim {
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		path, _, _ := strings.Cut(rest, ":/")
		return aim{path: path}
	}
	scheme, rest, _ := strings.Cut(s, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	rest = rest[strings.LastIndex(rest, "@")+1:]
	port := map[string]string{"http": "80", "https": "443"}[strings.ToLower(scheme)]
	host, given, err := net.SplitHostPort(rest)
	if err != nil {
		return aim{host: strings.Trim(rest, "[]"), port: port}
	}
	return aim{host: host, port: cmp.Or(given, port)}
}

// ofAddress is where a probe of an address connects, which is host:port or unix:/path.
func ofAddress(s string) aim {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return aim{path: path}
	}
	host, port, _ := net.SplitHostPort(s) // without a port it reaches nothing
	return aim{host: host, port: port}
}

// first returns the first of these endpoints that a probe reaches, as far as the texts show: names are not looked up,
// and links in the file system are not followed.
func (d aim) first(endpoints []Endpoint) (Endpoint, bool) {
	i := slices.IndexFunc(endpoints, func(e Endpoint) bool { return d.reaches(e.Address) })
	if i < 0 {
		return Endpoint{}, false
	}
	return endpoints[i], true
}

// reaches reports whether a connection to d arrives at a listener with this address.
func (d aim) reaches(a socket.Address) bool {
	if a.IsUnix() {
		return d.path != "" && samePath(d.path, a.Path)
	}
	return d.path == "" && a.IsTCP() && samePort(d.port, a.Port) && sameHost(d.host, a.Host)
}

// sameHost reports whether a host, perhaps with placeholders, is one that a listener on another host takes connections
// for. A listener on every address takes those to this machine's loopback addresses.
func sameHost(template, host string) bool {
	listens := plain(host)
	probed := plain(template)
	if isEvery(probed) {
		probed = "localhost" // what a client that connects to no address in particular reaches
	}
	switch {
	case isEvery(listens):
		return isLoopback(plain(FillIn(probed)))
	case probed == "localhost" || listens == "localhost":
		return isLocalhost(probed) && isLocalhost(listens)
	}
	return matches(probed, listens)
}

// plain is a host in one spelling: an address without its zone, IPv4 as such, and names in lower case.
func plain(host string) string {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	withoutZone, _, _ := strings.Cut(name, "%") // an address with another zone is too rare to tell apart
	if ip, err := netip.ParseAddr(withoutZone); err == nil {
		return ip.Unmap().String()
	}
	if strings.HasSuffix(name, ".localhost") {
		return "localhost"
	}
	return name
}

func isEvery(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

func isLocalhost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return isLocalhost(host) || err == nil && ip.IsLoopback()
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

// samePath reports whether a path, perhaps with placeholders, can be that of this unix socket.
func samePath(template, path string) bool {
	if strings.HasPrefix(path, "@") || strings.HasPrefix(template, "@") {
		return matches(template, path)
	}
	return matches(filepath.Clean(template), filepath.Clean(path))
}

// FillIn replaces the placeholders {pid}, {slot} and {generation} in a text by values that they may have.
func FillIn(text string) string { return exampleValues.Replace(text) }

var exampleValues = strings.NewReplacer("{pid}", "1", "{slot}", "0", "{generation}", "1")

// placeholderValues are regular expressions for what the placeholders of a probe can stand for. {slot} is not bounded
// by the number of workers, which may be scaled.
var placeholderValues = strings.NewReplacer(`\{pid\}`, `[1-9]\d*`, `\{slot\}`, `(?:0|[1-9]\d{0,3})`, `\{generation\}`,
	`[1-9]\d*`)

// matches reports whether text with placeholders can become exactly this.
func matches(template, text string) bool {
	if !strings.Contains(template, "{") {
		return template == text
	}
	pattern, err := regexp.Compile("^" + placeholderValues.Replace(regexp.QuoteMeta(template)) + "$")
	return err == nil && pattern.MatchString(text)
}

// Placeholder begins "{listener:NAME}": in the URL or address of a probe it stands for the host and port of a listener,
// and leads to the generation of the worker in question.
const Placeholder = "{listener:"

// CutListener finds "{listener:NAME}" in where a probe connects. It returns NAME, and the text with a host and a port
// in its place; a text without it is returned as it is. ok is false if it is anything else than the whole host and
// port.
func CutListener(text string) (name, filled string, ok bool) {
	if !strings.Contains(text, Placeholder) {
		return "", text, true
	}
	scheme, rest := "", text
	if !strings.HasPrefix(text, Placeholder) {
		before, after, _ := strings.Cut(text, "://")
		scheme, rest = before+"://", after
	}
	named, isFirst := strings.CutPrefix(rest, Placeholder)
	name, path, closed := strings.Cut(named, "}")
	if !isFirst || !closed || name == "" || path != "" && !strings.ContainsAny(path[:1], "/?#") {
		return "", "", false
	}
	return name, scheme + "127.0.0.1:80" + path, true
}

// ToListener returns the URL or address of a probe with "{listener:NAME}" instead of its host and port, or of its unix
// socket.
func ToListener(text, name string) string {
	at := Placeholder + name + "}"
	if path, isUnix := strings.CutPrefix(text, "unix:"); isUnix {
		if _, query, isURL := strings.Cut(path, ":/"); isURL {
			return "http://" + at + "/" + query
		}
		return at
	}
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return at
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return scheme + "://" + at + rest[end:]
	}
	return scheme + "://" + at + "/"
}
