package convert

import (
	"fmt"
	"path/filepath"
)

// streamKind is where a source sends a stream.
type streamKind int

const (
	unsaid streamKind = iota // where the supervisor's own goes
	toFile
	toNull
	kept // the supervisor keeps it, for a command to look at
)

// stream is what a source says about one of the outputs.
type stream struct {
	item
	kind    streamKind
	path    string  // for toFile
	size    int64   // bytes after which it is rotated; 0: any
	age     float64 // seconds after which it is rotated; 0: any
	backups int     // rotated files that are kept
}

// special are files that are no files.
func (s *stream) special() {
	switch s.path {
	case "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2":
		s.kind, s.path = unsaid, ""
	case "/dev/null":
		s.kind, s.path = toNull, ""
	}
}

// outputs writes where the program's output goes. A log file that is rotated is written by supervisord, one for each program.
func (p *program) outputs(stdout, stderr stream) {
	for _, one := range []struct {
		name string
		stream
	}{{"stdout", stdout}, {"stderr", stderr}} {
		switch s := one.stream; {
		case s.kind == toNull:
			p.set("", one.name, "null")
		case s.kind == kept && p.tables["log"] != nil:
			p.set("", one.name, "inherit") // captured it would be in the log file of the other
		case s.kind == kept:
			p.set("", one.name, "capture")
		case s.kind == toFile && (s.size > 0 || s.age > 0):
			p.rotated(one.name, s)
		case s.kind == toFile:
			p.set("", one.name, p.doc.path(s.path))
		}
	}
}

// rotated writes an output that is captured, and goes to a file that supervisord rotates.
func (p *program) rotated(name string, s stream) {
	path := p.doc.path(s.path)
	own, log := p.doc.logs[path], p.tables["log"]
	switch {
	case log != nil && own == p.name:
		p.set("", name, "capture")
		return
	case log != nil:
		p.lacks(s.item, fmt.Sprintf("a program has one file that is rotated; %s is one that logrotate and USR1 rotate", filepath.Base(path)))
	case own != "":
		p.insists(s.item, fmt.Sprintf("%s is rotated for %s already, and another program cannot be in it then: choose another", path, own))
	default:
		p.doc.logs[path] = p.name
		p.set("", name, "capture")
		p.logFile(path, s)
		return
	}
	p.set("", name, path)
}

// logFile writes the table of the file.
func (p *program) logFile(path string, s stream) {
	const mebibyte, largest, most = 1 << 20, 1 << 30, 100_000 // in MiB, and files
	p.set("log", "file", path)
	if n := (s.size + mebibyte - 1) / mebibyte; s.size > 0 && n <= largest {
		if s.size%mebibyte != 0 {
			p.note("log", s.item, fmt.Sprintf("%d bytes are rounded up to whole MiB", s.size))
		}
		p.set("log", "max_size", fmt.Sprintf("%dMiB", n))
	} else if s.size == 0 {
		p.set("log", "max_size", "1TiB") // it is rotated by its age alone
	}
	if s.age > 0 {
		p.seconds("log", "max_age", s.item, s.age, 60_000)
	}
	switch {
	case s.backups < 1:
		p.note("log", s.item, "at least one old file is kept: 0 would be all of them")
		p.set("log", "max_files", 1)
	default:
		p.set("log", "max_files", min(s.backups, most))
	}
}
