package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/socket"
)

// listenFields are the keys of [[program.NAME.listen]].
var listenFields = fields[socket.Spec]{
	"name":         func(s *socket.Spec, v value) { v.text(&s.Name) },
	"address":      func(s *socket.Spec, v value) { v.text(&s.Address) },
	"backlog":      func(s *socket.Spec, v value) { v.integer(&s.Backlog, 1, math.MaxInt32) },
	"user":         func(s *socket.Spec, v value) { v.user(&s.User) },
	"group":        func(s *socket.Spec, v value) { v.group(&s.Group) },
	"reuse_port":   func(s *socket.Spec, v value) { v.flag(&s.ReusePort) },
	"per_slot":     func(s *socket.Spec, v value) { v.flag(&s.PerSlot) },
	"defer_accept": func(s *socket.Spec, v value) { v.seconds(&s.DeferAccept, time.Hour) },
	"fast_open":    func(s *socket.Spec, v value) { v.integer(&s.FastOpen, 0, math.MaxInt32) },
	"keep_alive":   func(s *socket.Spec, v value) { v.seconds(&s.KeepAlive, 32767*time.Second) }, // MAX_TCP_KEEPIDLE
	"interface":    func(s *socket.Spec, v value) { v.text(&s.Interface) },
	"starter_name": func(s *socket.Spec, v value) { v.text(&s.StarterName) },
	"nonblock":     func(s *socket.Spec, v value) { v.flag(&s.NonBlock) },
	"mode": func(s *socket.Spec, v value) {
		var bits uint32
		if v.octal(&bits) {
			s.Mode = fs.FileMode(bits)
			if bits == 0 {
				v.problem("nobody could connect", `write such as "0660"`)
			}
		}
	},
	"when_down": func(s *socket.Spec, v value) { v.whenDown(&s.WhenDown) },
	"fd": func(s *socket.Spec, v value) {
		var number int
		if v.integer(&number, 0, socket.LastFD) {
			s.FD = socket.At(number)
		}
	},
	"ipv6_only": func(s *socket.Spec, v value) {
		var only bool
		v.flag(&only)
		s.IPv6Only = strconv.FormatBool(only)
	},
}

// whenDown reads what becomes of clients while nothing serves: "queue", "queue 30s" or "refuse".
func (v value) whenDown(into *socket.WhenDown) {
	var s string
	if !v.text(&s) {
		return
	}
	word, rest, timed := strings.Cut(s, " ")
	switch {
	case s == "refuse":
		*into = socket.WhenDown{Refuse: true}
	case s == "queue":
		*into = socket.WhenDown{}
	case word == "queue" && timed:
		then := socket.WhenDown{Refuse: true}
		v.raw = strings.TrimSpace(rest)
		if v.duration(&then.After, time.Second) {
			*into = then
		}
	default:
		v.problem(fmt.Sprintf("%q is not known", s), `write "queue", "queue 30s" or "refuse"`)
	}
}

// listeners reads all [[program.NAME.listen]].
func (v value) listeners(p *Program) {
	items, ok := v.elements()
	if !ok {
		v.problem("is "+typeOf(v.raw)+", not an array of tables", "write [[%s]], in double brackets", v.path)
		return
	}
	specs := make([]socket.Spec, len(items))
	for i, item := range items {
		specs[i].Program = p.Name
		item.listener(&specs[i])
		p.listenLines = append(p.listenLines, item.lines())
		j := slices.IndexFunc(specs[:i], func(s socket.Spec) bool { return s.Name == specs[i].Name })
		if j >= 0 && specs[i].Name != "" {
			item.problem(fmt.Sprintf("the name %q is already that of the listener in line %d", specs[i].Name, items[j].line()),
				"give each listener of a program a name of its own")
		}
		j = slices.IndexFunc(specs[:i], func(s socket.Spec) bool { return s.FD.Fixed && s.FD == specs[i].FD })
		if j >= 0 {
			item.child("fd").problem(fmt.Sprintf("%d is already that of the listener in line %d", specs[i].FD.Number, items[j].line()),
				"give each listener of a program a descriptor of its own")
		}
	}
	p.Listen = specs
}

