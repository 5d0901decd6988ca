package output

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/spool"
)

// LogFileSpec is a log file, and when it is rotated.
type LogFileSpec struct {
	Path     string // absolute
	MaxSize  int64  // bytes, at least 1 MiB; 0: it is never rotated, and need not be a regular file
	MaxFiles int    // rotated files that are kept; 0: all
	Owner    int    // the UID of the worker's user: see owners
}

// LogFile is a file that lines are appended to. Its own goroutine writes them, so that nothing else waits for the disk;
// lines that the disk does not take in time are dropped. Its methods may be called from anywhere.
type LogFile struct {
	spec  LogFileSpec
	spool *spool.Spool
	sink  *fileSink
}

// LogErrors counts the lines that the log files of a program lose, over all files that it ever has, and reports other
// errors.
type LogErrors struct {
	report func(what string, err error)
	lost   atomic.Uint64
}

// NewLogErrors returns a LogErrors that calls report for errors. report must not block: all workers would.
func NewLogErrors(report func(what string, err error)) *LogErrors { return &LogErrors{report: report} }

// Lost returns how many lines could not be written so far.
func (e *LogErrors) Lost() uint64 { return e.lost.Load() }

// OpenLogFile opens a file for appending, and creates it with mode 0640 if it is missing, but no directory. It does not
// wait longer than ctx. When lines are lost, the first error of a series is reported, and the number of lines at the
// end of the series.
func OpenLogFile(ctx context.Context, s LogFileSpec, e *LogErrors) (*LogFile, error) {
	opened := make(chan error, 1)
	f := newLogFile(s, opened, nil, e)
	var err error
	select {
	case err = <-opened:
	case <-ctx.Done():
		err = fmt.Errorf("cannot open the log file %s: %w", s.Path, context.Cause(ctx))
	}
	if err != nil {
		f.spool.End() // if the disk hangs, it ends after that
		return nil, err
	}
	return f, nil
}

// UseLogFile is OpenLogFile for a file that was valid before. It is opened later, when after is closed (nil: at once).
// While it cannot be opened, its lines are lost, and that is reported.
func UseLogFile(s LogFileSpec, after <-chan struct{}, e *LogErrors) *LogFile {
	return newLogFile(s, nil, after, e)
}

// newLogFile starts the goroutine that opens the file and writes. opened, which must have room, gets the result of the
// first open; nil: nobody waits for that. The goroutine does nothing before after is closed.
func newLogFile(s LogFileSpec, opened chan<- error, after <-chan struct{}, e *LogErrors) *LogFile {
	f := &LogFile{spec: s, sink: &fileSink{spec: s, errors: e, opened: opened}}
	f.spool = spool.New(f.sink, after, &e.lost, func(l spool.Loss) { e.report("output of workers is lost", s.lost(l)) })
	return f
}

// lost says in one sentence what a Spool reports, with the file that does not take the lines.
func (s LogFileSpec) lost(l spool.Loss) error {
	switch {
	case l.Err != nil && l.Lines > 0:
		return fmt.Errorf("%d lines are lost, and more until this ends: %w", l.Lines, l.Err)
	case l.Err != nil:
		return fmt.Errorf("lines are lost until this ends: %w", l.Err)
	case l.Goes:
		return fmt.Errorf("%s does not take lines as fast as they come: lines are lost until this ends", s.Path)
	}
	return fmt.Errorf("%d lines were lost: %s did not take them in time", l.Lines, s.Path)
}

// Reopen opens the path again, for an external log rotation, before the next line is written. It does not wait. If the
// path cannot be opened, the old file stays in use, and that is reported.
func (f *LogFile) Reopen() { f.spool.Reopen() }

// Flush waits until the file has everything that was written before, or until ctx ends, whose cause it returns.
func (f *LogFile) Flush(ctx context.Context) error {
	if err := f.spool.Flush(ctx); err != nil {
		return fmt.Errorf("the log file %s does not take what was written: %w", f.spec.Path, err)
	}
	return nil
}

// Rest is Flush before an execve: it also closes a file that the execve would write out itself, and so could hang with
// the disk. The next line opens the file again.
func (f *LogFile) Rest(ctx context.Context) error {
	f.sink.rest.Store(true)
	f.spool.Reopen()
	return f.Flush(ctx)
}

