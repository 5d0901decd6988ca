package config

import (
	"fmt"
	"time"

	"example.org/supervisord/worker"
	"example.org/supervisord/worker/ready"
)

// Health is the [program.NAME.health] table: how a worker that serves shows that it is well.
type Health struct {
	ready.Check               // the probe; without a Method there is none
	Timeout     time.Duration // of one probe
	Failures    int           // so many in a row mean that the worker is ill
	Watchdog    time.Duration // WATCHDOG=1 must come within it; 0: need not
}

const (
	defaultHealthInterval = 10 * time.Second
	defaultHealthTimeout  = 5 * time.Second
	defaultHealthFailures = 3
	shortestWatchdog      = 100 * time.Millisecond
)

// healthFields are the keys of [program.NAME.health].
var healthFields = fields[Health]{
	"method":   func(h *Health, v value) { v.healthMethod(&h.Method) },
	"url":      func(h *Health, v value) { v.probeURL(&h.URL) },
	"address":  func(h *Health, v value) { v.probeAddress(&h.Address) },
	"command":  func(h *Health, v value) { v.argv(&h.Command) },
	"interval": func(h *Health, v value) { v.duration(&h.Interval, 10*time.Millisecond) },
	"timeout":  func(h *Health, v value) { v.duration(&h.Timeout, time.Millisecond) },
	"failures": func(h *Health, v value) { v.integer(&h.Failures, 1, 1000) },
	"watchdog": func(h *Health, v value) { v.duration(&h.Watchdog, shortestWatchdog) },
}

// healthMethod reads the method of a probe. What shows that a worker has begun does not show that it is still well.
func (v value) healthMethod(into *ready.Method) {
	switch v.raw {
	case string(ready.Accept), string(ready.Notify), string(ready.Delay):
		v.problem(fmt.Sprintf("%q shows that a worker is ready, and not that it is well: one with much to do waits for nothing", v.raw), `write "http", "tcp" or "exec"`)
	default:
		choice(v, into, ready.HTTP, ready.TCP, ready.Exec)
	}
}

// health reads [program.NAME.health]; v may be missing.
func (v value) health(into *Health) {
	if v.raw == nil {
		return
	}
	h := Health{Check: ready.Check{Interval: defaultHealthInterval}, Timeout: defaultHealthTimeout, Failures: defaultHealthFailures}
	if !decode(v, &h, healthFields) {
		return
	}
	switch {
	case v.has("method"):
		v.readyKeys(h.Method)
	case v.lacks("watchdog") && v.lacks("method"):
		v.problem("asks for nothing", `write method = "http", or watchdog = "30s" for workers that send WATCHDOG=1`)
	default:
		for _, key := range []string{"url", "address", "command", "interval", "timeout", "failures"} {
			if v.has(key) && v.lacks("method") {
				v.child(key).problem("does nothing without method", `remove it, or write method = "http"`)
			}
		}
		h = Health{Watchdog: h.Watchdog}
	}
	*into = h
}

// limitTable is [program.NAME.limits]: what the kernel keeps to, and what supervisord does.
type limitTable struct {
	worker.Limits
	maxMemory uint64
	maxAge    time.Duration
}

const (
	leastMemory  = mebibyte
	shortestLife = time.Second
)

func (v value) limits(p *Program) {
	l := limitTable{}
	if decode(v, &l, limitFields) {
		p.Limits, p.MaxMemory, p.MaxAge = l.Limits, l.maxMemory, l.maxAge
	}
}

// memory reads how much a worker may use.
func (v value) memory(into *uint64) {
	n, ok := v.size()
	switch {
	case !ok:
	case n < leastMemory:
		v.problem(fmt.Sprintf("%v is less than any worker needs", v.raw), `write a size such as "512MiB"`)
	default:
		*into = n
	}
}
