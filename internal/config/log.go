package config

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
)

// Log is the [program.NAME.log] table: the file for what is captured. An empty one means memory only.
type Log struct {
	File     string // absolute, or ""
	MaxSize  int64  // bytes, whole MiB
	MaxAge   time.Duration
	MaxFiles int // old files that are kept; 0: all
	Compress bool
}

const (
	mebibyte          = 1 << 20
	defaultLogSize    = 100 * mebibyte
	defaultLogFiles   = 5
	maxLogSize        = 1 << 50
	maxLogFiles       = 100_000
	shortestLogMaxAge = time.Minute
)

// logFields are the keys of [program.NAME.log].
var logFields = fields[Log]{
	"file":      func(l *Log, v value) { v.file(&l.File) },
	"max_size":  func(l *Log, v value) { v.mebibytes(&l.MaxSize) },
	"max_age":   func(l *Log, v value) { v.duration(&l.MaxAge, shortestLogMaxAge) },
	"max_files": func(l *Log, v value) { v.integer(&l.MaxFiles, 0, maxLogFiles) },
	"compress":  func(l *Log, v value) { v.flag(&l.Compress) },
}

// log reads [program.NAME.log]; the streams of p are known.
func (v value) log(p *Program) {
	l := Log{MaxSize: defaultLogSize, MaxFiles: defaultLogFiles}
	if v.raw == nil || !decode(v, &l, logFields) {
		return
	}
	if !p.Captures() {
		v.problem("does nothing without a captured stream", `write stdout = "capture" or stderr = "capture"`)
	}
	if v.lacks("file") {
		v.problem("has no file", `write such as file = "/var/log/%s.log", or leave the table out`, p.Name)
	}
	p.Log = l
}

// Captures reports whether supervisord keeps what the program writes.
func (p *Program) Captures() bool {
	return p.Stdout.Kind == output.Capture || p.Stderr.Kind == output.Capture
}

// mebibytes reads a size that is counted in whole MiB.
func (v value) mebibytes(into *int64) {
	n, ok := v.size()
	switch {
	case !ok:
	case n < mebibyte || n > maxLogSize || n%mebibyte != 0:
		v.problem(fmt.Sprintf("%v cannot be set", v.raw), `write whole MiB, such as "100MiB"`)
	default:
		*into = int64(n)
	}
}

// size reads a size: a number of bytes, or a string with a unit.
func (v value) size() (uint64, bool) {
	n, err := parseLimit(v.raw, true)
	if err != nil || n == worker.RLimitInfinity {
		what := "unlimited is no size"
		if err != nil {
			what = err.Error()
		}
		v.problem(what, `write a size such as "512MiB"`)
		return 0, false
	}
	return n, true
}

// ownFiles reports a file that another program has already: each rotates its log, and replaces its status file.
func (l *loader) ownFiles(program value, p Program) {
	l.ownFile(program.child("log").child("file"), p.Log.File, ".log.file")
	l.ownFile(program.child("status_file"), p.StatusFile, ".status_file")
}

func (l *loader) ownFile(file value, path, key string) {
	if path == "" {
		return
	}
	if first, ok := l.files[path]; ok {
		file.problem(fmt.Sprintf("%s is already the file of %s (%s:%d)", path, strings.TrimSuffix(strings.TrimSuffix(first.path, ".log.file"), key), first.in.file, first.line()),
			"give each program a file of its own")
		return
	}
	l.files[path] = file
}
