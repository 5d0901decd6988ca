package output

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/internal/spool"
)

// What a Log keeps of each stream in memory: so many lines, or so many bytes if that is less.
const (
	keptLines = 1000
	keptBytes = 256 << 10
)

// Log takes what the workers of a program write to streams of the kind Capture. It keeps the last lines of each stream
// in memory, over all workers, and writes everything to a file after SetFile. Writing to a Log never waits. Its methods
// may be called from anywhere.
type Log struct {
	errors *LogErrors // of the file

	mu     sync.Mutex
	rings  [2]ring       // stdout, stderr
	last   uint64        // chunks so far: their order over both streams
	wake   chan struct{} // closed when there is more to read; nil: no reader waits
	closed bool
	file   *LogFile        // nil: none
	before <-chan struct{} // closed when the earlier files have everything; nil: there was none
}

// LogLine is one line of a worker, or a part of one that is longer than 32 KiB.
type LogLine struct {
	Time   time.Time `json:"time"` // when it was read
	Worker int       `json:"worker"`
	PID    int       `json:"pid"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`   // as it was written, without the newline
}

// NewLog returns an empty Log. Its file is not opened before after is closed: see Done.
func NewLog(e *LogErrors, after <-chan struct{}) *Log { return &Log{errors: e, before: after} }

// Of returns the function that takes the output of one worker.
func (l *Log) Of(worker int) func(stream string, pid int, lines []byte) {
	return func(stream string, pid int, lines []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed {
			return
		}
		l.last++
		l.ring(stream).add(chunk{order: l.last, at: time.Now(), worker: worker, pid: pid, data: bytes.Clone(lines),
			lines: int(spool.Lines(lines))})
		l.wakeReaders()
		if l.file != nil {
			l.file.Put(lines)
		}
	}
}

func (l *Log) ring(stream string) *ring {
	if stream == Stdout {
		return &l.rings[0]
	}
	return &l.rings[1]
}

// Last returns at most n of the last lines, of all workers and both streams in the order in which they were read, and a
// reader for the lines that follow.
func (l *Log) Last(n int) ([]LogLine, *LogReader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &LogReader{log: l}
	lines, _ := r.take()
	return lines[max(0, len(lines)-max(0, n)):], r
}

// SetFile writes everything from now on to a file, too; with an empty path to none. It returns an error, and changes
// nothing, if the path cannot be opened before ctx ends, or is not a regular file. It does not wait until the file
// before has everything.
func (l *Log) SetFile(ctx context.Context, s LogFileSpec) error {
	if s.Path != "" {
		// to learn what is wrong with it
		file, err := OpenLogFile(ctx, LogFileSpec{Path: s.Path, MaxSize: s.MaxSize, Owner: s.Owner}, l.errors)
		if err != nil {
			return err
		}
		file.spool.End()
	}
	l.UseFile(s)
	return nil
}

// UseFile is SetFile for a path that was valid before: while it cannot be opened, its lines are lost, and that is
// reported.
func (l *Log) UseFile(s LogFileSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	if l.closed || old != nil && old.spec == s || old == nil && s.Path == "" {
		return
	}
	if old != nil {
		old.spool.End()
		l.before = old.spool.Done()
	}
	l.file = nil
	if s.Path != "" {
		l.file = UseLogFile(s, l.before, l.errors)
	}
}

// File returns the file of the Log, which stays the Log's; nil: none.
func (l *Log) File() *LogFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// End ends every reader, and returns the file, for the caller to close; nil: none. What is written to the Log
// afterwards is dropped.
func (l *Log) End() *LogFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wakeReaders()
	return l.file
}

// wakeReaders wakes every LogReader that waits. l.mu is held.
func (l *Log) wakeReaders() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// Done returns a channel that is closed when the files of the Log so far have everything; nil: it had none. Another Log
// with the same file must wait for that, or both would rotate it.
func (l *Log) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return l.file.spool.Done()
	}
	return l.before
}

// LogReader reads the lines of a Log as they come. It is for one goroutine, costs nothing while it is not used, and
// need not be closed.
type LogReader struct {
	log *Log
	at  [2]uint64 // lines of each stream that were read or missed
}

// Next waits for lines and returns those since the last call. missed counts the lines that were dropped from memory
// before they could be read. Errors: io.EOF after the end of the Log, and the cause of ctx's end.
func (r *LogReader) Next(ctx context.Context) (lines []LogLine, missed uint64, err error) {
	for {
		r.log.mu.Lock()
		lines, missed = r.take()
		if len(lines) > 0 {
			r.log.mu.Unlock()
			return lines, missed, nil
		}
		if r.log.closed {
			r.log.mu.Unlock()
			return nil, missed, io.EOF
		}
		if r.log.wake == nil {
			r.log.wake = make(chan struct{})
		}
		wake := r.log.wake
		r.log.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// take returns what is new to the reader. The lock of the Log is held.
func (r *LogReader) take() (lines []LogLine, missed uint64) {
	var chunks []chunk
	for i, stream := range []string{Stdout, Stderr} {
		g := &r.log.rings[i]
		first := g.total - uint64(g.lines)
		if r.at[i] < first {
			missed += first - r.at[i]
			r.at[i] = first
		}
		for _, c := range g.chunks {
			if end := first + uint64(c.lines); end > r.at[i] { // a chunk is read completely or not at all
				c.stream = stream
				chunks = append(chunks, c)
			}
			first += uint64(c.lines)
		}
		r.at[i] = g.total
	}
	slices.SortFunc(chunks, func(a, b chunk) int { return cmp.Compare(a.order, b.order) })
	for _, c := range chunks {
		lines = append(lines, c.split()...)
	}
	return lines, missed
}

// ring holds the last chunks of one stream, of all workers.
type ring struct {
	chunks []chunk
	lines  int
	bytes  int
	total  uint64 // lines ever
}

// chunk is lines that were read at once.
type chunk struct {
	order  uint64
	at     time.Time
	worker int
	pid    int
	stream string
	data   []byte
	lines  int
}

// add appends a chunk and drops the oldest ones beyond keptLines and keptBytes. One chunk always stays, however long.
func (g *ring) add(c chunk) {
	g.chunks = append(g.chunks, c)
	g.lines += c.lines
	g.bytes += len(c.data)
	g.total += uint64(c.lines)
	for len(g.chunks) > 1 && (g.bytes > keptBytes || g.lines-g.chunks[0].lines >= keptLines) {
		g.lines -= g.chunks[0].lines
		g.bytes -= len(g.chunks[0].data)
		g.chunks[0] = chunk{}
		g.chunks = g.chunks[1:]
	}
}

// split makes lines of a chunk when somebody reads it: most are never read.
func (c chunk) split() []LogLine {
	lines := make([]LogLine, 0, c.lines)
	for text := range strings.Lines(string(c.data)) {
		lines = append(lines, LogLine{Time: c.at, Worker: c.worker, PID: c.pid, Stream: c.stream,
			Text: strings.TrimSuffix(text, "\n")})
	}
	return lines
}
