package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/spool"
)

// streamTimeout is how long the end of supervisord, or an upgrade, waits for the reader of its stdout or stderr.
const streamTimeout = 2 * time.Second

// output is stdout and stderr of this process; zero: not open yet.
type output struct{ stdout, stderr *stream }

func openOutput() output { return output{newStream(1, "stdout"), newStream(2, "stderr")} }

// sync writes what is left, if a reader takes it, and keeps the streams open.
func (o output) sync() {
	for _, s := range []*stream{o.stderr, o.stdout} {
		if s != nil {
			s.Sync() //nolint:errcheck // there is no other place to report it
		}
	}
}

// close writes what is left, if a reader takes it.
func (o output) close() {
	for _, s := range []*stream{o.stdout, o.stderr} {
		if s != nil {
			s.close()
		}
	}
}

// stream is stdout or stderr of this process, which may be a pipe without a reader or a terminal after Ctrl-S.
// A goroutine writes, so nothing else in the daemon waits for the reader.
type stream struct {
	name  string
	spool *spool.Spool
	log   atomic.Pointer[zap.Logger] // for lines that were dropped; nil: not known yet
}

func newStream(fd int, name string) *stream {
	s := &stream{name: name}
	s.spool = spool.New(descriptor(fd), nil, nil, s.lost)
	return s
}

// Complain writes a line to stderr without waiting forever for its reader.
func Complain(format string, args ...any) {
	s := newStream(2, "stderr")
	fmt.Fprintf(s, format+"\n", args...)
	s.close()
}

// Write implements io.Writer. It never waits.
func (s *stream) Write(lines []byte) (int, error) {
	s.spool.Put(lines)
	return len(lines), nil
}

// Sync waits until everything is written.
func (s *stream) Sync() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), streamTimeout, fmt.Errorf("not within %s", streamTimeout))
	defer cancel()
	if err := s.spool.Flush(ctx); err != nil {
		return fmt.Errorf("no process reads the %s of supervisord: %w", s.name, err)
	}
	return nil
}

func (s *stream) close() {
	s.spool.End()
	timeout := time.NewTimer(streamTimeout)
	defer timeout.Stop()
	select {
	case <-s.spool.Done():
	case <-timeout.C:
	}
}

// lost logs that lines were dropped, as soon as the log is read again.
func (s *stream) lost(l spool.Loss) {
	if log := s.log.Load(); log != nil && !l.Goes {
		log.Warn("log lines were dropped: "+s.name+" was not read", zap.Uint64("lines", l.Lines))
	}
}

// descriptor is a spool.Sink.
type descriptor int

// Write writes everything, even if a process that inherited the file, such as a worker of another user, has made it non-blocking.
func (fd descriptor) Write(b []byte) (int, error) {
	for done := 0; ; {
		n, err := unix.Write(int(fd), b[done:])
		done += max(n, 0)
		switch {
		case err == nil && done == len(b):
			return done, nil
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1) //nolint:errcheck // the next write reports what is wrong
		default:
			return done, err
		}
	}
}

// Open implements spool.Sink.
func (descriptor) Open() {}

// Reopen implements spool.Sink.
func (descriptor) Reopen() {}

// Close implements spool.Sink. The descriptor stays open for whatever prints the last error.
func (descriptor) Close() {}
