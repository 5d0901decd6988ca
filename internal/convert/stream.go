package convert

import (
	"fmt"
	"path/filepath"
)

// streamKind is where a source sends an output.
type streamKind int

const (
	inherited streamKind = iota // where the supervisor's own output goes
	toFile
	discarded
	captured // the supervisor keeps it for a command that shows it
)

// outputStream is what a source says about one output.
type outputStream struct {
	setting
	kind    streamKind
	path    string  // for toFile
	size    int64   // bytes after which the file is rotated; 0: any
	age     float64 // seconds after which it is rotated; 0: any
	backups int     // rotated files that are kept
}

// to sends the output to a file, some of which are special.
func (s *outputStream) to(path string) {
	switch path {
	case "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2":
		s.kind = inherited
	case "/dev/null":
		s.kind = discarded
	default:
		s.kind, s.path = toFile, path
	}
}

// outputs sets where the program's output goes. supervisord writes and rotates one log file for each program.
func (p *program) outputs(stdout, stderr outputStream) {
	for i, s := range []outputStream{stdout, stderr} {
		name := []string{"stdout", "stderr"}[i]
		switch {
		case s.kind == discarded:
			p.set(name, "null")
		case s.kind == captured && p.tables["log"] != nil:
			p.set(name, "inherit") // captured, it would be in the log file of the other output
		case s.kind == captured:
			p.set(name, "capture")
		case s.kind == toFile && (s.size > 0 || s.age > 0):
			p.set(name, p.rotated(s))
		case s.kind == toFile:
			p.set(name, p.path(s.path))
		}
	}
}

// rotated returns where an output goes that supervisord should rotate.
func (p *program) rotated(s outputStream) string {
	path := p.path(s.path)
	switch owner, log := p.logs[path], p.tables["log"]; {
	case log != nil && owner == p.name:
	case log != nil:
		p.lacks(s.setting, fmt.Sprintf("supervisord rotates one file for each program: let logrotate rotate %s, and send USR1", filepath.Base(path)))
		return path
	case owner != "":
		quiet := p.quiet
		p.quiet = false // this differs from the program before
		p.lacks(s.setting, fmt.Sprintf("%s is already rotated for %s: choose another file", path, owner))
		p.quiet = quiet
		return path
	default:
		p.logs[path] = p.name
		p.logFile(path, s)
	}
	return "capture"
}

// logFile sets the file that supervisord writes.
func (p *program) logFile(path string, s outputStream) {
	const mebibyte, largest, most = 1 << 20, 1 << 30, 100_000 // in MiB, and files
	p.set("log.file", path)
	if n := (s.size + mebibyte - 1) / mebibyte; s.size > 0 && n <= largest {
		if s.size%mebibyte != 0 {
			p.note("log", s.setting, fmt.Sprintf("%d bytes are rounded up to whole MiB", s.size))
		}
		p.set("log.max_size", fmt.Sprintf("%dMiB", n))
	} else if s.size == 0 {
		p.set("log.max_size", "1TiB") // only its age matters
	}
	if s.age > 0 {
		if age, ok := p.duration("log.max_age", s.setting, s.age, 60); ok {
			p.set("log.max_age", age)
		}
	}
	if s.backups < 1 {
		p.note("log", s.setting, "at least one old file is kept")
	}
	p.set("log.max_files", min(max(s.backups, 1), most))
}
