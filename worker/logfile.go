package worker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Output says where a stream of the worker goes.
type Output struct {
	Kind OutputKind
	File *LogFile // for ToFile
}

// OutputKind is the kind of an Output.
type OutputKind string

// The kinds of output.
const (
	Inherit OutputKind = "inherit" // the supervisor's own stream: under systemd the journal sees the worker's PID
	Null    OutputKind = "null"
	ToFile  OutputKind = "file"    // through a pipe that the master holds, so that the file can be reopened and the last lines are known
	Capture OutputKind = "capture" // through such a pipe too, to Spec.Captured
)

// LogFile is an append-only file shared by the workers of a program, reopened on request.
type LogFile struct {
	path string

	mu      sync.Mutex
	file    *os.File // nil: closed
	slow    bool     // a FIFO or the like, which can make a writer wait
	broken  bool     // the last write failed
	onError func(error)
}

// OpenLogFile opens path for appending, creating it with mode 0640 (and never follows it into a directory that is missing).
func OpenLogFile(path string) (*LogFile, error) {
	file, err := openLog(path)
	if err != nil {
		return nil, err
	}
	return &LogFile{path: path, file: file, slow: canWait(file)}, nil
}

// openLog does not wait, should path be a FIFO that nobody reads.
func openLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log file: %w", err)
	}
	return file, nil
}

// patience is how long a reader of a FIFO may let workers wait at a time.
const patience = time.Second

func canWait(file *os.File) bool { return file.SetWriteDeadline(time.Time{}) == nil }

// OnError has report called with the first error of a series when output is lost because it cannot be written.
// It is called from the goroutine of a worker's stream.
func (f *LogFile) OnError(report func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onError = report
}

// Path is the path that was opened.
func (f *LogFile) Path() string { return f.path }

// Reopen opens the path again, for log rotation; on error the old file stays in use.
func (f *LogFile) Reopen() error {
	file, err := openLog(f.path)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		file.Close()
		return fmt.Errorf("cannot open the log file %s again: %w", f.path, os.ErrClosed)
	}
	old := f.file
	f.file, f.slow, f.broken = file, canWait(file), false
	return old.Close()
}

// Close closes the file. What workers write after that is lost.
func (f *LogFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// write appends lines. What cannot be written is dropped, so that the worker never waits; the next write is tried again.
func (f *LogFile) write(lines []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return
	}
	if f.slow {
		f.file.SetWriteDeadline(time.Now().Add(patience))
	}
	_, err := f.file.Write(lines)
	first := err != nil && !f.broken
	f.broken = err != nil
	if first && f.onError != nil && !errors.Is(err, os.ErrClosed) {
		f.onError(fmt.Errorf("output of workers is lost: %w", err))
	}
}
