package output

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	chunkSize   = 32 << 10 // read at once
	longestLine = 32 << 10 // an unfinished line that grows longer is written in pieces
)

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// Pump moves what a worker writes to one stream from a pipe to its destination, in whole lines as far as possible, and
// keeps the end of stderr. It holds no buffer while it waits.
//
//	waits, without a thread ─► read(2), with the gate ─► take: whole lines are written, the rest is carried ─► waits
//	  └─► the end of the pipe; or Finish, and what the pipe holds then ─► flush ─► closed
//
// One goroutine calls Run. Finish, Control, Unfinished and Tail may be called from any other.
type Pump struct {
	file    *os.File
	gate    readLock
	stream  string
	write   func([]byte)
	tail    *tail       // nil: stdout
	reading atomic.Bool // a read(2) is under way

	mu    sync.Mutex
	carry []byte // an unfinished line
}

// readLock is held while the pump takes something out of the pipe: an execve in between would lose it.
type readLock interface {
	RLock()
	RUnlock()
}

// NewPump returns a Pump that reads the non-blocking pipe fd, which it takes over, and gives whole lines to write.
// write must not wait, nor keep the lines. With an error, because the kernel cannot watch the pipe, Run ends at once.
func NewPump(fd int, stream string, write func(lines []byte), gate readLock) (*Pump, error) {
	file, err := watched(fd, stream)
	p := &Pump{file: file, gate: gate, stream: stream, write: write}
	if stream == Stderr {
		p.tail = new(tail)
	}
	return p, err
}

// watched makes a file of a pipe. Go does not say why its poller refuses one, so another attempt needs another
// descriptor.
func watched(fd int, name string) (f *os.File, err error) {
	f = os.NewFile(uintptr(fd), name)
	for range 2 {
		if f.SetReadDeadline(time.Time{}) == nil {
			return f, nil
		}
		again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			break
		}
		f.Close()
		fd, f = again, os.NewFile(uintptr(again), name)
	}
	if f.SetReadDeadline(time.Time{}) == nil {
		return f, nil
	}
	return f, errors.New("cannot watch the pipe: the kernel has no memory left for epoll, or fs.epoll.max_user_watches " +
		"is too small")
}

// Stream returns Stdout or Stderr.
func (p *Pump) Stream() string { return p.stream }

// Control calls f with the descriptor of the pipe, unless it is closed.
func (p *Pump) Control(f func(fd int)) {
	if conn, err := p.file.SyscallConn(); err == nil { // Fd would make it blocking
		conn.Control(func(fd uintptr) { f(int(fd)) }) //nolint:errcheck // closed
	}
}

// Run pumps until the end of the pipe, or until Finish. What the pipe holds at that moment is still read, and no more:
// a process that outlives the worker may keep the pipe open forever.
func (p *Pump) Run() {
	defer p.Close()
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
	if eof { // the worker may live on: while the gate is locked, the descriptor is on its way to the next image
		p.gate.RLock()
		defer p.gate.RUnlock()
		p.Close()
	}
}

// drain reads what the pipe holds now (FIONREAD), and nothing that comes later.
func (p *Pump) drain(fd uintptr) {
	left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	for err == nil && left > 0 {
		n, ok := p.read(int(fd), min(left, chunkSize))
		if !ok || n == 0 {
			return
		}
		left -= n
	}
}

// read takes at most so many bytes from the pipe. ok is false if there is nothing for now.
func (p *Pump) read(fd, most int) (n int, ok bool) {
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	p.gate.RLock()
	defer p.gate.RUnlock()
	p.reading.Store(true)
	defer p.reading.Store(false)
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

// Reading reports whether the pump holds the gate. A read(2) does not block, but a writer can hold the lock of the pipe
// for as long as it likes: it writes from memory that is on a FUSE file system or belongs to userfaultfd(2). No signal
// ends such a read.
func (p *Pump) Reading() bool { return p.reading.Load() }

// take writes up to the last end of a line, and keeps the rest until its line is complete.
func (p *Pump) take(b []byte) {
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

// Unfinished returns the line whose end was not read yet: the next image must Resume with it.
func (p *Pump) Unfinished() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.carry)
}

// Resume continues after an unfinished line. Call it before Run.
func (p *Pump) Resume(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carry = line
}

// flush writes out an unfinished line.
func (p *Pump) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.carry) > 0 {
		p.write(p.carry)
		p.carry = nil
	}
}

// Finish makes Run end soon, even if a process still holds the other end.
func (p *Pump) Finish() { p.file.SetReadDeadline(time.Unix(1, 0)) }

// Close closes the pipe. Run does so at its end.
func (p *Pump) Close() { p.file.Close() }

// Tail returns the last lines of stderr, oldest first; nil for stdout, and while write hangs.
func (p *Pump) Tail() []string {
	if p.tail == nil || !p.mu.TryLock() {
		return nil
	}
	defer p.mu.Unlock()
	return p.tail.lines()
}

// What is kept of stderr.
const (
	tailLines = 20
	tailLine  = 1 << 10
	tailBytes = 8 << 10
)

// causes begin the line in which Go, Java or Rust says why the process ends, before a stack that may be longer than
// what is kept. Python and Node say it near the end.
var causes = []string{"panic: ", "fatal error: ", `Exception in thread "main" `, "thread 'main' "}

// lastCause returns the last line that says why the process ends, or before.
func lastCause(lines iter.Seq[string], before string) string {
	for line := range lines {
		if slices.ContainsFunc(causes, func(c string) bool { return strings.HasPrefix(line, c) }) {
			before = line
		}
	}
	return strings.Clone(before[:min(len(before), tailLine)])
}

// tail keeps the end of a stream, and some bytes more than it returns, so that they are rarely moved.
type tail struct {
	data  []byte // begins with a line, or in the midst of a very long one
	cause string // the last one before data
}

// add takes what was just read. It keeps at most 2*tailBytes, and the cause of what it drops.
func (t *tail) add(b []byte) {
	for piece := range slices.Chunk(b, tailBytes) {
		if len(t.data)+len(piece) > 2*tailBytes {
			t.cause = lastCause(strings.SplitSeq(string(t.data), "\n"), t.cause)
			keep := t.data[len(t.data)-tailBytes:]
			t.data = append(t.data[:0], keep[bytes.IndexByte(keep, '\n')+1:]...)
		}
		t.data = append(t.data, piece...)
	}
}

// lines returns the last lines as text, oldest first. The cause is the first of them, also if it came long before.
func (t *tail) lines() []string {
	text := strings.ToValidUTF8(string(bytes.TrimRight(t.data, "\n")), "\uFFFD")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	cause := lastCause(slices.Values(lines), t.cause)
	lines = lines[max(0, len(lines)-tailLines):]
	if cause != "" && !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, cause) }) {
		lines = append([]string{cause, "[…]"}, lines[max(0, len(lines)-tailLines+2):]...)
	}
	for i, line := range lines {
		lines[i] = Printable(strings.ToValidUTF8(line[:min(len(line), tailLine)], ""))
	}
	return lines
}

// Printable replaces the control characters but tabs in what a worker says, so that it is safe on terminals and in
// logs, and removes the space at its end. Indentation stays: stack traces are read by it.
func Printable(s string) string {
	return strings.TrimRightFunc(strings.Map(func(r rune) rune {
		if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return ' '
		}
		return r
	}, s), unicode.IsSpace)
}
