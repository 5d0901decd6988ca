package worker

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How much is read at once, and how long an unfinished line may grow before it is written nevertheless.
const (
	chunkSize   = 32 << 10
	longestLine = 32 << 10
)

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// pump moves what a worker writes to one stream from a pipe to where it belongs, in whole lines as far as possible, and keeps
// the end of stderr. It holds no buffer while it waits.
type pump struct {
	file  *os.File
	gate  *gate        // nothing is read while Freeze holds it: an execve then would lose it
	name  string       // FDStdout or FDStderr
	write func([]byte) // never waits: the gate is held, and mu
	tail  *tail        // nil: stdout

	mu    sync.Mutex
	carry []byte // an unfinished line: State hands it over
}

// newPump reads from fd. A stream that is read although it is inherited is the stderr of a command of Run, or that of a worker
// that another image of the supervisor started with another configuration.
func (w *Worker) newPump(fd int, o Output, name string) *pump {
	p := &pump{file: os.NewFile(uintptr(fd), name), gate: &w.launcher.gate, name: name}
	switch {
	case o.Kind == Capture && w.spec.Captured != nil:
		p.write = func(b []byte) { w.spec.Captured(name, w.process.pid, b) } // it was forked before anything is read
	case o.Kind == ToFile && o.File != nil:
		p.write = o.File.write
	case o.Kind == Null, o.Kind == Capture:
		p.write = func([]byte) {}
	case name == FDStdout:
		p.write = func(b []byte) { w.launcher.stdout.Write(b) }
	default:
		p.write = func(b []byte) { w.launcher.stderr.Write(b) }
	}
	if name == FDStderr {
		p.tail = new(tail)
	}
	return p
}

// run pumps until the end of the pipe, or until finish. What the pipe holds at that moment is still read, and no more: a
// process that outlives the worker may keep it open for ever.
func (p *pump) run() {
	defer p.close()
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	eof := false
	for !eof && conn.Read(func(fd uintptr) bool {
		n, ok := p.read(int(fd), chunkSize)
		eof = ok && n == 0
		return ok
	}) == nil {
	}
	if !eof {
		conn.Control(p.drain)
	}
	p.flush()
	if eof { // the worker may live on: while Freeze holds the gate, the number is on its way to the next image
		p.gate.RLock()
		defer p.gate.RUnlock()
		p.close()
	}
}

func (p *pump) drain(fd uintptr) {
	left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	for err == nil && left > 0 {
		n, ok := p.read(int(fd), min(left, chunkSize))
		if !ok || n == 0 {
			return
		}
		left -= n
	}
}

// read takes at most that much from the pipe. ok is false if there is nothing for now.
func (p *pump) read(fd, most int) (n int, ok bool) {
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	p.gate.RLock()
	defer p.gate.RUnlock()
	for {
		n, err := unix.Read(fd, chunk[:most])
		switch err {
		case nil:
			p.take(chunk[:n])
			return n, true
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, false
		default:
			return 0, true
		}
	}
}

// take writes up to the last end of a line, and keeps the rest until its line is complete.
func (p *pump) take(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tail != nil {
		p.tail.add(b)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if len(p.carry) > 0 && (end > 0 || len(p.carry)+len(b) > longestLine) {
		if end == 0 {
			end = len(b)
		}
		p.write(append(p.carry, b[:end]...))
		p.carry, b = nil, b[end:]
		end = 0
	}
	if end > 0 {
		p.write(b[:end])
	}
	p.carry = append(p.carry, b[end:]...)
}

// unfinished is a line whose end was not read yet.
func (p *pump) unfinished() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.carry)
}

// flush writes out an unfinished line.
func (p *pump) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.carry) > 0 {
		p.write(p.carry)
		p.carry = nil
	}
}

// finish makes run end soon, whoever still holds the other end.
func (p *pump) finish() { p.file.SetReadDeadline(time.Unix(1, 0)) }

func (p *pump) close() { p.file.Close() }

// What is kept of stderr.
const (
	tailLines = 20
	tailLine  = 1 << 10
	tailBytes = 8 << 10
)

// tail keeps the end of a stream: some bytes more than it gives, so that they are moved rarely.
type tail struct {
	data []byte
	cut  bool // something came before data
}

func (t *tail) add(b []byte) {
	if len(b) > tailBytes {
		b, t.data, t.cut = b[len(b)-tailBytes:], t.data[:0], true
	}
	if len(t.data)+len(b) > 2*tailBytes {
		t.data = append(t.data[:0], t.data[len(t.data)-tailBytes:]...)
		t.cut = true
	}
	t.data = append(t.data, b...)
}

// lines gives the last lines, oldest first, as text.
func (t *tail) lines() []string {
	text := strings.ToValidUTF8(string(bytes.TrimRight(t.data, "\n")), "\uFFFD")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	if t.cut && len(lines) > 1 {
		lines = lines[1:] // it may have lost its beginning
	}
	lines = lines[max(0, len(lines)-tailLines):]
	for i, line := range lines {
		lines[i] = printable(strings.ToValidUTF8(line[:min(len(line), tailLine)], ""))
	}
	return lines
}

// tail gives the last lines of the worker's stderr.
func (w *Worker) tail() []string {
	for _, p := range w.pumps {
		if p.tail != nil {
			return p.last()
		}
	}
	return nil
}

// last is nil while the pump hangs: see sideTimeout.
func (p *pump) last() []string {
	if !p.mu.TryLock() {
		return nil
	}
	defer p.mu.Unlock()
	return p.tail.lines()
}
