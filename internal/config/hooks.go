package config

import "time"

// Hooks is the [program.NAME.hooks] table: commands that are told what happened. An empty one is not run.
type Hooks struct {
	AfterReload   []string
	ReloadFailed  []string
	WorkerCrashed []string
	Timeout       time.Duration // of each
}

const defaultHookTimeout = 30 * time.Second

// hookFields are the keys of [program.NAME.hooks].
var hookFields = fields[Hooks]{
	"after_reload":   func(h *Hooks, v value) { v.argv(&h.AfterReload) },
	"reload_failed":  func(h *Hooks, v value) { v.argv(&h.ReloadFailed) },
	"worker_crashed": func(h *Hooks, v value) { v.argv(&h.WorkerCrashed) },
	"timeout":        func(h *Hooks, v value) { v.duration(&h.Timeout, time.Millisecond) },
}

func defaultHooks() Hooks { return Hooks{Timeout: defaultHookTimeout} }

func (v value) hooks(into *Hooks) {
	h := defaultHooks()
	if !decode(v, &h, hookFields) {
		return
	}
	if v.has("timeout") && len(h.AfterReload)+len(h.ReloadFailed)+len(h.WorkerCrashed) == 0 {
		v.child("timeout").problem("does nothing without a hook", "remove it, or write after_reload, reload_failed or worker_crashed")
	}
	*into = h
}