// Close closes the file when it has everything. It waits for that until ctx ends; what a FIFO has not taken then is
// lost, while a disk that hangs may still take it later. Lines that are put afterwards are lost.
func (f *LogFile) Close(ctx context.Context) error {
	f.spool.End()
	select {
	case <-f.spool.Done():
		return nil
	case <-ctx.Done():
		f.sink.interrupt()
		return fmt.Errorf("what was last written to the log file %s may be lost: %w", f.spec.Path, context.Cause(ctx))
	}
}

// Put takes whole lines. It never waits.
func (f *LogFile) Put(lines []byte) { f.spool.Put(lines) }

// openLog is an open log file.
type openLog struct {
	*os.File
	size int64
}

// fileSink writes for a LogFile. Only the goroutine of the spool uses it, except for interrupt.
type fileSink struct {
	spec    LogFileSpec
	errors  *LogErrors
	opened  chan<- error // receives the result of the first open; nil: nothing waits
	file    *openLog     // nil: it could not be opened yet
	apart   bool         // the goroutine has its own thread: see package foreign
	retry   time.Time
	untidy  bool        // the last tidy failed, which was reported
	rest    atomic.Bool // the next Reopen only closes the file: see Rest
	current atomic.Pointer[openLog]
}

// Open implements spool.Sink.
func (k *fileSink) Open() {
	err := k.open()
	if k.opened != nil {
		k.opened <- err
	}
}

// open opens the file, and then closes the one before.
func (k *fileSink) open() error {
	o := owners{k.spec.Owner}
	p, err := o.findLog(k.spec.Path)
	if err != nil {
		return fmt.Errorf("cannot open the log file %s: %w", k.spec.Path, err)
	}
	if !k.apart && foreign.MayHang(p.dir) {
		p.close()
		return k.goApart()
	}
	defer p.close()
	var st unix.Stat_t
	fd, err := o.openAt(&p, &st)
	if err != nil {
		return fmt.Errorf("cannot open the log file %s: %w", k.spec.Path, err)
	}
	if k.spec.MaxSize > 0 && st.Mode&unix.S_IFMT != unix.S_IFREG { // rotation renames it
		unix.Close(fd)
		return fmt.Errorf("cannot use %s as a log file that is rotated: it is not a regular file", k.spec.Path)
	}
	k.use(&openLog{File: os.NewFile(uintptr(fd), k.spec.Path), size: st.Size})
	return nil
}

// goApart moves to its own thread and opens the file there.
func (k *fileSink) goApart() error {
	k.close()
	k.file = nil
	if err := foreign.StandApart(); err != nil {
		return err
	}
	k.apart = true
	return k.open()
}

// Write implements spool.Sink.
func (k *fileSink) Write(lines []byte) (int, error) {
	if k.file == nil {
		if err := k.open(); err != nil {
			return 0, err
		}
	}
	if k.isFull(len(lines)) {
		k.rotate()
	}
	n, err := k.file.Write(lines)
	k.file.size += int64(n)
	return n, err
}

// Reopen implements spool.Sink.
func (k *fileSink) Reopen() {
	if k.rest.Swap(false) {
		k.restApart()
		return
	}
	if k.file == nil {
		return
	}
	if err := k.open(); err != nil {
		k.errors.report("cannot reopen log file; the old one stays in use", err)
	}
}

// restApart closes what is open on a thread with its own table.
func (k *fileSink) restApart() {
	if k.apart {
		k.close()
		k.file = nil
	}
}

// use continues with another file.
func (k *fileSink) use(file *openLog) {
	k.close()
	k.file = file
	k.current.Store(file)
	k.tidy()
}

// Close implements spool.Sink.
func (k *fileSink) Close() { k.close() }

// close closes the file that is open. On a network file system that writes it out, and may wait for the server.
func (k *fileSink) close() {
	if k.file == nil {
		return
	}
	if err := k.file.Close(); err != nil {
		k.errors.report("output of workers is lost", err)
	}
}

// interrupt ends a Write that waits for the reader of a FIFO, and later ones. A write to a disk cannot be interrupted.
func (k *fileSink) interrupt() {
	if file := k.current.Load(); file != nil {
		file.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // it is not a FIFO
	}
}
