package config

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// notFiles are words of other supervisors for where output goes, and what to write here. A file of such a name would surprise.
var notFiles = map[string]string{
	"stdout": toOther, "stderr": toOther, "tty": toOther, "console": toOther,
	"inherited": toInherit, "parent": toInherit, "syslog": toInherit, "journal": toInherit, "journald": toInherit, "kmsg": toInherit,
	"syslog+console": toInherit, "journal+console": toInherit, "kmsg+console": toInherit,
	"none": toNull, "off": toNull, "no": toNull, "false": toNull, "nil": toNull, "discard": toNull, "devnull": toNull,
	"auto": toCapture, "memory": toCapture, "pipe": toCapture, "file": toCapture,
}

const (
	toOther   = `write the same path for stdout and stderr to have both in one file, "inherit" for the output of supervisord itself, or "capture"`
	toInherit = `write "inherit": it goes where the output of supervisord goes, which is the journal under systemd`
	toNull    = `write "null"`
	toCapture = `write "capture" for supervisord to keep it, or the path of a file`
)

// output reads where a stream goes.
func (v value) output(into *Output) {
	var s string
	if !v.text(&s) {
		return
	}
	switch kind := output.Kind(s); kind {
	case output.Inherit, output.Null, output.Capture:
		*into = Output{Kind: kind}
		return
	}
	if remedy := notFile(s); remedy != "" {
		v.problem(fmt.Sprintf("%q is not a path", s), "%s; a file of this name is written %q", remedy, "./"+s)
		return
	}
	*into = Output{Kind: output.ToFile, Path: absolute(v.in.dir, s)}
}

// notFile returns what to write instead of a word that is probably not meant as the name of a file; "": it is.
func notFile(s string) string {
	word := strings.ToLower(s)
	for _, prefix := range []string{"file:", "append:", "truncate:"} { // systemd's
		if path, ok := strings.CutPrefix(word, prefix); ok {
			return fmt.Sprintf("write the path alone, %q: lines are appended", s[len(s)-len(path):])
		}
	}
	if remedy := notFiles[word]; remedy != "" || strings.ContainsAny(word, "./") {
		return remedy
	}
	if near, ok := nearest(word, []string{string(output.Inherit), string(output.Null), string(output.Capture)}); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

const mebibyte = 1 << 20

// logFields are the keys of [program.NAME.log].
var logFields = fields[LogPolicy]{
	"file":      func(l *LogPolicy, v value) { v.file(&l.File) },
	"max_size":  func(l *LogPolicy, v value) { v.mebibytes(&l.MaxSize) },
	"max_age":   func(l *LogPolicy, v value) { v.duration(&l.MaxAge, time.Minute) },
	"max_files": func(l *LogPolicy, v value) { v.integer(&l.MaxFiles, 0, 100_000) },
	"compress":  func(l *LogPolicy, v value) { v.flag(&l.Compress) },
}

// log reads [program.NAME.log]; the streams of p are known.
func (v value) log(p *Program) {
	l := LogPolicy{MaxSize: 100 * mebibyte, MaxFiles: 5}
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
	case n < mebibyte || n > 1<<50 || n%mebibyte != 0:
		v.problem(fmt.Sprintf("%v cannot be set", v.raw), `write whole MiB, such as "100MiB"`)
	default:
		*into = int64(n)
	}
}

// size reads a size: a number of bytes, or a string with a unit.
func (v value) size() (uint64, bool) {
	n, err := parseLimit(v.raw, true)
	if err == nil && n == spawn.RLimitInfinity {
		err = fmt.Errorf("%q is not a size", v.raw)
	}
	if err != nil {
		v.problem(err.Error(), `write a size such as "512MiB"`)
	}
	return n, err == nil
}

// ownFile reports a file that another program already has: each rotates its log, and replaces its status file.
func (l *loader) ownFile(file value, path, key string) {
	if path == "" {
		return
	}
	if first, ok := l.files[path]; ok {
		owner := strings.TrimSuffix(strings.TrimSuffix(first.path, ".log.file"), key)
		file.problem(fmt.Sprintf("%s is already the file of %s (%s:%d)", path, owner, first.in.file, first.line()), "give each program a file of its own")
		return
	}
	l.files[path] = file
}
