package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/reach"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker/ready"
)

// readyFields are the keys of [program.NAME.ready].
var readyFields = document.Fields[Ready]{
	"method": func(r *Ready, v document.Value) {
		document.Choice(v, &r.Method, ready.Notify, ready.Accept, ready.Delay, ready.HTTP, ready.TCP, ready.Exec)
	},
	"fd":       func(r *Ready, v document.Value) { v.Integer(&r.FD, inherit.FirstFD, socket.LastFD) },
	"timeout":  func(r *Ready, v document.Value) { v.Duration(&r.Timeout, time.Millisecond) },
	"delay":    func(r *Ready, v document.Value) { v.Duration(&r.Delay, 0) },
	"interval": func(r *Ready, v document.Value) { v.Duration(&r.Interval, time.Millisecond) },
	"url":      func(r *Ready, v document.Value) { readProbeURL(v, &r.Check) },
	"headers":  func(r *Ready, v document.Value) { readHeaders(v, &r.Headers) },
	"status":   func(r *Ready, v document.Value) { readStatuses(v, &r.Status) },
	"address":  func(r *Ready, v document.Value) { readProbeAddress(v, &r.Check) },
	"command":  func(r *Ready, v document.Value) { v.Argv(&r.Command) },
	"accepts": func(r *Ready, v document.Value) {
		accepts := true
		v.Flag(&accepts)
		r.Believed = !accepts
	},
}

// healthFields are the keys of [program.NAME.health].
var healthFields = document.Fields[Health]{
	"method":   func(h *Health, v document.Value) { readHealthMethod(v, &h.Method) },
	"url":      func(h *Health, v document.Value) { readProbeURL(v, &h.Check) },
	"headers":  func(h *Health, v document.Value) { readHeaders(v, &h.Headers) },
	"status":   func(h *Health, v document.Value) { readStatuses(v, &h.Status) },
	"address":  func(h *Health, v document.Value) { readProbeAddress(v, &h.Check) },
	"command":  func(h *Health, v document.Value) { v.Argv(&h.Command) },
	"interval": func(h *Health, v document.Value) { v.Duration(&h.Interval, 10*time.Millisecond) },
	"timeout":  func(h *Health, v document.Value) { v.Duration(&h.Timeout, time.Millisecond) },
	"failures": func(h *Health, v document.Value) { v.Integer(&h.Failures, 1, 1000) },
	"watchdog": func(h *Health, v document.Value) { v.Duration(&h.Watchdog, 100*time.Millisecond) },
}

// methodFits reports the keys that belong to another method, and the keys that this method lacks.
func methodFits(v document.Value, p *Program, method ready.Method) {
	for _, k := range ready.Keys {
		belongs := slices.Contains(k.Methods, method)
		v.Useless(k.Name, !belongs, fmt.Sprintf("with method %q", method), `remove it, or write method = "%s"`, k.Methods[0])
		if belongs && k.Required && v.Lacks(k.Name) {
			v.Problem(fmt.Sprintf("method %q needs %s", method, k.Name), "write such as %s", p.probeExample(k.Name))
		}
	}
}

// probeExample is an example of a key that says where a probe of a worker of p goes, or what it runs.
func (p *Program) probeExample(key string) string {
	at := fmt.Sprintf("unix:/run/%s/{pid}.sock", p.Name)
	if steered := slices.IndexFunc(p.Listen, socket.Spec.IsSteered); steered >= 0 {
		at = reach.ToListener(at, p.Listen[steered].Name)
	}
	switch {
	case key == "command":
		return `command = ["./ready", "{pid}"]`
	case key == "address":
		return "address = " + strconv.Quote(at)
	case strings.HasPrefix(at, "unix:"):
		return "url = " + strconv.Quote(at+":/healthz")
	default:
		return "url = " + strconv.Quote("http://"+at+"/healthz")
	}
}

// runsFor is how long a worker must have run to count as ready where nothing shows whether it is.
const runsFor = time.Second

// defaultReady is for a program without the table, listeners aside.
func defaultReady() Ready {
	return Ready{Check: ready.Check{Method: ready.Delay, Delay: runsFor}, Timeout: 60 * time.Second}
}

