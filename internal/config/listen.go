package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// listenFields are the keys of [[program.NAME.listen]], with their ranges. What goes with which address: socket.Spec.Check.
var listenFields = fields[socket.Spec]{
	"name":         func(s *socket.Spec, v value) { v.listenerName(&s.Name) },
	"address":      func(s *socket.Spec, v value) { v.address(&s.Address) },
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
	"mode":         func(s *socket.Spec, v value) { v.mode(&s.Mode) },
	"when_down":    func(s *socket.Spec, v value) { v.whenDown(&s.WhenDown) },
	"fd": func(s *socket.Spec, v value) {
		var number int
		switch {
		case !v.integer(&number, 0, socket.LastFD):
		case number > 0 && number < inherit.FirstFD:
			v.problem(fmt.Sprintf("fd %d cannot be a listener's", number), "write 0, which is stdin, or %d to %d", inherit.FirstFD, socket.LastFD)
		default:
			s.FD = socket.FixedFD(number)
		}
	},
	"ipv6_only": func(s *socket.Spec, v value) {
		var only bool
		if v.flag(&only) {
			s.IPv6Only = strconv.FormatBool(only)
		}
	},
}

// address reads an address to listen on.
func (v value) address(into *socket.Address) bool {
	var s string
	if !v.text(&s) {
		return false
	}
	a, err := socket.ParseAddress(s)
	if wrong, is := errors.AsType[*socket.SpecError](err); is {
		v.problem(wrong.What, "%s", wrong.Remedy)
		return false
	}
	*into = a
	return true
}

// mode reads the permissions of a socket.
func (v value) mode(into *fs.FileMode) {
	var bits uint32
	switch {
	case !v.octal(&bits):
	case bits == 0:
		v.problem("lets no one connect", `write such as "0660"`)
	default:
		*into = fs.FileMode(bits)
	}
}

// whenDown reads what happens to clients while nothing serves: "queue", "queue 30s" or "refuse".
func (v value) whenDown(into *socket.WhenDown) {
	var s string
	if !v.text(&s) {
		return
	}
	rest, timed := strings.CutPrefix(s, "queue ")
	refuse := socket.WhenDown{Refuse: true}
	switch {
	case s == "refuse":
		*into = refuse
	case s == "queue":
		*into = socket.WhenDown{}
	case timed:
		v.raw = strings.TrimSpace(rest)
		if v.duration(&refuse.After, time.Second) {
			*into = refuse
		}
	default:
		v.problem(fmt.Sprintf("%q is not known", s), `write "queue", "queue 30s" or "refuse"`)
	}
}

// listenerName reads a name that can travel in LISTEN_FDNAMES (sd_listen_fds_with_names(3): at most 255 ASCII characters, no control
// character, no colon) and be written as {fd:NAME}.
func (v value) listenerName(into *string) {
	var name string
	switch {
	case !v.text(&name):
	case len(name) > 255:
		v.problem("is too long", "a name has at most 255 bytes")
	case strings.ContainsAny(name, ":}") || strings.ContainsFunc(name, notPrintable):
		v.problem(fmt.Sprintf("%q cannot travel to a worker", name), "use ASCII without : and } and control characters (LISTEN_FDNAMES has : between the names)")
	default:
		*into = name
	}
}

// notPrintable reports whether r is not printable ASCII.
func notPrintable(r rune) bool { return r < ' ' || r > '~' }

// listeners reads all [[program.NAME.listen]].
func (v value) listeners(p *Program) {
	items, ok := v.elements()
	if !ok {
		v.problem("is "+typeOf(v.raw)+", not an array of tables", "write [[%s]], in double brackets", v.path)
		return
	}
	p.Listen = make([]socket.Spec, len(items))
	for i, item := range items {
		s, before := &p.Listen[i], p.Listen[:i]
		s.Program = p.Name
		p.listenLines = append(p.listenLines, item.lines())
		item.listener(s)
		if j := slices.IndexFunc(before, func(o socket.Spec) bool { return s.Name != "" && o.Name == s.Name }); j >= 0 {
			item.problem(fmt.Sprintf("the name %q is already that of the listener in line %d", s.Name, items[j].line()),
				"give each listener of a program a name of its own")
		}
		if j := slices.IndexFunc(before, func(o socket.Spec) bool { return s.FD.Fixed && o.FD == s.FD }); j >= 0 {
			item.child("fd").problem(fmt.Sprintf("%d is already that of the listener in line %d", s.FD.Number, items[j].line()),
				"give each listener of a program a descriptor of its own")
		}
	}
}

func (v value) listener(s *socket.Spec) {
	if !decode(v, s, listenFields) {
		return
	}
	if v.lacks("address") {
		v.problem("has no address", `write such as address = "127.0.0.1:8080"`)
	}
	if s.Address == (socket.Address{}) {
		return
	}
	if s.Name == "" {
		s.Name = s.Address.String()
	}
	for _, wrong := range s.Check() {
		v.child(wrong.Key).problem(wrong.What, "%s", wrong.Remedy)
	}
}

// lines returns the lines of the keys of the table v; "": of the table itself.
func (v value) lines() map[string]int {
	lines := map[string]int{"": v.line()}
	for key := range listenFields {
		if v.has(key) {
			lines[key] = v.child(key).line()
		}
	}
	return lines
}

// at returns the line and the full name of a key of the listener i; the line of its table if the key is not set.
func (p *Program) at(i int, key string) (line int, name string) {
	line, name = p.Line, fmt.Sprintf("program.%s.listen[%d].%s", p.Name, i, key)
	if i < len(p.listenLines) {
		line = p.listenLines[i][""]
		if own, is := p.listenLines[i][key]; is {
			line = own
		}
	}
	return line, name
}

// Listener returns the error for a key of a listener that turned out to be wrong after the configuration was read.
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
