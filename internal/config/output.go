package config

import (
	"fmt"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/meant"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// readOutput reads where a stream goes.
func readOutput(v document.Value, into *Output) {
	var s string
	if !v.Text(&s) {
		return
	}
	switch kind := output.Kind(s); kind {
	case output.Inherit, output.Null, output.Capture:
		*into = Output{Kind: kind}
		return
	}
	if remedy := meant.NotFile(s); remedy != "" {
		v.Problem(fmt.Sprintf("%q is not a path", s), "%s; a file of this name is written %q", remedy, "./"+s)
		return
	}
	*into = Output{Kind: output.ToFile, Path: document.Absolute(v.In.Dir, s)}
}

const mebibyte = 1 << 20

// logFields are the keys of [program.NAME.log].
var logFields = document.Fields[LogPolicy]{
	"file":      func(l *LogPolicy, v document.Value) { v.Path(&l.File) },
	"max_size":  func(l *LogPolicy, v document.Value) { readMebibytes(v, &l.MaxSize) },
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

// readMebibytes reads a size that is counted in whole MiB.
func readMebibytes(v document.Value, into *int64) {
	n, ok := readSize(v)
	switch {
	case !ok:
	case n < mebibyte || n > 1<<50 || n%mebibyte != 0:
		v.Problem(fmt.Sprintf("%v cannot be set", v.Raw), `write whole MiB, such as "%dMiB"`, min(max(n/mebibyte, 1), 1<<30))
	default:
		*into = int64(n)
	}
}

// readSize reads a size: a number of bytes, or a string with a unit.
func readSize(v document.Value) (uint64, bool) {
	n, err := parseLimit(v.Raw, true)
	if err == nil && n == spawn.RLimitInfinity {
		err = fmt.Errorf("%q is not a size", v.Raw)
	}
	if err != nil && strings.HasSuffix(err.Error(), "?") { // it says what was meant
		v.Problem(err.Error(), "")
	} else if err != nil {
		v.Problem(err.Error(), `write a size such as "512MiB"`)
	}
	return n, err == nil
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