func (v value) listener(s *socket.Spec) {
	if !decode(v, s, listenFields) {
		return
	}
	if !v.has("address") {
		v.problem("has no address", `write such as address = "127.0.0.1:8080"`)
		return
	}
	if s.Name == "" {
		s.Name = s.Address
	}
	if v.has("name") {
		v.child("name").listenerName(s.Name)
	}
	if s.Address != "" {
		v.fitting(*s)
	}
}

// fitting reports every value that is wrong, or does not go with the address.
func (v value) fitting(s socket.Spec) {
	before := len(v.in.problems)
	for _, key := range slices.Sorted(maps.Keys(listenFields)) {
		if v.has(key) {
			v.checkAlone(s.Address, key)
		}
	}
	if len(v.in.problems) == before {
		v.refused(s.Check())
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(s.Address, "udp:"))
	if ip, bad := netip.ParseAddr(host); err == nil && bad == nil && ip.Is4() && v.has("ipv6_only") {
		v.child("ipv6_only").problem("cannot be set for the IPv4 address "+host, "leave it out")
	}
}

// checkAlone checks one key as if only it and the address were there, so that one wrong key does not hide another.
func (v value) checkAlone(address, key string) {
	one := socket.Spec{Address: address}
	again := v.child(key)
	again.in = &document{places: v.in.places} // what reading it finds has been reported before
	listenFields[key](&one, again)
	if len(again.in.problems) == 0 {
		v.refused(one.Check())
	}
}

// refused reports what the socket package says against the listener v.
func (v value) refused(err error) {
	var wrong *socket.SpecError
	if errors.As(err, &wrong) {
		v.child(wrong.Key).problem(wrong.What, "%s", wrong.Remedy)
	}
}

// listenerName reports a name that cannot travel in LISTEN_FDNAMES (sd_listen_fds_with_names(3): at most 255 ASCII
// characters, no control character, no colon) or not be named by {fd:NAME}.
func (v value) listenerName(name string) {
	switch {
	case len(name) > 255:
		v.problem("is too long", "a name has at most 255 bytes")
	case strings.ContainsAny(name, ":}") || strings.ContainsFunc(name, isControl):
		v.problem(fmt.Sprintf("%q cannot travel to a worker", name), "use ASCII without : and } and control characters (LISTEN_FDNAMES has : between the names)")
	}
}

// isControl reports what is no printable ASCII.
func isControl(r rune) bool { return r < ' ' || r > '~' }

// lines says where the keys of the table v stand.
func (v value) lines() map[string]int {
	lines := map[string]int{"": v.line()}
	for key := range listenFields {
		if v.has(key) {
			lines[key] = v.child(key).line()
		}
	}
	return lines
}

// at returns where a key of the listener i stands, or should.
func (p *Program) at(i int, key string) (line int, name string) {
	line, name = p.Line, fmt.Sprintf("program.%s.listen[%d].%s", p.Name, i, key)
	if i >= len(p.listenLines) {
		return line, name
	}
	if there, is := p.listenLines[i][key]; is {
		return there, name
	}
	return p.listenLines[i][""], name
}

// Listener is the error of a key of a listener that turned out to be wrong later.
func (c *Config) Listener(s socket.Spec, key, what, remedy string) error {
	problem := Problem{Key: key, What: what, Remedy: remedy}
	for i := range c.Programs {
		p := &c.Programs[i]
		if n := slices.Index(p.Listen, s); p.Name == s.Program && n >= 0 {
			problem.File = p.File
			problem.Line, problem.Key = p.at(n, key)
		}
	}
	return &Error{Problems: []Problem{problem}}
}
