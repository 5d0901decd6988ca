package main

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

// streamTimeout is how long the end of supervisord, or an upgrade, waits for whoever reads its stdout or stderr.
const streamTimeout = 2 * time.Second

// stream is stdout or stderr of this process. It may be a pipe that nobody reads or a terminal on which somebody has pressed
// Ctrl-S: therefore a goroutine writes, and nothing else in the daemon waits for it.
type stream struct {
	name  string
	spool *spool.Spool
	log   atomic.Pointer[zap.Logger] // for what was lost; nil: not known yet
}

func newStream(fd int, name string) *stream {
	s := &stream{name: name}
	s.spool = spool.New(descriptor(fd), nil, nil, s.lost)
	return s
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
		return fmt.Errorf("nobody reads the %s of supervisord: %w", s.name, err)
	}
	return nil
}

// close writes what is left, if somebody reads it.
func (s *stream) close() {
	s.spool.End()
	timeout := time.NewTimer(streamTimeout)
	defer timeout.Stop()
	select {
	case <-s.spool.Done():
	case <-timeout.C:
	}
}

// lost says what was lost, in the log itself, as soon as that is read again.
func (s *stream) lost(l spool.Loss) {
	if log := s.log.Load(); log != nil && !l.Goes {
		log.Warn("log lines were dropped: "+s.name+" was not read", zap.Uint64("lines", l.Lines))
	}
}

// descriptor is a spool.Sink.
type descriptor int

// Write writes everything, also where somebody has made the file non-blocking: whoever inherited it can do that, a worker of
// another user too.
func (fd descriptor) Write(b []byte) (int, error) {
	for done := 0; ; {
		n, err := unix.Write(int(fd), b[done:])
		done += max(n, 0)
		switch {
		case err == nil && done == len(b):
			return done, nil
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1) //nolint:errcheck // the next write says what is wrong
		default:
			return done, err
		}
	}
}

// Open implements spool.Sink.
func (descriptor) Open() {}

// Reopen implements spool.Sink.
func (descriptor) Reopen() {}

// Close implements spool.Sink: the descriptor stays open for whoever prints the last error.
func (descriptor) Close() {}
