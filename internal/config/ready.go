package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker/ready"
)

const (
	defaultReadyTimeout  = 60 * time.Second
	defaultReadyDelay    = time.Second
	defaultReadyInterval = 250 * time.Millisecond
)

// readyFields are the keys of [program.NAME.ready].
var readyFields = fields[Ready]{
	"method": func(r *Ready, v value) {
		choice(v, &r.Method, ready.Notify, ready.Accept, ready.Delay, ready.HTTP, ready.TCP, ready.Exec)
	},
	"fd":       func(r *Ready, v value) { v.integer(&r.FD, inherit.FirstFD, socket.LastFD) },
	"timeout":  func(r *Ready, v value) { v.duration(&r.Timeout, time.Millisecond) },
	"delay":    func(r *Ready, v value) { v.duration(&r.Delay, 0) },
	"interval": func(r *Ready, v value) { v.duration(&r.Interval, time.Millisecond) },
	"url":      func(r *Ready, v value) { v.probeURL(&r.URL) },
	"address":  func(r *Ready, v value) { v.probeAddress(&r.Address) },
	"command":  func(r *Ready, v value) { v.argv(&r.Command) },
}

// methodKeys says which keys belong to which methods. A key of another method is an error: it would do nothing.
var methodKeys = []struct {
	key      string
	methods  []ready.Method
	required string // what to write if it is missing; "": it has a default
}{
	{"fd", []ready.Method{ready.Notify}, ""},
	{"delay", []ready.Method{ready.Delay}, ""},
	{"interval", []ready.Method{ready.HTTP, ready.TCP, ready.Exec}, ""},
	{"url", []ready.Method{ready.HTTP}, `url = "unix:/run/web/{pid}.sock:/healthz"`},
	{"address", []ready.Method{ready.TCP}, `address = "unix:/run/web/{pid}.sock"`},
	{"command", []ready.Method{ready.Exec}, `command = ["./ready", "{pid}"]`},
}

// defaultReady is what a program gets that says nothing.
func defaultReady() Ready {
	return Ready{Check: ready.Check{Method: ready.Delay, Delay: defaultReadyDelay}, Timeout: defaultReadyTimeout}
}

// ready reads [program.NAME.ready]; v may be missing.
func (v value) ready(into *Ready) {
	r := defaultReady()
	if v.raw != nil && !decode(v, &r, readyFields) {
		return
	}
	if !v.has("method") {
		v.child("method").warn("is delay, which every program passes", `let the program say READY=1 and write method = "notify", or choose accept, http, tcp or exec`)
	}
	v.readyKeys(r.Method)
	if r.Method != ready.Delay {
		r.Delay = 0
	} else if r.Delay > r.Timeout {
		v.child("delay").problem(fmt.Sprintf("%s is longer than the timeout, %s: no worker would ever be ready", r.Delay, r.Timeout),
			"write a delay below the timeout")
	}
	if isProbe(r.Method) && r.Interval == 0 {
		r.Interval = defaultReadyInterval
	}
	*into = r
}

// isProbe reports whether a method asks again and again.
func isProbe(m ready.Method) bool { return m == ready.HTTP || m == ready.TCP || m == ready.Exec }

// acceptFits reports where the method accept of the program v cannot work: nothing to accept from, or nobody who may look.
func (v value) acceptFits(p *Program) {
	method := v.child("ready").child("method")
	switch {
	case p.Ready.Method != ready.Accept:
	case len(p.Listen) == 0:
		method.problem("there is no socket to accept from", "write [[program.%s.listen]], or another method", p.Name)
	case p.User != "" && !ready.MayLookAt(p.User):
		method.warn("a worker of another user cannot be looked at without CAP_SYS_PTRACE, which supervisord does not have here",
			`give it that (systemd/drop-ins/look-into-workers.conf), or write method = "notify"`)
	}
}

// readyFDFits reports where the number that the program v writes its newline to is a listener's.
func (v value) readyFDFits(p *Program) {
	at := slices.Index(socket.FDNumbers(p.Listen), p.Ready.FD)
	if p.Ready.FD == 0 || at < 0 {
		return
	}
	v.child("ready").child("fd").problem(fmt.Sprintf("%d is the number of the listener %s", p.Ready.FD, p.Listen[at].Name),
		"write another one here, or give the listener another by its own key fd")
}

// readyKeys reports the keys that belong to another method, and those that this method lacks.
func (v value) readyKeys(method ready.Method) {
	for _, k := range methodKeys {
		belongs := slices.Contains(k.methods, method)
		switch {
		case v.has(k.key) && !belongs:
			v.child(k.key).problem(fmt.Sprintf("does nothing with method %q", method), `remove it, or write method = "%s"`, k.methods[0])
		case belongs && k.required != "" && v.lacks(k.key):
			v.problem(fmt.Sprintf("method %q needs %s", method, k.key), "write such as %s", k.required)
		}
	}
}

// fill replaces the placeholders of a probe by an example, so that the rest can be checked.
var fill = strings.NewReplacer("{pid}", "1", "{slot}", "1", "{generation}", "1")

// probeURL reads the URL of a probe: http, https, or unix:/path/of/socket:/path.
func (v value) probeURL(into *string) {
	v.probe(into, `write such as "http://127.0.0.1:9000/healthz" or "unix:/run/web/{pid}.sock:/healthz"`, func(filled string) error {
		_, _, err := ready.Check{Method: ready.HTTP, URL: filled}.Target()
		return err
	})
}

// probeAddress reads the address of a probe: host:port or unix:/path/of/socket.
func (v value) probeAddress(into *string) {
	v.probe(into, `write such as "127.0.0.1:9000" or "unix:/run/web/{pid}.sock"`, func(filled string) error {
		network, _, err := ready.Check{Method: ready.TCP, Address: filled}.Target()
		if err != nil || network == "unix" {
			return err
		}
		a, err := socket.ParseAddress(filled)
		if err == nil && (!a.IsTCP() || a.Host() == "" || a.Port() == 0) {
			return fmt.Errorf("%q is not an address to connect to", filled)
		}
		return err
	})
}

// probe reads where a probe goes. check is given it without placeholders.
func (v value) probe(into *string, remedy string, check func(filled string) error) {
	var s string
	if !v.text(&s) {
		return
	}
	filled := fill.Replace(s)
	if strings.ContainsAny(filled, "{}") {
		v.problem(fmt.Sprintf("%q has a placeholder that is not known", s), "there are {pid}, {slot} and {generation}")
		return
	}
	if err := check(filled); err != nil {
		v.problem(err.Error(), "%s", remedy)
		return
	}
	*into = s
}
