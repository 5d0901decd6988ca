package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker/bind"
)

// listenFields are the keys of [[program.NAME.listen]], with their ranges. What goes with which address:
// socket.Spec.Check.
var listenFields = document.Fields[socket.Spec]{
	"name":      func(s *socket.Spec, v document.Value) { readListenerName(v, &s.Name) },
	"address":   func(s *socket.Spec, v document.Value) { readAddress(v, &s.Address) },
	"backlog":   func(s *socket.Spec, v document.Value) { v.Integer(&s.Backlog, 1, math.MaxInt32) },
	"user":      func(s *socket.Spec, v document.Value) { readUser(v, &s.User) },
	"group":     func(s *socket.Spec, v document.Value) { readGroup(v, &s.Group) },
	"per_slot":  readPerSlot,
	"binds":     func(s *socket.Spec, v document.Value) { readAddress(v, &s.Binds) },
	"nonblock":  func(s *socket.Spec, v document.Value) { v.Flag(&s.NonBlock) },
	"mode":      func(s *socket.Spec, v document.Value) { readMode(v, &s.Mode) },
	"when_down": func(s *socket.Spec, v document.Value) { readWhenDown(v, &s.WhenDown) },
	"handover": func(s *socket.Spec, v document.Value) {
		document.Choice(v, &s.Handover, socket.Steer, socket.Share, socket.QUIC, socket.Flow)
	},
	"flows": func(s *socket.Spec, v document.Value) { v.Integer(&s.Flows, 1024, 1<<24) },
	"fd": func(s *socket.Spec, v document.Value) {
		var number int
		switch {
		case !v.Integer(&number, 0, socket.LastFD):
		case number > 0 && number < inherit.FirstFD:
			v.Problem(fmt.Sprintf("fd %d cannot be a listener's", number), "write 0, which is stdin, or %d to %d",
				inherit.FirstFD, socket.LastFD)
		default:
			s.FD = socket.FixedFD(number)
		}
	},
	"socket": func(s *socket.Spec, v document.Value) { document.Decode(v, s, socketFields) },
}

// socketFields are the keys of the table socket of a listener: options of socket(7), tcp(7) and ipv6(7).
var socketFields = document.Fields[socket.Spec]{
	"reuse_port":   func(s *socket.Spec, v document.Value) { v.Flag(&s.ReusePort) },
	"defer_accept": func(s *socket.Spec, v document.Value) { v.Seconds(&s.DeferAccept, time.Hour) },
	"fast_open":    func(s *socket.Spec, v document.Value) { v.Integer(&s.FastOpen, 0, math.MaxInt32) },
	// MAX_TCP_KEEPIDLE
	"keep_alive": func(s *socket.Spec, v document.Value) { v.Seconds(&s.KeepAlive, 32767*time.Second) },
	"interface":  func(s *socket.Spec, v document.Value) { v.Text(&s.Interface) },
	"ipv6_only": func(s *socket.Spec, v document.Value) {
		var only bool
		if v.Flag(&only) {
			s.IPv6Only = strconv.FormatBool(only)
		}
	},
}

// inListener returns the value of a key that package socket names, in a listener or in its table socket.
func inListener(v document.Value, key string) document.Value {
	if _, inSocket := socketFields[key]; inSocket {
		return v.Child("socket").Child(key)
	}
	return v.Child(key)
}

// readPerSlot reads how the worker slots are spread over sockets: true, false or "auto".
func readPerSlot(s *socket.Spec, v document.Value) {
	switch v.Raw {
	case true:
		s.PerSlot = true
	case false:
		s.Single = true
	case "auto":
	default:
		v.Problem("is not true, false or \"auto\"", `write true or false without quotes, or "auto"`)
	}
}

// readAddress reads an address to listen on.
func readAddress(v document.Value, into *socket.Address) bool {
	return document.Parsed(v, into, func(s string) (socket.Address, *document.Wrong) {
		if scheme, rest, is := strings.Cut(s, "://"); is && scheme != "unix" {
			host, _, _ := strings.Cut(rest, "/")
			if _, err := socket.ParseAddress(host); err == nil {
				return socket.Address{}, &document.Wrong{What: fmt.Sprintf("%q has a scheme", s),
					Remedy: fmt.Sprintf("write %q", host)}
			}
		}
		a, err := socket.ParseAddress(s)
		if wrong, is := errors.AsType[*socket.SpecError](err); is {
			return a, &document.Wrong{What: wrong.What, Remedy: wrong.Remedy}
		}
		return a, nil
	})
}

// readMode reads the permissions of a socket.
func readMode(v document.Value, into *fs.FileMode) {
	var bits uint32
	switch {
	case !v.Octal(&bits):
	case bits == 0:
		v.Problem("lets no one connect", `write such as "0660"`)
	default:
		*into = fs.FileMode(bits)
	}
}

