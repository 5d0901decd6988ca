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
	untold  uint64 // lost lines that were not reported yet
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
	s.mu.Lock()
	if !s.ended && !s.full && s.writing+len(s.buffer)+len(lines) <= Size {
		s.buffer = append(s.buffer, lines...)
		s.rouse()
		s.mu.Unlock()
		return
	}
	s.lose(lines)
	begins := !s.full && !s.failing && !s.ended // after the end a report would come too late
	s.full = true
	s.tell(begins, Loss{Goes: true})
}

// lose counts lines as lost. s.mu is held.
func (s *Spool) lose(lines []byte) {
	n := Lines(lines)
	s.untold += n
	s.count.Add(n)
}

// tell unlocks s.mu, and then reports l with the lines that were lost and not reported yet, if it is time for that.
func (s *Spool) tell(now bool, l Loss) {
	if now {
		l.Lines, s.untold = s.untold, 0
	}
	s.mu.Unlock()
	if now {
		s.report(l)
	}
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
	for lines := []byte(nil); ; {
		var reopen, more bool
		if lines, reopen, more = s.take(lines); !more {
			break
		}
		if reopen {
			s.sink.Reopen()
		}
		s.write(lines)
	}
	s.sink.Close()
}

// take waits for something to do; more is false if nothing follows. It reuses the memory of what was written, unless
// that is much.
func (s *Spool) take(written []byte) (lines []byte, reopen, more bool) {
	if cap(written) > pieceSize {
		written = nil
	}
	for {
		s.mu.Lock()
		s.writing = 0
		s.full = s.full && len(s.buffer) > Size/2
		idle := len(s.buffer) == 0 && !s.reopen
		over := idle && s.ended
		switch {
		case s.untold > 0 && !s.full && (!s.failing || over):
			s.tell(true, Loss{})
		case idle && !over:
			empty := s.empty
			s.empty = nil
			s.mu.Unlock()
			if empty != nil {
				close(empty)
			}
			<-s.wake
		default:
			lines, reopen = s.buffer, s.reopen
			s.buffer, s.reopen, s.writing = written[:0], false, len(lines)
			s.mu.Unlock()
			return lines, reopen, !over
		}
	}
}

// write writes pieces of whole lines, and reports the first error of a series.
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
		s.mu.Lock()
		s.lose(piece[n:])
		begins := err != nil && !s.failing
		s.failing = err != nil
		s.tell(begins, Loss{Err: err, Goes: true})
		lines = lines[len(piece):]
	}
}
