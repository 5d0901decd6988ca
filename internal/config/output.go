package config

import (
	"fmt"
	"strings"

	"example.org/supervisord/worker/output"
)

// notFiles are words that other supervisors have for where output goes, and what they are here. A file of such a name would surprise.
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

// notFile returns what to write in place of a word that was probably not meant as a file's name; "": it was.
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