// DefaultWhenDown loses no client in an outage that a restart ends, and has a load balancer try elsewhere in a longer
// one.
var DefaultWhenDown = socket.WhenDown{Refuse: true, After: 30 * time.Second}

// readWhenDown reads what happens to clients while nothing serves: "queue", "queue 30s" or "refuse".
func readWhenDown(v document.Value, into *socket.WhenDown) {
	var s string
	if !v.Text(&s) {
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
		v.Raw = strings.TrimSpace(rest)
		if v.Duration(&refuse.After, time.Second) {
			*into = refuse
		}
	default:
		v.Problem(fmt.Sprintf("%q is not known", s), `write "queue", "queue 30s" or "refuse"`)
	}
}

// readListenerName reads a name that can travel in LISTEN_FDNAMES (sd_listen_fds_with_names(3): at most 255 ASCII
// characters, no control character, no colon) and be written as {fd:NAME}.
func readListenerName(v document.Value, into *string) {
	var name string
	switch {
	case !v.Text(&name):
	case len(name) > 255:
		v.Problem("is too long", "a name has at most 255 bytes")
	case strings.ContainsAny(name, ":}") || strings.ContainsFunc(name, notPrintable):
		v.Problem(fmt.Sprintf("%q cannot travel to a worker", name),
			"use ASCII without : and } and control characters (LISTEN_FDNAMES has : between the names)")
	default:
		*into = name
	}
}

// notPrintable reports whether r is not printable ASCII.
func notPrintable(r rune) bool { return r < ' ' || r > '~' }

// readListeners reads all [[program.NAME.listen]]. A string is the address of a listener with defaults.
func readListeners(v document.Value, p *Program) {
	items := v.OneOrMore()
	if _, is := v.Raw.(map[string]any); is {
		v.Problem("is a table, not an array of tables", "write [[%s]], in double brackets", v.Key)
	}
	p.Listen = make([]socket.Spec, len(items))
	for i, item := range items {
		s, before := &p.Listen[i], p.Listen[:i]
		s.Program = p.Name
		readListener(item, s)
		if j := slices.IndexFunc(before, func(o socket.Spec) bool { return s.Name != "" && o.Name == s.Name }); j >= 0 {
			item.Problem(fmt.Sprintf("the name %q is already that of the listener in line %d", s.Name, items[j].Line()),
				"give each listener of a program a name of its own")
		}
		if j := slices.IndexFunc(before, func(o socket.Spec) bool { return s.FD.Fixed && o.FD == s.FD }); j >= 0 {
			item.Child("fd").Problem(fmt.Sprintf("%d is already that of the listener in line %d", s.FD.Number, items[j].Line()),
				"give each listener of a program a descriptor of its own")
		}
	}
}

func readListener(v document.Value, s *socket.Spec) {
	if _, is := v.Raw.(string); is {
		readAddress(v, &s.Address)
	} else if port, is := v.Raw.(int64); is {
		v.Problem("is a number, not an address", `write ":%d" for every interface, or "127.0.0.1:%d" for this machine only`,
			port, port)
		return
	} else if !document.Decode(v, s, listenFields) {
		return
	} else if v.Lacks("address") {
		v.Problem("has no address", `write such as address = "127.0.0.1:8080"`)
	}
	if s.Address == (socket.Address{}) {
		return
	}
	if s.Name == "" {
		s.Name = s.Address.String()
	}
	if canRefuse := s.Address.IsTCP() || s.Address.OnDisk(); canRefuse && v.Lacks("when_down") {
		s.WhenDown = DefaultWhenDown
	}
	for _, wrong := range s.Check() {
		inListener(v, wrong.Key).Problem(wrong.What, "%s", wrong.Remedy)
	}
}

// problem is something wrong with a key of p, by its name below the table of p; "": with p.
func (p *Program) problem(key, what, remedy string) document.Problem {
	name := strings.TrimSuffix(document.Key("program", p.Name)+"."+key, ".")
	at := cmp.Or(p.positions.Of(name), document.Position{Line: p.Line})
	return document.Problem{File: p.File, Position: at, Key: name, What: what, Remedy: remedy}
}

// listenKey is the name below the table of a program of a key of its listener i.
func listenKey(i int, key string) string {
	return inListener(document.Value{Key: fmt.Sprintf("listen[%d]", i)}, key).Key
}

// Refusal returns the error for a listener that turned out to be wrong after the configuration was read.
func (c *Config) Refusal(s socket.Spec, wrong *socket.SpecError) error {
	problem := document.Problem{Key: wrong.Key, What: wrong.What, Remedy: wrong.Remedy}
	for i := range c.Programs {
		p := &c.Programs[i]
		if n := slices.Index(p.Listen, s); p.Name == s.Program && n >= 0 {
			problem = p.problem(listenKey(n, wrong.Key), wrong.What, wrong.Remedy)
		}
	}
	return &document.Error{Problems: []document.Problem{problem}}
}