// readReady reads [program.NAME.ready]; v may be missing. The listeners of p are known.
func readReady(v document.Value, p *Program) {
	r := &p.Ready
	if v.Raw != nil && !document.Decode(v, r, readyFields) {
		return
	}
	v.Useless("accepts", r.Believed && r.Method == ready.Accept, `with method "accept"`,
		`remove it, or write method = "notify"`)
	if v.Lacks("method") && v.Lacks("delay") && !r.Believed && len(p.Listen) > 0 {
		r.Method, r.Fallback = ready.Accept, runsFor
	}
	methodFits(v, p, r.Method)
	probedListenerFits(v, p, r.Check)
	switch {
	case r.Method != ready.Delay:
		r.Delay = 0
	case r.Delay > r.Timeout:
		v.Child("delay").Problem(fmt.Sprintf("%s is longer than the timeout, %s: no worker would ever be ready", r.Delay,
			r.Timeout),
			"write a delay below the timeout")
	}
	if slices.Contains(ready.Probes, r.Method) && r.Interval == 0 {
		r.Interval = 250 * time.Millisecond
	}
}

// probedListenerFits reports a check, in the table v, that names a listener which does not lead to the worker's own
// generation.
func probedListenerFits(v document.Value, p *Program, c ready.Check) {
	if slices.ContainsFunc(c.Command, func(word string) bool { return strings.Contains(word, reach.Placeholder) }) {
		v.Child("command").Problem(reach.Placeholder+
			"…} is not replaced in a command, which could not reach one generation by its listener",
			`write method = "http" and url = "http://%sNAME}/…"`, reach.Placeholder)
	}
	if c.Listener == "" {
		return
	}
	v = v.Child(probeKey(c))
	at := slices.Index(listenerNames(p), c.Listener)
	switch {
	case at < 0:
		noListener(v, p, reach.Placeholder+c.Listener+"}")
	case p.Listen[at].Address.IsUDP():
		v.Problem(fmt.Sprintf("the listener %q is for udp, which has no connections", c.Listener), "write another method")
	case !p.Listen[at].IsSteered():
		why, change := p.Generations().WhyShared(p.Listen[at])
		v.Problem(fmt.Sprintf("any generation would answer: all share the listener %q (%s)", c.Listener, why), "%s",
			either("write another method", change))
	}
}

// probeKey is the key that says where a probe goes that names a listener.
func probeKey(c ready.Check) string {
	if c.URL != "" {
		return "url"
	}
	return "address"
}

// readHealthMethod reads the method of a health check.
func readHealthMethod(v document.Value, into *ready.Method) {
	switch v.Raw {
	case string(ready.Accept), string(ready.Notify), string(ready.Delay):
		v.Problem(fmt.Sprintf("%q cannot be a health check: it shows only that a worker was ready once, and a busy worker "+
			"would look unhealthy", v.Raw), `write "http", "tcp" or "exec"`)
	default:
		document.Choice(v, into, ready.Probes...)
	}
}

// readHealth reads [program.NAME.health]; v may be missing. The listeners of p are known.
func readHealth(v document.Value, p *Program) {
	if v.Raw == nil {
		return
	}
	h := Health{Check: ready.Check{Interval: 10 * time.Second}, Timeout: 5 * time.Second, Failures: 3}
	switch {
	case !document.Decode(v, &h, healthFields):
		return
	case v.Has("method"):
		methodFits(v, p, h.Method)
		probedListenerFits(v, p, h.Check)
		healthIsOfOne(v, p, h.Check)
	case !v.Lacks("method"):
	case v.Lacks("watchdog"):
		v.Problem("asks for nothing", `write method = "http", or watchdog = "30s" for workers that send WATCHDOG=1`)
	default:
		for key := range healthFields {
			v.Useless(key, key != "watchdog", "without method", `remove it, or write method = "http"`)
		}
		h = Health{Watchdog: h.Watchdog}
	}
	p.Health = h
}

