package config

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// notFiles are words of other supervisors for where output goes, and what to write here. A file of such a name would
// surprise.
var notFiles = map[string]string{
	"stdout": toOther, "stderr": toOther, "tty": toOther, "console": toOther,
	"inherited": toInherit, "parent": toInherit, "syslog": toInherit, "journal": toInherit, "journald": toInherit,
	"kmsg":           toInherit,
	"syslog+console": toInherit, "journal+console": toInherit, "kmsg+console": toInherit,
	"none": toNull, "off": toNull, "no": toNull, "false": toNull, "nil": toNull, "discard": toNull, "devnull": toNull,
	"auto": toCapture, "memory": toCapture, "pipe": toCapture, "file": toCapture,
}

const (
	toOther = `write the same path for stdout and stderr to have both in one file, "inherit" for the output of ` +
		`supervisord itself, or "capture"`
	toInherit = `write "inherit": it goes where the output of supervisord goes, which is the journal under systemd`
	toNull    = `write "null"`
	toCapture = `write "capture" for supervisord to keep it, or the path of a file`
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
	if remedy := notFile(s); remedy != "" {
		v.Problem(fmt.Sprintf("%q is not a path", s), "%s; a file of this name is written %q", remedy, "./"+s)
		return
	}
	*into = Output{Kind: output.ToFile, Path: document.Absolute(v.In.Dir, s)}
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
	if near, ok := document.Nearest(word,
		[]string{string(output.Inherit), string(output.Null), string(output.Capture)}); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

const mebibyte = 1 << 20

// logFields are the keys of [program.NAME.log].
var logFields = document.Fields[LogPolicy]{
	"file":      func(l *LogPolicy, v document.Value) { v.Path(&l.File) },
	"max_size":  func(l *LogPolicy, v document.Value) { readMebibytes(v, &l.MaxSize) },
	"max_age":   func(l *LogPolicy, v document.Value) { v.Duration(&l.MaxAge, time.Minute) },
	"max_files": func(l *LogPolicy, v document.Value) { v.Integer(&l.MaxFiles, 0, 100_000) },
	"compress":  func(l *LogPolicy, v document.Value) { v.Flag(&l.Compress) },
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
