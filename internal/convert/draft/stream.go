package draft

import (
	"fmt"
	"path/filepath"

	"example.org/supervisord/internal/convert/source"
)

// StreamKind is where a source sends an output.
type StreamKind int

const (
	Inherited StreamKind = iota // where the supervisor's own output goes
	ToFile
	Discarded
	Captured // the supervisor keeps it for a command that shows it
)

// Stream is what a source says about one output.
type Stream struct {
	source.Setting
	Kind    StreamKind
	Path    string // for ToFile
	Size    int64  // bytes after which the file is rotated; 0: it is not
	Backups int    // rotated files that are kept
}

// To sends the output to a file, some of which are special.
func (s *Stream) To(path string) {
	switch path {
	case "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2":
		s.Kind = Inherited
	case "/dev/null":
		s.Kind = Discarded
	default:
		s.Kind, s.Path = ToFile, path
	}
}

// Outputs sets where the program's output goes. supervisord writes and rotates one log file for each program.
func (p *Block) Outputs(stdout, stderr Stream) {
	for i, s := range []Stream{stdout, stderr} {
		name := []string{"stdout", "stderr"}[i]
		switch {
		case s.Kind == Discarded:
			p.Set(name, "null")
		case s.Kind == Captured && p.Tables["log"] != nil:
			p.Set(name, "inherit") // captured, it would be in the log file of the other output
		case s.Kind == Captured:
			p.Set(name, "capture")
		case s.Kind == ToFile && s.Size > 0:
			p.Set(name, p.rotated(s))
		case s.Kind == ToFile:
			p.Set(name, p.Path(s.Path))
		}
	}
}

// rotated returns where an output goes that supervisord should rotate.
func (p *Block) rotated(s Stream) string {
	path := p.Path(s.Path)
	switch owner, log := p.logs[path], p.Tables["log"]; {
	case log != nil && owner == p.ProgramName:
	case log != nil:
		p.Lacks(s.Setting, fmt.Sprintf(
			"supervisord rotates one file for each program: let logrotate rotate %s, and send USR1", filepath.Base(path)))
		return path
	case owner != "":
		quiet := p.Quiet
		p.Quiet = false // this differs from the program before
		p.Lacks(s.Setting, fmt.Sprintf("%s is already rotated for %s: choose another file", path, owner))
		p.Quiet = quiet
		return path
	default:
		p.logs[path] = p.ProgramName
		p.logFile(path, s)
	}
	return "capture"
}

// logFile sets the file that supervisord writes.
func (p *Block) logFile(path string, s Stream) {
	const mebibyte, largest, most = 1 << 20, 1 << 30, 100_000 // in MiB, and files
	p.Set("log.file", path)
	if n := (s.Size + mebibyte - 1) / mebibyte; n <= largest {
		if s.Size%mebibyte != 0 {
			p.Note("log", s.Setting, fmt.Sprintf("%d bytes are rounded up to whole MiB", s.Size))
		}
		p.Set("log.max_size", fmt.Sprintf("%dMiB", n))
	}
	if s.Backups < 1 {
		p.Note("log", s.Setting, "at least one old file is kept")
	}
	p.Set("log.max_files", min(max(s.Backups, 1), most))
}
