package config

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/meant"
	"example.org/supervisord/worker/output"
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

	"max_memory": func(l *limitTable, v document.Value) { v.Size(&l.maxMemory, mebibyte, 1) },
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

func optional(v document.Value, into **int, low, high int) {
	var n int
	if v.Integer(&n, low, high) {
		*into = &n
	}
}

// rlimit reads one soft limit: a number, "unlimited", or for sizes a string with a unit.
func rlimit(name string, size bool) func(*limitTable, document.Value) {
	return func(l *limitTable, v document.Value) {
		number, isNumber := v.Raw.(int64)
		n := uint64(number)
		switch {
		case v.Raw == "unlimited":
			n = spawn.RLimitInfinity
		case size && !v.Size(&n, 0, 1):
			return
		case !size && (!isNumber || number < 0):
			v.Problem(fmt.Sprintf("%v is not a limit", v.Raw), `write a number or "unlimited"`)
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

// readOutput reads where a stream goes.
func readOutput(v document.Value, into *Output) {
	document.Parsed(v, into, func(s string) (Output, *document.Wrong) {
		switch kind := output.Kind(s); kind {
		case output.Inherit, output.Null, output.Capture:
			return Output{Kind: kind}, nil
		}
		if remedy := meant.NotFile(s); remedy != "" {
			return Output{}, &document.Wrong{What: fmt.Sprintf("%q is not a path", s),
				Remedy: fmt.Sprintf("%s; a file of this name is written %q", remedy, "./"+s)}
		}
		return Output{Kind: output.ToFile, Path: document.Absolute(v.In.Dir, s)}, nil
	})
}

const mebibyte = 1 << 20

// logFields are the keys of [program.NAME.log].
var logFields = document.Fields[LogPolicy]{
	"file": func(l *LogPolicy, v document.Value) { v.Path(&l.File) },
	"max_size": func(l *LogPolicy, v document.Value) {
		var size uint64
		if v.Size(&size, mebibyte, mebibyte) {
			l.MaxSize = int64(size)
		}
	},
	"max_files": func(l *LogPolicy, v document.Value) { v.Integer(&l.MaxFiles, 0, 100_000) },
}

// readLog reads [program.NAME.log]; the streams of p are known.
func readLog(v document.Value, p *Program) {
	l := LogPolicy{MaxSize: 100 * mebibyte, MaxFiles: 5}
	if v.Raw == nil || !document.Decode(v, &l, logFields) {
		return
	}
	if !p.Captures() {
		v.Problem("does nothing without a captured stream", `write stdout = "capture" or stderr = "capture"`)
	}
	if v.Lacks("file") {
		v.Problem("has no file", `write such as file = "/var/log/%s.log", or leave the table out`, p.Name)
	}
	p.Log = l
}

// Captures reports whether supervisord keeps what the program writes.
func (p *Program) Captures() bool {
	return p.Stdout.Kind == output.Capture || p.Stderr.Kind == output.Capture
}

// ownFile reports a file that another program already has: each rotates its log, and replaces its status file.
func (l *loader) ownFile(file document.Value, path, key string) {
	if path == "" {
		return
	}
	if first, ok := l.files[path]; ok {
		owner := strings.TrimSuffix(strings.TrimSuffix(first.Key, ".log.file"), key)
		file.Problem(fmt.Sprintf("%s is already the file of %s (%s:%d)", path, owner, first.In.File, first.Line()),
			"give each program a file of its own")
		return
	}
	l.files[path] = file
}