// healthIsOfOne warns of a health check of one worker that another worker may answer.
func healthIsOfOne(v document.Value, p *Program, c ready.Check) {
	at := slices.Index(listenerNames(p), c.Listener)
	if at >= 0 && !p.Listen[at].EachOwn(p.Workers) {
		v.Child(probeKey(c)).Warn(fmt.Sprintf(
			"any of the %d workers of a generation answers at the listener %q, and a healthy one answers for one that hangs",
			p.Workers, c.Listener),
			`write per_slot = true for the listener, or let the workers send WATCHDOG=1 and write watchdog = "30s"`)
	}
}

// acceptFits reports that the method accept of the program v cannot work: the program has no listener.
func acceptFits(v document.Value, p *Program) {
	if p.Ready.Method == ready.Accept && p.Ready.Fallback == 0 && len(p.Listen) == 0 {
		v.Child("ready").Child("method").Problem("there is no socket to accept from",
			"write [[program.%s.listen]], or another method", p.Name)
	}
}

// readyFDFits reports a number for the newline of the program v that belongs to a listener.
func readyFDFits(v document.Value, p *Program) {
	if at := slices.Index(dialect.FDNumbers(p.Listen), p.Ready.FD); p.Ready.FD > 0 && at >= 0 {
		v.Child("ready").Child("fd").Problem(
			fmt.Sprintf("%d is the number of the listener %s", p.Ready.FD, p.Listen[at].Name),
			"write another one here, or give the listener another one with its key fd")
	}
}

// readProbeURL reads the URL of a probe: http or https, of a listener or of another address, or
// unix:/path/of/socket:/path.
func readProbeURL(v document.Value, into *ready.Check) {
	const remedy = `write such as "http://{listener:http}/healthz", "http://127.0.0.1:9000/healthz" or ` +
		`"unix:/run/web/{pid}.sock:/healthz"`
	readProbe(v, &into.URL, &into.Listener, remedy, func(filled string) error {
		_, _, err := ready.Check{Method: ready.HTTP, URL: filled}.Target()
		return err
	})
}

// readProbeAddress reads the address of a probe: a listener, host:port or unix:/path/of/socket.
func readProbeAddress(v document.Value, into *ready.Check) {
	const remedy = `write such as "{listener:http}", "127.0.0.1:9000" or "unix:/run/web/{pid}.sock"`
	readProbe(v, &into.Address, &into.Listener, remedy, func(filled string) error {
		network, _, err := ready.Check{Method: ready.TCP, Address: filled}.Target()
		if err != nil || network == "unix" {
			return err
		}
		a, err := socket.ParseAddress(filled)
		if err == nil && (!a.IsTCP() || a.Host == "" || a.Port == 0) {
			return fmt.Errorf("%q is not an address to connect to", filled)
		}
		return err
	})
}

// readProbe reads where a probe connects, and the listener if it names one. check gets the text with the placeholders
// filled in.
func readProbe(v document.Value, into, listener *string, remedy string, check func(filled string) error) {
	var s string
	if !v.Text(&s) {
		return
	}
	name, filled, ok := reach.CutListener(s)
	if !ok {
		v.Problem(fmt.Sprintf("%q has something beside {listener:NAME}, which is a host and its port", s), "%s", remedy)
		return
	}
	filled = reach.FillIn(filled)
	if strings.ContainsAny(filled, "{}") {
		v.Problem(fmt.Sprintf("%q has an unknown placeholder", s),
			"known are {pid}, {slot}, {generation} and {listener:NAME}")
		return
	}
	if err := check(filled); err != nil {
		v.Problem(strings.ReplaceAll(err.Error(), strconv.Quote(filled), strconv.Quote(s)), "%s", remedy)
		return
	}
	*into, *listener = s, name
}

// readHeaders reads the headers of a probe by HTTP: a table of strings.
func readHeaders(v document.Value, into *map[string]string) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		v.Problem("is "+document.TypeOf(v.Raw)+", not a table", `write such as headers = { Host = "www.example.com" }`)
		return
	}
	headers := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.Child(name)
		var text string
		switch {
		case name == "" || strings.ContainsFunc(name, isNoToken):
			item.Problem("is not the name of a header", "write such as Host or X-Forwarded-Proto")
		case !item.Text(&text):
		case strings.ContainsFunc(text, unicode.IsControl):
			item.Problem("has a character that no header can have", "remove line breaks and other control characters")
		default:
			headers[strings.Clone(name)] = text
		}
	}
	if len(headers) > 0 {
		*into = headers
	}
}

