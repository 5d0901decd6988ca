package spool

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// place is a Sink that accepts one line per token in its gate; nil: all lines.
type place struct {
	gate chan error

	mu     sync.Mutex
	text   bytes.Buffer
	closed bool
}

func (p *place) Write(lines []byte) (int, error) {
	if p.gate != nil {
		if err := <-p.gate; err != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(lines)
}

func (p *place) Open()   {}
func (p *place) Reopen() { p.Write([]byte("reopened\n")) }
func (p *place) Close()  { p.mu.Lock(); p.closed = true; p.mu.Unlock() }

func (p *place) got() string { p.mu.Lock(); defer p.mu.Unlock(); return p.text.String() }

// losses collects what a Spool reports.
type losses struct {
	lost atomic.Uint64

	mu  sync.Mutex
	all []Loss
}

func (l *losses) report(loss Loss) { l.mu.Lock(); l.all = append(l.all, loss); l.mu.Unlock() }

func (l *losses) take() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// play has a Spool whose place accepts a line for each token in its gate, until it is closed, and ends it.
func play(t *testing.T, tell func(t *testing.T, s *Spool, p *place, l *losses)) {
	synctest.Test(t, func(t *testing.T) {
		p, l := &place{gate: make(chan error)}, &losses{}
		s := New(p, nil, &l.lost, l.report)
		tell(t, s, p, l)
		s.End()
		<-s.Done()
	})
}

var long = []byte(strings.Repeat("x", pieceSize-1) + "\n") // sixteen lines fill a Spool

func TestLinesArriveInOrderAndAllBeforeTheEnd(t *testing.T) {
	p, l := &place{}, &losses{}
	s := New(p, nil, &l.lost, l.report)
	var want bytes.Buffer
	for i := range 10_000 {
		line := []byte(strings.Repeat("a", i%100) + "\n")
		want.Write(line)
		s.Put(line)
	}
	s.End()
	<-s.Done()
	if p.got() != want.String() || !p.closed || l.lost.Load() != 0 || len(l.take()) > 0 {
		t.Errorf("%d bytes of %d, closed %v, %d lost", len(p.got()), want.Len(), p.closed, l.lost.Load())
	}
}

func TestPutNeverWaitsAndReportsStartAndEndOfALoss(t *testing.T) {
	play(t, func(t *testing.T, s *Spool, p *place, l *losses) {
		for range 20 {
			s.Put(long)
		}
		synctest.Wait()
		if got := l.take(); len(got) != 1 || got[0] != (Loss{Lines: 1, Goes: true}) || l.lost.Load() != 4 {
			t.Errorf("%+v, %d lost", got, l.lost.Load())
		}
		close(p.gate)
		synctest.Wait()
		s.Put([]byte("again\n"))
		synctest.Wait()
		if got := l.take(); len(got) != 1 || got[0] != (Loss{Lines: 3}) {
			t.Errorf("%+v", got)
		}
		if got := p.got(); len(got) != Size+len("again\n") || !strings.HasSuffix(got, "\nagain\n") {
			t.Errorf("%d bytes arrived", len(got))
		}
	})
}

func TestLossIsContiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := &place{gate: make(chan error)}, &losses{}
		s := New(p, nil, &l.lost, l.report)
		s.Put(long)
		synctest.Wait() // the line is being written
		for range 16 {
			s.Put(long)
		}
		p.gate <- nil
		synctest.Wait()
		s.Put([]byte("more than half of it is full\n"))
		for range 9 {
			p.gate <- nil
			synctest.Wait()
		}
		s.Put([]byte("too late still: the rest was taken at once\n"))
		close(p.gate)
		synctest.Wait()
		s.Put([]byte("room\n"))
		s.End()
		<-s.Done()
		if got := p.got(); strings.Contains(got, "half") || !strings.HasSuffix(got, "room\n") || l.lost.Load() != 3 {
			t.Errorf("it ends with %q, %d lost", got[len(got)-40:], l.lost.Load())
		}
	})
}

func TestErrorsAreReportedOnceForASeries(t *testing.T) {
	play(t, func(t *testing.T, s *Spool, p *place, l *losses) {
		full := errors.New("full")
		for range 3 {
			s.Put([]byte("a\n"))
			p.gate <- full
			synctest.Wait()
		}
		if got := l.take(); len(got) != 1 || got[0] != (Loss{Lines: 1, Err: full, Goes: true}) {
			t.Errorf("%+v", got)
		}
		close(p.gate)
		s.Put([]byte("b\n"))
		synctest.Wait()
		if got := l.take(); len(got) != 1 || got[0] != (Loss{Lines: 2}) || p.got() != "b\n" {
			t.Errorf("%+v, %q arrived", got, p.got())
		}
	})
}

func TestReportMayPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{gate: make(chan error)}
		var s *Spool
		s = New(p, nil, nil, func(loss Loss) {
			if !loss.Goes {
				s.Put([]byte("lost\n"))
			}
		})
		for range 20 {
			s.Put(long)
		}
		close(p.gate)
		synctest.Wait()
		s.End()
		<-s.Done()
		if !strings.HasSuffix(p.got(), "\nlost\n") {
			t.Error("the report did not arrive")
		}
	})
}

func TestFlushWaitsForEarlierPutsUntilItsDeadline(t *testing.T) {
	play(t, func(t *testing.T, s *Spool, p *place, l *losses) {
		s.Put([]byte("a\n"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no patience"))
		defer cancel()
		if err := s.Flush(ctx); err == nil || err.Error() != "no patience" {
			t.Errorf("%v", err)
		}
		close(p.gate)
		if err := s.Flush(t.Context()); err != nil || p.got() != "a\n" {
			t.Errorf("%v, %q arrived", err, p.got())
		}
	})
}

func TestOneSpoolWritesAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := &place{gate: make(chan error)}, &losses{}
		first := New(p, nil, &l.lost, l.report)
		second := New(p, first.Done(), &l.lost, l.report)
		second.Put([]byte("second\n"))
		first.Put([]byte("first\n"))
		first.End()
		close(p.gate)
		second.Reopen()
		second.End()
		<-second.Done()
		if got := p.got(); got != "first\nreopened\nsecond\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestLinesAfterTheEndAreCountedAndNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := &place{}, &losses{}
		s := New(p, nil, &l.lost, l.report)
		s.End()
		<-s.Done()
		for range 3 {
			s.Put([]byte("late\n"))
		}
		if got := l.take(); len(got) > 0 || l.lost.Load() != 3 || p.got() != "" {
			t.Errorf("%+v, %d lost, %q arrived", got, l.lost.Load(), p.got())
		}
	})
}
