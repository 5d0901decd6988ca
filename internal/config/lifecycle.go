package config

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config/document"
)

const (
	shortestRetry = 10 * time.Millisecond
	shortestLife  = time.Second
)

// reloadFields are the keys of [program.NAME.reload].
var reloadFields = document.Fields[ReloadPolicy]{
	"strategy": func(r *ReloadPolicy,
		v document.Value) {
		document.Choice(v, &r.Strategy, All, Rolling, StopFirst)
	},
	"max_draining": func(r *ReloadPolicy, v document.Value) { v.Integer(&r.MaxDraining, 0, 1000) },
	"max_surge":    func(r *ReloadPolicy, v document.Value) { v.Integer(&r.MaxSurge, 1, maxWorkers) },
	"soak":         func(r *ReloadPolicy, v document.Value) { v.Duration(&r.Soak, 0) },
	"preflight":    func(r *ReloadPolicy, v document.Value) { v.Argv(&r.Preflight) },
	"every":        func(r *ReloadPolicy, v document.Value) { v.Duration(&r.Every, shortestLife) },
	"keep":         func(r *ReloadPolicy, v document.Value) { v.Duration(&r.Keep, 0) },
}

func defaultReload() ReloadPolicy {
	return ReloadPolicy{Strategy: All, MaxSurge: 1, MaxDraining: 4}
}

func readReload(v document.Value, r *ReloadPolicy) {
	if !document.Decode(v, r, reloadFields) {
		return
	}
	v.Useless("max_surge", r.Strategy != Rolling, fmt.Sprintf("with strategy %q", r.Strategy),
		`remove it, or write strategy = "rolling"`)
}

// stopPlan is [program.NAME.stop] as it is written: one step, or several.
type stopPlan struct {
	StopPolicy
	one StopStep
}

// stopFields are the keys of [program.NAME.stop].
var stopFields = document.Fields[stopPlan]{
	"signal":  func(s *stopPlan, v document.Value) { v.Signal(&s.one.Signal) },
	"timeout": func(s *stopPlan, v document.Value) { readWait(v, &s.one.Wait) },
	"steps":   func(s *stopPlan, v document.Value) { readStopSteps(v, &s.Steps) },
	"group":   func(s *stopPlan, v document.Value) { v.Flag(&s.Group) },
}

// stepFields are the keys of an element of [program.NAME.stop] steps.
var stepFields = document.Fields[StopStep]{
	"signal":  func(s *StopStep, v document.Value) { v.Signal(&s.Signal) },
	"timeout": func(s *StopStep, v document.Value) { readWait(v, &s.Wait) },
}

func defaultStop() StopPolicy {
	return StopPolicy{Steps: []StopStep{{Signal: syscall.SIGTERM, Wait: 30 * time.Second}}}
}

func readStop(v document.Value, into *StopPolicy) {
	s := stopPlan{StopPolicy: *into, one: into.Steps[0]}
	if !document.Decode(v, &s, stopFields) {
		return
	}
	for _, key := range []string{"signal", "timeout"} {
		v.Useless(key, v.Has("steps"), "beside steps", "remove it, or make it a step")
	}
	if !v.Has("steps") {
		s.Steps = []StopStep{s.one}
	}
	*into = s.StopPolicy
}

// readWait reads how long a step of a stop plan waits, or "infinity".
func readWait(v document.Value, into *time.Duration) {
	if v.Raw == "infinity" {
		*into = Forever
		return
	}
	v.Duration(into, time.Millisecond)
}

// readStopSteps reads the steps of a stop plan. Each must have both its signal and its timeout.
func readStopSteps(v document.Value, into *[]StopStep) {
	items, _ := v.Elements()
	if len(items) == 0 {
		v.Problem("is not an array of steps",
			`write such as steps = [{ signal = "QUIT", timeout = "20s" }, { signal = "TERM", timeout = "5s" }]`)
		return
	}
	steps := make([]StopStep, len(items))
	for i, item := range items {
		switch {
		case !document.Decode(item, &steps[i], stepFields):
		case item.Lacks("signal") || item.Lacks("timeout"):
			item.Problem("lacks a signal or a timeout", `write such as { signal = "QUIT", timeout = "20s" }`)
		case item.Child("timeout").Raw == "infinity" && i < len(items)-1:
			item.Child("timeout").Problem("has no end: the next step would never come", "write it in the last step only")
		}
	}
	*into = steps
}

// restartFields are the keys of [program.NAME.restart].
var restartFields = document.Fields[Restart]{
	"when":         func(r *Restart, v document.Value) { document.Choice(v, &r.When, Always, OnFailure, Never) },
	"backoff":      func(r *Restart, v document.Value) { readBackoff(v, r) },
	"budget":       func(r *Restart, v document.Value) { v.Integer(&r.Budget, 0, 100) },
	"stable_after": func(r *Restart, v document.Value) { v.Duration(&r.StableAfter, 0) },
}

func readExitCodes(v document.Value, into *[]int) {
	items, ok := v.Elements()
	if !ok {
		v.Problem("is not a list of exit codes", "write such as success_exit_codes = [143]")
		return
	}
	codes := []int{}
	for _, item := range items {
		var code int
		if item.Integer(&code, 0, 255) {
			codes = append(codes, code)
		}
	}
	*into = codes
}

// backoffFields are the keys of backoff in [program.NAME.restart].
var backoffFields = document.Fields[Restart]{
	"min": func(r *Restart, v document.Value) { v.Duration(&r.BackoffMin, time.Millisecond) },
	"max": func(r *Restart, v document.Value) { v.Duration(&r.BackoffMax, time.Millisecond) },
}

func defaultRestart() Restart {
	return Restart{When: Always, BackoffMin: 200 * time.Millisecond, BackoffMax: 30 * time.Second, Budget: 5,
		StableAfter: 10 * time.Second, Generation: Same}
}

func readBackoff(v document.Value, r *Restart) {
	if document.Decode(v, r, backoffFields) && r.BackoffMin > r.BackoffMax {
		v.Problem(fmt.Sprintf("min, %s, is longer than max, %s", r.BackoffMin, r.BackoffMax),
			"write a min that is at most max")
	}
}

// hookFields are the keys of [program.NAME.hooks].
var hookFields = document.Fields[Hooks]{
	"after_reload":   func(h *Hooks, v document.Value) { v.Argv(&h.AfterReload) },
	"reload_failed":  func(h *Hooks, v document.Value) { v.Argv(&h.ReloadFailed) },
	"worker_crashed": func(h *Hooks, v document.Value) { v.Argv(&h.WorkerCrashed) },
	"timeout":        func(h *Hooks, v document.Value) { v.Duration(&h.Timeout, time.Millisecond) },
}

func readHooks(v document.Value, h *Hooks) {
	if document.Decode(v, h, hookFields) {
		v.Useless("timeout", len(h.AfterReload)+len(h.ReloadFailed)+len(h.WorkerCrashed) == 0,
			"without a hook", "remove it, or write after_reload, reload_failed or worker_crashed")
	}
}

// Signal is a signal of kill(2), for packages that make no system calls themselves.
type Signal = syscall.Signal

// SIGKILL ends a process that cannot prevent it.
const SIGKILL = syscall.SIGKILL

// SignalName returns the name of a signal as a configuration has it, "TERM", or its number if it has no name.
func SignalName(s Signal) string {
	if name := unix.SignalName(s); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(s))
}
