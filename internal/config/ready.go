package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker/ready"
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

// healthFields are the keys of [program.NAME.health].
var healthFields = fields[Health]{
	"method":   func(h *Health, v value) { v.healthMethod(&h.Method) },
	"url":      func(h *Health, v value) { v.probeURL(&h.URL) },
	"address":  func(h *Health, v value) { v.probeAddress(&h.Address) },
	"command":  func(h *Health, v value) { v.argv(&h.Command) },
	"interval": func(h *Health, v value) { v.duration(&h.Interval, 10*time.Millisecond) },
	"timeout":  func(h *Health, v value) { v.duration(&h.Timeout, time.Millisecond) },
	"failures": func(h *Health, v value) { v.integer(&h.Failures, 1, 1000) },
	"watchdog": func(h *Health, v value) { v.duration(&h.Watchdog, 100*time.Millisecond) },
}

// probes are the methods that ask again and again.
var probes = []ready.Method{ready.HTTP, ready.TCP, ready.Exec}

// methodKeys says which keys belong to which methods. A key of another method is an error, because it would do nothing.
var methodKeys = []struct {
	key      string
	methods  []ready.Method
	required string // what to write if it is missing; "": it has a default
}{
	{"fd", []ready.Method{ready.Notify}, ""},
	{"delay", []ready.Method{ready.Delay}, ""},
	{"interval", probes, ""},
	{"url", []ready.Method{ready.HTTP}, `url = "unix:/run/web/{pid}.sock:/healthz"`},
	{"address", []ready.Method{ready.TCP}, `address = "unix:/run/web/{pid}.sock"`},
	{"command", []ready.Method{ready.Exec}, `command = ["./ready", "{pid}"]`},
}

// methodFits reports the keys that belong to another method, and those that this method lacks.
func (v value) methodFits(method ready.Method) {
	for _, k := range methodKeys {
		belongs := slices.Contains(k.methods, method)
		v.useless(k.key, !belongs, fmt.Sprintf("with method %q", method), `remove it, or write method = "%s"`, k.methods[0])
		if belongs && k.required != "" && v.lacks(k.key) {
			v.problem(fmt.Sprintf("method %q needs %s", method, k.key), "write such as %s", k.required)
		}
	}
}

// defaultReady is for a program without the table.
func defaultReady() Ready {
	return Ready{Check: ready.Check{Method: ready.Delay, Delay: time.Second}, Timeout: 60 * time.Second}
}

// ready reads [program.NAME.ready]; v may be missing.
func (v value) ready(r *Ready) {
	if v.raw != nil && !decode(v, r, readyFields) {
		return
	}
	if v.lacks("method") {
		v.child("method").warn("is delay, which every program passes", `let the program say READY=1 and write method = "notify", or choose accept, http, tcp or exec`)
	}
	v.methodFits(r.Method)
	switch {
	case r.Method != ready.Delay:
		r.Delay = 0
	case r.Delay > r.Timeout:
		v.child("delay").problem(fmt.Sprintf("%s is longer than the timeout, %s: no worker would ever be ready", r.Delay, r.Timeout),
			"write a delay below the timeout")
	}
	if slices.Contains(probes, r.Method) && r.Interval == 0 {
		r.Interval = 250 * time.Millisecond
	}
}

// healthMethod reads the method of a health check.
func (v value) healthMethod(into *ready.Method) {
	switch v.raw {
	case string(ready.Accept), string(ready.Notify), string(ready.Delay):
		v.problem(fmt.Sprintf("%q cannot be a health check: it shows only that a worker was ready once, and a busy worker would look unhealthy", v.raw), `write "http", "tcp" or "exec"`)
	default:
		choice(v, into, probes...)
	}
}

// health reads [program.NAME.health]; v may be missing.
func (v value) health(into *Health) {
	if v.raw == nil {
		return
	}
	h := Health{Check: ready.Check{Interval: 10 * time.Second}, Timeout: 5 * time.Second, Failures: 3}
	switch {
	case !decode(v, &h, healthFields):
		return
	case v.has("method"):
		v.methodFits(h.Method)
	case !v.lacks("method"):
	case v.lacks("watchdog"):
		v.problem("asks for nothing", `write method = "http", or watchdog = "30s" for workers that send WATCHDOG=1`)
	default:
		for key := range healthFields {
			v.useless(key, key != "watchdog", "without method", `remove it, or write method = "http"`)
		}
		h = Health{Watchdog: h.Watchdog}
	}
	*into = h
}

// acceptFits reports where the method accept of the program v cannot work: nothing to accept from, or no right to look.
func (v value) acceptFits(p *Program) {
	method := v.child("ready").child("method")
	switch {
	case p.Ready.Method != ready.Accept:
	case len(p.Listen) == 0:
		method.problem("there is no socket to accept from", "write [[program.%s.listen]], or another method", p.Name)
	case p.User != "" && !ready.MayLookAt(p.User):
		method.warn("supervisord may not look at a worker of another user without CAP_SYS_PTRACE, which it does not have here",
			`grant it (systemd/drop-ins/look-into-workers.conf), or write method = "notify"`)
	}
}

// readyFDFits reports that the number for the newline of the program v is a listener's.
func (v value) readyFDFits(p *Program) {
	if at := slices.Index(dialect.FDNumbers(p.Listen), p.Ready.FD); p.Ready.FD > 0 && at >= 0 {
		v.child("ready").child("fd").problem(fmt.Sprintf("%d is the number of the listener %s", p.Ready.FD, p.Listen[at].Name),
			"write another one here, or give the listener another one with its key fd")
	}
}

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
		if err == nil && (!a.IsTCP() || a.Host == "" || a.Port == 0) {
			return fmt.Errorf("%q is not an address to connect to", filled)
		}
		return err
	})
}

// probe reads where a probe connects. check gets it with the placeholders filled in.
func (v value) probe(into *string, remedy string, check func(filled string) error) {
	var s string
	if !v.text(&s) {
		return
	}
	filled := exampleValues.Replace(s)
	if strings.ContainsAny(filled, "{}") {
		v.problem(fmt.Sprintf("%q has an unknown placeholder", s), "known are {pid}, {slot} and {generation}")
		return
	}
	if err := check(filled); err != nil {
		v.problem(err.Error(), "%s", remedy)
		return
	}
	*into = s
}
