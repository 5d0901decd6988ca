// Package spool moves lines to a place that may be slow: a disk that hangs, a FIFO or a terminal that is not read. Its
// own goroutine writes the lines, so that their source never waits.
//
//	room ─► full, and a loss is reported ─► half of it is free again, and the number of lost lines is reported ─► room
//	taken ─► refused, and the error is reported ─► taken again, and the number of lost lines is reported
package spool

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
)

// Size is how many bytes may wait in a Spool. Further lines are dropped and counted.
const Size = 4 << 20

// pieceSize is how many bytes a Sink gets at a time.
const pieceSize = 256 << 10

// Sink is where a Spool writes to. Only the goroutine of the Spool calls its methods, and they may block.
type Sink interface {
	// Open comes first. Write must return its error.
	Open()
	// Write writes whole lines, at most 256 KiB, and returns how many bytes of them it wrote.
	Write(lines []byte) (int, error)
	// Reopen follows Spool.Reopen.
	Reopen()
	// Close comes after the last Write.
	Close()
}

// Loss is what a Spool reports.
type Loss struct {
	Lines uint64 // lost since the last report
	Err   error  // why the Sink did not take them; nil: it was too slow
	Goes  bool   // more lines are being lost: the Sink takes nothing now
}

// Spool holds lines until its Sink has taken them. Its methods may be called from anywhere; only Flush waits.
type Spool struct {
	sink   Sink
	report func(Loss)
	count  *atomic.Uint64
	wake   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	buffer  []byte
	writing int    // bytes
	lost    uint64 // lines, ever
	told    uint64 // lost lines that were reported
	failing bool   // the last write failed
	full    bool   // lines are dropped until there is room again
	reopen  bool
	ended   bool
	empty   chan struct{} // closed when everything is written; nil: nothing waits for that
}

// New returns a Spool that begins to write when after is closed (nil: at once). End ends it. The Spool adds lost lines
// to count (unless nil), and calls report for the first lost line of a series and at the end of the series, from its
// own goroutine or from Put. report may call Put.
func New(sink Sink, after <-chan struct{}, count *atomic.Uint64, report func(Loss)) *Spool {
	if count == nil {
		count = new(atomic.Uint64)
	}
	s := &Spool{sink: sink, report: report, count: count, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run(after)
	return s
}

// Put takes whole lines. From when the Spool is full until half of it is free again, Put drops them, so that the loss
// is in one piece.
func (s *Spool) Put(lines []byte) {
	if loss := s.put(lines); loss.Lines > 0 {
		s.report(loss)
	}
}

func (s *Spool) put(lines []byte) (loss Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // a report would come too late
		s.lose(Lines(lines))
		return Loss{}
	}
	waiting := s.writing + len(s.buffer)
	if s.full && waiting <= Size/2 {
		s.full = false
		loss = s.loss()
	}
	if !s.full && waiting+len(lines) <= Size {
		s.buffer = append(s.buffer, lines...)
		s.rouse()
		return loss
	}
	s.lose(Lines(lines))
	if !s.full && !s.failing {
		loss = s.loss()
		loss.Goes = true
	}
	s.full = true
	return loss
}

func (s *Spool) lose(lines uint64) {
	s.lost += lines
	s.count.Add(lines)
}

// loss returns what was lost and not reported yet, and counts it as reported. s.mu is held.
func (s *Spool) loss() Loss {
	l := Loss{Lines: s.lost - s.told}
	s.told = s.lost
	return l
}

// Lines counts lines, an unfinished last one too.
func Lines(b []byte) uint64 {
	n := bytes.Count(b, []byte("\n"))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return uint64(n)
}

func (s *Spool) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Reopen reopens the Sink before the next line is written.
func (s *Spool) Reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reopen = true
	s.rouse()
}

// End closes the Sink when everything is written. Lines that are put afterwards are lost.
func (s *Spool) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.rouse()
}

// Done is closed when the Sink is.
func (s *Spool) Done() <-chan struct{} { return s.done }

// Flush waits until the Sink has what was put before, or refused it, or until ctx ends, whose cause it returns.
func (s *Spool) Flush(ctx context.Context) error {
	s.mu.Lock()
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	s.rouse()
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Spool) run(after <-chan struct{}) {
	defer close(s.done)
	if after != nil {
		<-after
	}
	s.sink.Open()
	var lines []byte
	for {
		var reopen, ended bool
		lines, reopen, ended = s.take(lines)
		if reopen {
			s.sink.Reopen()
		}
		s.write(lines)
		if ended {
			s.sink.Close()
			s.farewell()
			return
		}
	}
}

// farewell reports the losses that were not reported yet.
func (s *Spool) farewell() {
	s.mu.Lock()
	loss := s.loss()
	s.mu.Unlock()
	if loss.Lines > 0 {
		s.report(loss)
	}
}

// take waits for something to do; ended says that nothing follows. It reuses the memory of what was written, unless
// that is much.
func (s *Spool) take(written []byte) (lines []byte, reopen, ended bool) {
	if cap(written) > pieceSize {
		written = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = 0
	for len(s.buffer) == 0 && !s.reopen && !s.ended {
		s.idle()
	}
	lines, reopen, ended = s.buffer, s.reopen, s.ended
	s.buffer, s.reopen, s.writing = written[:0], false, len(lines)
	return lines, reopen, ended
}

// idle waits, after everything was written. s.mu is held, but not meanwhile.
func (s *Spool) idle() {
	var loss Loss
	if !s.failing {
		s.full = false
		loss = s.loss()
	}
	empty := s.empty
	if loss.Lines == 0 {
		s.empty = nil
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	if loss.Lines > 0 {
		s.report(loss)
		return
	}
	if empty != nil {
		close(empty)
	}
	<-s.wake
}

// write writes pieces of whole lines.
func (s *Spool) write(lines []byte) {
	for len(lines) > 0 {
		piece := lines
		if len(piece) > pieceSize {
			piece = piece[:pieceSize]
			if end := bytes.LastIndexByte(piece, '\n') + 1; end > 0 {
				piece = piece[:end]
			}
		}
		n, err := s.sink.Write(piece)
		s.wrote(err, Lines(piece[n:]))
		lines = lines[len(piece):]
	}
}

// wrote counts what was lost, and reports the first error of a series.
func (s *Spool) wrote(err error, lost uint64) {
	s.mu.Lock()
	first := err != nil && !s.failing
	s.failing = err != nil
	s.lose(lost)
	var loss Loss
	if first {
		loss = s.loss()
		loss.Err, loss.Goes = err, true
	}
	s.mu.Unlock()
	if first {
		s.report(loss)
	}
}
