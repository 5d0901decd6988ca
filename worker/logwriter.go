package worker

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/DeRuina/timberjack"
)

// LogFileSpec is the file of a Log, and when it is rotated.
type LogFileSpec struct {
	Path     string        // absolute
	MaxSize  int64         // bytes, whole MiB
	MaxAge   time.Duration // 0: at any age
	MaxFiles int           // rotated files that are kept; 0: all
	Compress bool          // the rotated ones
}

// check opens the file, creating it with mode 0640: what is wrong with it shall be known before it is relied on. Rotation
// renames it, so it must be a regular file.
func (s LogFileSpec) check() error {
	file, err := openLog(s.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("cannot open the log file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("cannot use %s as a log file that is rotated: it is no regular file", s.Path)
	}
	return nil
}

// bufferedBytes is how much may wait for a slow disk. What comes on top of that is dropped, so that no worker waits.
const bufferedBytes = 4 << 20

// pieceBytes is how much is written at a time. It must be less than the smallest size of a file.
const pieceBytes = 256 << 10

// logWriter writes a file from a goroutine of its own, so that only that waits for the disk.
type logWriter struct {
	spec   LogFileSpec
	report func(error)
	before <-chan struct{} // closed when the file before has everything; nil: there was none
	wake   chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	buffer []byte
	inHand int    // bytes that are being written
	lost   uint64 // lines, ever
	told   uint64 // of those, reported
	broken bool   // the last write failed
	reopen bool
	ending bool
	empty  chan struct{} // closed when everything is written; nil: nobody waits for that
}

func newLogWriter(s LogFileSpec, report func(error), before <-chan struct{}) *logWriter {
	w := &logWriter{spec: s, report: report, before: before, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run() // end and wait are its end
	return w
}

// put takes whole lines, or drops them.
func (w *logWriter) put(lines []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inHand+len(w.buffer)+len(lines) > bufferedBytes {
		w.lost += uint64(countLines(lines))
		return
	}
	w.buffer = append(w.buffer, lines...)
	w.rouse()
}

func (w *logWriter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *logWriter) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopen = true
	w.rouse()
}

func (w *logWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	w.rouse()
}

// wait waits for the end, after end.
func (w *logWriter) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("what was last written to the log file %s may be lost: %w", w.spec.Path, context.Cause(ctx))
	}
}

func (w *logWriter) flush(ctx context.Context) error {
	w.mu.Lock()
	if w.empty == nil {
		w.empty = make(chan struct{})
	}
	empty := w.empty
	w.rouse()
	w.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the log file %s does not take what was written: %w", w.spec.Path, context.Cause(ctx))
	}
}

func (w *logWriter) lostLines() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *logWriter) run() {
	defer close(w.done)
	if w.before != nil {
		<-w.before
	}
	file := w.open()
	var lines []byte
	for {
		var reopen, ending bool
		lines, reopen, ending = w.take(lines)
		if reopen {
			file.Close() //nolint:errcheck // what was lost by it, a write has said
			file = w.open()
		}
		w.write(file, lines)
		if ending {
			file.Close() //nolint:errcheck // likewise
			return
		}
	}
}

// open is only a promise: the file is opened by the first write, and again by each one after that until it could be.
func (w *logWriter) open() *timberjack.Logger {
	compression := "none"
	if w.spec.Compress {
		compression = "gzip"
	}
	return &timberjack.Logger{
		Filename: w.spec.Path, MaxSize: int(w.spec.MaxSize >> 20), MaxBackups: w.spec.MaxFiles, RotationInterval: w.spec.MaxAge,
		Compression: compression, FileMode: 0o640,
	}
}

// take waits for something to do. ending says that this was the last. What was written is given back, to be filled again,
// unless that would keep much memory for nothing.
func (w *logWriter) take(written []byte) (lines []byte, reopen, ending bool) {
	if cap(written) > pieceBytes {
		written = nil
	}
	for {
		w.mu.Lock()
		w.inHand = 0
		if len(w.buffer) == 0 && w.empty != nil {
			close(w.empty)
			w.empty = nil
		}
		if len(w.buffer) > 0 || w.reopen || w.ending {
			break
		}
		w.mu.Unlock()
		<-w.wake
	}
	defer w.mu.Unlock()
	lines, reopen, ending = w.buffer, w.reopen, w.ending
	w.buffer, w.reopen, w.inHand = written[:0], false, len(lines)
	return lines, reopen, ending
}

// write writes pieces of whole lines.
func (w *logWriter) write(file *timberjack.Logger, lines []byte) {
	for len(lines) > 0 {
		piece := lines
		if len(piece) > pieceBytes {
			piece = piece[:pieceBytes]
			if end := bytes.LastIndexByte(piece, '\n') + 1; end > 0 {
				piece = piece[:end]
			}
		}
		n, err := file.Write(piece)
		w.wrote(err, countLines(piece[n:]))
		lines = lines[len(piece):]
	}
}

// wrote counts what was lost, and reports the first error of a series, and at its end, or when a slow disk goes on, how much.
func (w *logWriter) wrote(err error, lost int) {
	w.mu.Lock()
	first := err != nil && !w.broken
	w.broken = err != nil
	w.lost += uint64(lost)
	dropped := w.lost - w.told
	if first || !w.broken {
		w.told = w.lost
	}
	w.mu.Unlock()
	switch {
	case first:
		w.report(fmt.Errorf("%d lines are lost, and more until this ends: %w", dropped, err))
	case err == nil && dropped > 0:
		w.report(fmt.Errorf("%d lines were lost: %s did not take them in time", dropped, w.spec.Path))
	}
}
