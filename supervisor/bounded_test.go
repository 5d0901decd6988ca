package supervisor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
)

// hanging runs play with a supervisor whose configuration hangs when it is read, unless loads is negative.
func hanging(t *testing.T, play func(s *stage, loads *atomic.Int32)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, testProgram(t, "web"))
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		gate, n := make(chan struct{}), new(atomic.Int32)
		s.super.Load = func() (*config.Config, error) {
			if n.Add(1) > 0 {
				<-gate
			}
			return s.conf, nil
		}
		s.run()
		s.workers()[0].ready()
		play(s, n)
		s.end() // does not wait for the hanging load
		close(gate)
		synctest.Wait()
	})
}

func TestReloadWithHangingConfigFailsAndNextOneWorks(t *testing.T) {
	hanging(t, func(s *stage, loads *atomic.Int32) {
		before := time.Now()
		_, err := s.super.Reload(s.Context(), ReloadOptions{})
		if !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "reading the configuration has not ended within 1m0s") ||
			time.Since(before) != readTimeout {
			t.Errorf("after %s: %v", time.Since(before), err)
		}
		loads.Store(-10) // the disk answers again
		if _, err := s.super.Reload(s.Context(), ReloadOptions{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.count(2)
		s.workers()[1].ready()
		s.workers()[0].exit()
	})
}

func TestHangingConfigIsNotReadWithoutLimit(t *testing.T) {
	hanging(t, func(s *stage, loads *atomic.Int32) {
		for range 20 {
			_, err := s.super.Reload(s.Context(), ReloadOptions{})
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
		}
		if loads.Load() != maxStuck {
			t.Errorf("%d calls hang", loads.Load())
		}
		_, err := s.super.Reload(s.Context(), ReloadOptions{})
		if !strings.Contains(err.Error(), "4 earlier attempts still hang") {
			t.Error(err)
		}
	})
}

func TestStopDoesNotWaitForHangingConfig(t *testing.T) {
	hanging(t, func(s *stage, loads *atomic.Int32) {
		s.hup()
		if loads.Load() != 1 {
			t.Fatal("it is not being read")
		}
	})
}

func TestGenerationWithHangingFilesFailsToPrepare(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		gate, over := make(chan struct{}), cancelled()
		defer close(gate)
		for range maxStuck {
			bounded(over, s.super.disks, "web", lookingUp, func() (any, error) { <-gate; return nil, nil }) //nolint:errcheck // it hangs
		}
		s.hup()
		r := s.super.programs["web"].core.Reloads[1]
		if r == nil || r.Outcome != program.NotPrepared || r.Failure.Step != program.StepPrepare ||
			!strings.Contains(r.Failure.Reason, "still hang") {
			t.Errorf("the record of the reload is %+v", r)
		}
		s.count(1)
	}, testProgram(t, "web"))
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// stuck is a watcher whose check of the files blocks until the test releases it.
type stuck struct {
	fakeWatcher
	gate chan struct{}
	sets *atomic.Int32
}

func (w stuck) Set(map[string][]string) error {
	if w.sets.Add(1) > 1 { // the first check is before the loop runs
		<-w.gate
	}
	return nil
}

func TestHangingWatchedFilesHoldUpNeitherReloadNorStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, testProgram(t, "web"))
		w := stuck{s.watcher, make(chan struct{}), new(atomic.Int32)}
		s.super.Watch = w
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		s.run()
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		s.hup()
		s.count(3)
		if n := w.sets.Load(); n != 2 {
			t.Errorf("the watcher was asked %d times, and the second look has not ended", n)
		}
		time.Sleep(readTimeout)
		synctest.Wait()
		if s.logged("cannot watch files; reload with HUP") != 1 || w.sets.Load() != 3 {
			t.Errorf("%d errors, %d looks", s.logged("cannot watch files; reload with HUP"), w.sets.Load())
		}
		s.end()
		close(w.gate)
		synctest.Wait()
	})
}
