package config

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/worker/spawn"
)

// limitFields are the keys of [program.NAME.limits]: the soft limits of getrlimit(2) by their names there, and other
// attributes of a process; max_memory and max_age are supervisord's own.
var limitFields = document.Fields[limitTable]{
	"core":    rlimit("core", true),
	"memlock": rlimit("memlock", true),
	"nofile":  rlimit("nofile", false),
	"nproc":   rlimit("nproc", false),
	"stack":   rlimit("stack", true),
	"rlimits": func(l *limitTable, v document.Value) { document.Decode(v, l, rlimitFields) },

	"umask": func(l *limitTable, v document.Value) {
		var bits uint32
		if v.Octal(&bits) {
			mask := int(bits)
			l.Umask = &mask
		}
	},
	"nice":                 func(l *limitTable, v document.Value) { optional(v, &l.Nice, -20, 19) },
	"oom_score_adj":        func(l *limitTable, v document.Value) { optional(v, &l.OOMScoreAdj, -1000, 1000) },
	"ignore_sigpipe":       func(l *limitTable, v document.Value) { v.Flag(&l.IgnoreSIGPIPE) },
	"no_new_privileges":    func(l *limitTable, v document.Value) { v.Flag(&l.NoNewPrivileges) },
	"ambient_capabilities": func(l *limitTable, v document.Value) { readCapabilities(v, &l.AmbientCapabilities) },

	"max_memory": func(l *limitTable, v document.Value) { readMemory(v, &l.maxMemory) },
	"max_age":    func(l *limitTable, v document.Value) { v.Duration(&l.maxAge, shortestLife) },
}

// rlimitFields are the keys of rlimits in [program.NAME.limits]: the soft limits that are seldom set.
var rlimitFields = document.Fields[limitTable]{
	"as":         rlimit("as", true),
	"cpu":        rlimit("cpu", false),
	"data":       rlimit("data", true),
	"fsize":      rlimit("fsize", true),
	"msgqueue":   rlimit("msgqueue", true),
	"nice":       rlimit("nice", false),
	"rtprio":     rlimit("rtprio", false),
	"rttime":     rlimit("rttime", false),
	"sigpending": rlimit("sigpending", false),
}

// limitTable is [program.NAME.limits]: limits that the kernel enforces, and limits that supervisord enforces.
type limitTable struct {
	spawn.Limits
	maxMemory uint64
	maxAge    time.Duration
}

func readLimits(v document.Value, p *Program) {
	var l limitTable
	if document.Decode(v, &l, limitFields) {
		p.Limits, p.MaxMemory, p.MaxAge = l.Limits, l.maxMemory, l.maxAge
	}
}

// readMemory reads how much a worker may use.
func readMemory(v document.Value, into *uint64) {
	n, ok := readSize(v)
	switch {
	case !ok:
	case n < mebibyte:
		v.Problem(fmt.Sprintf("%v is less than any worker needs", v.Raw), `write a size such as "512MiB"`)
	default:
		*into = n
	}
}

func optional(v document.Value, into **int, low, high int) {
	var n int
	if v.Integer(&n, low, high) {
		*into = &n
	}
}

// rlimit reads one soft limit: a number, "unlimited", or for sizes a string with a unit.
func rlimit(name string, size bool) func(*limitTable, document.Value) {
	remedy := `write a number or "unlimited"`
	if size {
		remedy = `write a size such as "512MiB", a number of bytes, or "unlimited"`
	}
	return func(l *limitTable, v document.Value) {
		n, err := parseLimit(v.Raw, size)
		if err != nil {
			v.Problem(err.Error(), "%s", remedy)
			return
		}
		if hard := spawn.AboveHard(name, n); hard != "" { // the user of `check` stands for that of supervisord
			v.Warn(fmt.Sprintf("is above the hard limit %s, which only CAP_SYS_RESOURCE may raise, and this user does not "+
				"have it", hard),
				"no generation starts with it: write at most %s, or start supervisord as root, or with a higher hard limit "+
					"(Limit%s= in its unit)",
				hard, strings.ToUpper(name))
		}
		if l.RLimits == nil {
			l.RLimits = map[string]uint64{}
		}
		l.RLimits[name] = n
	}
}

func parseLimit(raw any, size bool) (uint64, error) {
	switch raw := raw.(type) {
	case int64:
		if raw < 0 {
			return 0, fmt.Errorf("%d is out of range", raw)
		}
		return uint64(raw), nil
	case string:
		if raw == "unlimited" {
			return spawn.RLimitInfinity, nil
		}
		if size {
			return document.ParseSize(raw)
		}
		return 0, fmt.Errorf("%q is not a limit", raw)
	default:
		return 0, fmt.Errorf("is %s, not a limit", document.TypeOf(raw))
	}
}

// readCapabilities reads names of capabilities and makes them canonical: CAP_NET_BIND_SERVICE.
func readCapabilities(v document.Value, into *[]string) {
	var names []string
	if !v.Texts(&names) {
		return
	}
	for i, name := range names {
		if _, known := spawn.Capability(name); !known {
			v.Problem(fmt.Sprintf("%q is not a capability", name), "capabilities(7) lists them, such as CAP_NET_BIND_SERVICE")
			return
		}
		names[i] = "CAP_" + strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	}
	*into = names
}
