package config

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"example.org/supervisord/socket"
)

const (
	shortestRetry = 10 * time.Millisecond
	shortestLife  = time.Second
)

// reloadFields are the keys of [program.NAME.reload].
var reloadFields = fields[ReloadPolicy]{
	"strategy":          func(r *ReloadPolicy, v value) { choice(v, &r.Strategy, All, Rolling, StopFirst) },
	"max_surge":         func(r *ReloadPolicy, v value) { v.integer(&r.MaxSurge, 1, maxWorkers) },
	"soak":              func(r *ReloadPolicy, v value) { v.duration(&r.Soak, 0) },
	"preflight":         func(r *ReloadPolicy, v value) { v.argv(&r.Preflight) },
	"preflight_timeout": func(r *ReloadPolicy, v value) { v.duration(&r.PreflightTimeout, time.Millisecond) },
	"retry":             func(r *ReloadPolicy, v value) { v.duration(&r.Retry, shortestRetry) },
	"every":             func(r *ReloadPolicy, v value) { v.duration(&r.Every, shortestLife) },
}

func defaultReload() ReloadPolicy {
	return ReloadPolicy{Strategy: All, MaxSurge: 1, PreflightTimeout: 60 * time.Second}
}

func (v value) reload(r *ReloadPolicy) {
	if !decode(v, r, reloadFields) {
		return
	}
	v.useless("max_surge", r.Strategy != Rolling, fmt.Sprintf("with strategy %q", r.Strategy), `remove it, or write strategy = "rolling"`)
	v.useless("preflight_timeout", v.lacks("preflight"), "without preflight", "remove it, or write preflight")
}

// stopPlan is [program.NAME.stop] as it is written: one step, or several.
type stopPlan struct {
	StopPolicy
	one StopStep
}

// stopFields are the keys of [program.NAME.stop].
var stopFields = fields[stopPlan]{
	"signal":        func(s *stopPlan, v value) { v.signal(&s.one.Signal) },
	"timeout":       func(s *stopPlan, v value) { v.wait(&s.one.Wait) },
	"steps":         func(s *stopPlan, v value) { v.stopSteps(&s.Steps) },
	"group":         func(s *stopPlan, v value) { v.flag(&s.Group) },
	"max_draining":  func(s *stopPlan, v value) { v.integer(&s.MaxDraining, 0, 1000) },
	"draining_full": func(s *stopPlan, v value) { choice(v, &s.DrainingFull, Wait, Kill) },
	"reload_signal": func(s *stopPlan, v value) { v.signal(&s.ReloadSignal) },
	"int_signal":    func(s *stopPlan, v value) { v.signal(&s.IntSignal) },
}

// stepFields are the keys of an element of [program.NAME.stop] steps.
var stepFields = fields[StopStep]{
	"signal":  func(s *StopStep, v value) { v.signal(&s.Signal) },
	"timeout": func(s *StopStep, v value) { v.wait(&s.Wait) },
}

func defaultStop() StopPolicy {
	return StopPolicy{Steps: []StopStep{{Signal: syscall.SIGTERM, Wait: 30 * time.Second}}, MaxDraining: 4, DrainingFull: Wait}
}

func (v value) stop(into *StopPolicy) {
	s := stopPlan{StopPolicy: *into, one: into.Steps[0]}
	if !decode(v, &s, stopFields) {
		return
	}
	for _, key := range []string{"signal", "timeout"} {
		v.useless(key, v.has("steps"), "beside steps", "remove it, or make it a step")
	}
	if !v.has("steps") {
		s.Steps = []StopStep{s.one}
	}
	*into = s.StopPolicy
}

// wait reads how long a step of a stop plan waits, or "infinity".
func (v value) wait(into *time.Duration) {
	if v.raw == "infinity" {
		*into = Forever
		return
	}
	v.duration(into, time.Millisecond)
}

// stopSteps reads the steps of a stop plan. Each must have both its signal and its timeout.
func (v value) stopSteps(into *[]StopStep) {
	items, _ := v.elements()
	if len(items) == 0 {
		v.problem("is not an array of steps", `write such as steps = [{ signal = "QUIT", timeout = "20s" }, { signal = "TERM", timeout = "5s" }]`)
		return
	}
	steps := make([]StopStep, len(items))
	for i, item := range items {
		switch {
		case !decode(item, &steps[i], stepFields):
		case item.lacks("signal") || item.lacks("timeout"):
			item.problem("lacks a signal or a timeout", `write such as { signal = "QUIT", timeout = "20s" }`)
		case item.child("timeout").raw == "infinity" && i < len(items)-1:
			item.child("timeout").problem("has no end: the next step would never come", "write it in the last step only")
		}
	}
	*into = steps
}

// restartFields are the keys of [program.NAME.restart].
var restartFields = fields[Restart]{
	"when":         func(r *Restart, v value) { choice(v, &r.When, Always, OnFailure, Never) },
	"backoff":      func(r *Restart, v value) { v.backoff(r) },
	"stable_after": func(r *Restart, v value) { v.duration(&r.StableAfter, 0) },
	"generation":   func(r *Restart, v value) { choice(v, &r.Generation, Same, New) },
}

// backoffFields are the keys of backoff in [program.NAME.restart].
var backoffFields = fields[Restart]{
	"min": func(r *Restart, v value) { v.duration(&r.BackoffMin, time.Millisecond) },
	"max": func(r *Restart, v value) { v.duration(&r.BackoffMax, time.Millisecond) },
}

func defaultRestart() Restart {
	return Restart{When: Always, BackoffMin: 200 * time.Millisecond, BackoffMax: 30 * time.Second, StableAfter: 10 * time.Second, Generation: Same}
}

func (v value) backoff(r *Restart) {
	if decode(v, r, backoffFields) && r.BackoffMin > r.BackoffMax {
		v.problem(fmt.Sprintf("min, %s, is longer than max, %s", r.BackoffMin, r.BackoffMax), "write a min that is at most max")
	}
}

// slotsFit reports a program whose workers have a socket each and may end for good: the kernel goes on giving connections to
// the socket of a worker that is not replaced, and nothing answers them.
func (v value) slotsFit(p *Program) {
	perSlot := slices.ContainsFunc(p.Listen, func(s socket.Spec) bool { return s.PerSlot })
	if perSlot && p.Restart.When != Always {
		v.child("restart").child("when").problem(fmt.Sprintf("%q does not go with per_slot: nothing would answer the connections of a worker that is not replaced", p.Restart.When),
			`write "always", or remove per_slot from the listeners`)
	}
}

// hookFields are the keys of [program.NAME.hooks].
var hookFields = fields[Hooks]{
	"after_reload":   func(h *Hooks, v value) { v.argv(&h.AfterReload) },
	"reload_failed":  func(h *Hooks, v value) { v.argv(&h.ReloadFailed) },
	"worker_crashed": func(h *Hooks, v value) { v.argv(&h.WorkerCrashed) },
	"timeout":        func(h *Hooks, v value) { v.duration(&h.Timeout, time.Millisecond) },
}

func (v value) hooks(h *Hooks) {
	if decode(v, h, hookFields) {
		v.useless("timeout", len(h.AfterReload)+len(h.ReloadFailed)+len(h.WorkerCrashed) == 0,
			"without a hook", "remove it, or write after_reload, reload_failed or worker_crashed")
	}
}