// isNoToken reports whether the name of a header cannot have a character (RFC 9110, section 5.6.2).
func isNoToken(r rune) bool {
	return r > unicode.MaxASCII ||
		!unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// readStatuses reads which answers to a probe count: 204, "200-399", or a list of such.
func readStatuses(v document.Value, into *[]ready.StatusRange) {
	var ranges []ready.StatusRange
	for _, item := range v.OneOrMore() {
		first, last, is := strings.Cut(fmt.Sprint(item.Raw), "-")
		if !is {
			last = first
		}
		low, err1 := strconv.Atoi(first)
		high, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || low < 100 || high > 599 || low > high {
			item.Problem(fmt.Sprintf("%v is neither a status of HTTP nor a range of them", item.Raw),
				`write such as 204, "200-399" or [200, "300-308"]`)
			return
		}
		ranges = append(ranges, ready.StatusRange{First: low, Last: high})
	}
	if len(ranges) == 1 && ranges[0] == ready.Success {
		ranges = nil
	}
	*into = ranges
}

// probes returns the probes of a program that connect to an address, without those that name a listener.
func (p *Program) probes() (list []reach.Aimed) {
	for table, check := range map[string]ready.Check{"ready": p.Ready.Check, "health": p.Health.Check} {
		if pr, connects := reach.Of(p.Name, table, check); connects {
			list = append(list, pr)
		}
	}
	return list
}

// endpoints lists the addresses that the configuration listens on.
func (c *Config) endpoints() []reach.Endpoint {
	var list []reach.Endpoint
	for _, p := range c.Programs {
		for _, l := range p.Listen {
			list = append(list, reach.Endpoint{Program: p.Name, Name: l.Name, Address: l.Address})
		}
	}
	for _, own := range []socket.Address{c.Supervisor.HTTP, c.Supervisor.controlAddress()} {
		if own != (socket.Address{}) {
			list = append(list, reach.Endpoint{Address: own})
		}
	}
	return list
}

// CheckProbes returns a *document.Error if a probe of a program in c reaches one of the open endpoints. Load has
// checked the listeners of c as they are written; only a running supervisord knows the ports that the kernel chose, and
// the listeners that are open but no longer configured.
func (c *Config) CheckProbes(open []reach.Endpoint) error {
	var problems []document.Problem
	for i := range c.Programs {
		p := &c.Programs[i]
		for _, pr := range p.probes() {
			if what, remedy := pr.Refusal(open, p.Listen); what != "" {
				problems = append(problems, p.problem(pr.Table+"."+pr.Key, what, remedy))
			}
		}
	}
	return c.refusal(problems)
}

// probes reports the probes that another process than the worker in question would answer.
func (l *loader) probes() {
	endpoints := l.config.endpoints()
	if reached, is := errors.AsType[*document.Error](l.config.CheckProbes(endpoints)); is {
		l.found = append(l.found, reached.Problems...)
	}
	for i := range l.config.Programs {
		p := &l.config.Programs[i]
		for _, pr := range p.probes() {
			if what, _ := pr.Refusal(endpoints, p.Listen); what == "" && !pr.IsOwn(p.Generations()) {
				l.written[p.Name].Child(pr.Table).Child(pr.Key).Warn(
					"is the address of several workers: an old worker that still has it answers for the new one",
					`put {pid} into it, or {generation} and {slot}, or write strategy = "stop-first" in [%s.reload]`,
					document.Key("program", p.Name))
			}
		}
		for table, check := range map[string]ready.Check{"ready": p.Ready.Check, "health": p.Health.Check} {
			for _, what := range reach.ByCommand(check, endpoints) {
				l.written[p.Name].Child(table).Child("command").Warn(what, "ask the worker itself: its PID is {pid}")
			}
		}
	}
}