// readDialects reads the key dialect: one or several of the known words; an empty list is none.
func readDialects(v document.Value, into *[]dialect.Name) {
	list := []dialect.Name{}
	for _, item := range v.OneOrMore() {
		var d dialect.Name
		switch {
		case !document.Choice(item, &d, dialect.All()...):
		case slices.Contains(list, d):
			item.Problem(strconv.Quote(string(d))+" is listed twice", "remove one")
		default:
			list = append(list, d)
		}
	}
	*into = list
}

// readBinding reads the key bind, which other programs have for an address.
func readBinding(v document.Value, into *bind.Mode) {
	text, _ := v.Raw.(string)
	if _, err := socket.ParseAddress(text); err == nil {
		v.Problem("is not an address here", "write listen = [%q]", text)
		return
	}
	document.Choice(v, into, bind.Auto, bind.On, bind.Off)
}

// bindFits reports what does not go with the program's own way to open its ports.
func bindFits(v document.Value, p *Program) {
	at := v.Child("bind")
	switch {
	case p.Bind != bind.On:
	case len(p.Listen) == 0:
		at.Problem("does nothing without a listener",
			"write listen = [\"127.0.0.1:8080\"], the address that the program binds")
	default:
		if err := bind.Try(); err != nil {
			at.Problem("cannot be on here: "+err.Error(),
				"write \"auto\", or \"off\" and let the program use the inherited socket")
		}
	}
	listeners, _ := v.Child("listen").Elements()
	for _, l := range listeners {
		l.Useless("binds", p.Bind == bind.Off, `with bind = "off"`, `remove it, or write bind = "auto"`)
	}
}

// bound is one address that a configuration listens on.
type bound struct {
	socket.Resolved
	at document.Problem // where it is written: file, line and key
}

// isSupervisors reports whether supervisord itself listens there.
func (b bound) isSupervisors() bool { return b.Program == "" }

// conflicts returns the problems of listeners that want the same address, however it is spelt.
func conflicts(all []bound) (problems []document.Problem) {
	taken := map[string][]bound{} // by site
	for _, b := range all {
		others := taken[b.Site()]
		at := slices.IndexFunc(others, func(first bound) bool { return first.Overlaps(b.Resolved) })
		switch {
		case b.Site() == "":
		case at >= 0:
			problems = append(problems, b.conflict(others[at]))
		default:
			taken[b.Site()] = append(others, b)
		}
	}
	return problems
}

// conflict says that b wants the address of first.
func (b bound) conflict(first bound) document.Problem {
	p := b.at
	verb := "is already"
	if first.Address != b.Address {
		verb = fmt.Sprintf("overlaps %s,", first.Address)
	}
	p.What = fmt.Sprintf("%s %s the address of %s (%s:%d)", b.Address, verb, strings.TrimSuffix(first.at.Key, ".address"),
		first.at.File, first.at.Line)
	p.Remedy = "give each listener an address of its own"
	switch {
	case first.isSupervisors() || b.isSupervisors():
		p.Remedy = "choose another port or path for one of them"
	case first.Program != b.Program:
		p.Remedy += "; a socket belongs to one program"
	}
	return p
}

// bounds lists the listeners of p, resolved.
func (p *Program) bounds(resolved []socket.Resolved) (all []bound) {
	for i, r := range resolved {
		all = append(all, bound{Resolved: r, at: p.problem(listenKey(i, "address"), "", "")})
	}
	return all
}

// addresses reports the addresses that are taken, as far as that is known without looking up host names.
func (l *loader) addresses() {
	c := l.config
	var all []bound
	for key, a := range map[string]socket.Address{"control": c.Supervisor.controlAddress(), "http": c.Supervisor.HTTP} {
		at := document.Problem{File: c.Files[0], Position: c.positions.Of("supervisor." + key), Key: "supervisor." + key}
		all = append(all, bound{socket.Spec{Address: a}.Literal(), at})
	}
	slices.SortFunc(all, func(a, b bound) int { return strings.Compare(a.at.Key, b.at.Key) })
	for i := range c.Programs {
		var literal []socket.Resolved
		for _, s := range c.Programs[i].Listen {
			literal = append(literal, s.Literal())
		}
		all = append(all, c.Programs[i].bounds(literal)...)
	}
	l.found = append(l.found, conflicts(all)...)
}

// Overlaps reports the listeners that want the same address, with their host names looked up (resolved): by program, in
// the order of its listeners. The error is a *document.Error that names both listeners.
func (c *Config) Overlaps(resolved map[string][]socket.Resolved) error {
	var all []bound
	for i := range c.Programs {
		all = append(all, c.Programs[i].bounds(resolved[c.Programs[i].Name])...)
	}
	return c.refusal(conflicts(all))
}

// refusal is a *document.Error of problems; nil: there is none.
func (c *Config) refusal(problems []document.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &document.Error{Problems: document.SortProblems(problems, c.Files)}
}
