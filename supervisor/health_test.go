package supervisor

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

func (w *fakeWorker) isWell(well func(context.Context, ready.Check) error) { w.probe.Store(&well) }

// pass advances the clock and lets everything due happen.
func (s *stage) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// why returns the reason of the last replacement.
func (s *stage) why() string {
	all := s.logs.FilterMessage(program.WorkerLeaving.Sentence()).All()
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1].ContextMap()["reason"].(string)
}

func probed(t *testing.T) *config.Program {
	p := testProgram(t, "web")
	p.Health = config.Health{
		Check:   ready.Check{Method: ready.HTTP, URL: "http://127.0.0.1:900{slot}/{generation}", Interval: 10 * time.Second},
		Timeout: 5 * time.Second, Failures: 3,
	}
	return p
}

func TestUnhealthyWorkerIsReplacedWithOverlap(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		var asked atomic.Int32
		var url atomic.Value
		w.isWell(func(_ context.Context, r ready.Check) error {
			asked.Add(1)
			url.Store(r.URL)
			return errors.New("500")
		})
		s.pass(50 * time.Second)
		if asked.Load() > 0 {
			t.Fatal("probed before it was ready")
		}
		w.ready()
		s.pass(20 * time.Second)
		if s.count(1); asked.Load() != 2 || url.Load() != "http://127.0.0.1:9000/1" {
			t.Fatalf("asked %d times: %v", asked.Load(), url.Load())
		}
		s.pass(10 * time.Second)
		s.count(2)
		if s.why() != "its health check failed 3 times in a row: 500" || len(w.signals()) > 0 {
			t.Errorf("%q, signals %v", s.why(), w.signals())
		}
		s.workers()[1].ready()
		if len(w.signals()) != 1 || asked.Load() != 3 {
			t.Errorf("signals %v, asked %d times", w.signals(), asked.Load())
		}
		s.pass(time.Minute)
		if asked.Load() != 3 {
			t.Error("a worker that is being replaced is probed")
		}
	}, probed(t))
}

func TestGoodProbeResetsFailures(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		var asked atomic.Int32
		w.isWell(func(context.Context, ready.Check) error {
			if asked.Add(1)%3 == 0 {
				return nil
			}
			return errors.New("500")
		})
		w.ready()
		s.pass(10 * time.Minute)
		if s.count(1); asked.Load() < 50 {
			t.Errorf("asked %d times", asked.Load())
		}
	}, probed(t))
}

func TestHangingProbeFailsAtTimeout(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		w.isWell(func(ctx context.Context, _ ready.Check) error { <-ctx.Done(); return context.Cause(ctx) })
		w.ready()
		s.pass(50 * time.Second)
		s.count(2)
		if s.why() != "its health check failed 3 times in a row: no answer within 5s" {
			t.Errorf("%q", s.why())
		}
	}, probed(t))
}

func TestProbesEndWithTheWorker(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		var asked atomic.Int32
		w.isWell(func(context.Context, ready.Check) error { asked.Add(1); return nil })
		w.ready()
		s.stop <- siginfo.Caught{Number: syscall.SIGTERM}
		s.pass(20 * time.Second)
		if asked.Load() > 0 || s.super.programs["web"].workers[1].pulse != nil {
			t.Errorf("probed %d times while it stops", asked.Load())
		}
	}, probed(t))
}

func guarded(t *testing.T) *config.Program {
	p := testProgram(t, "web")
	p.Health = config.Health{Watchdog: 30 * time.Second}
	return p
}

func TestWorkerMissingItsWatchdogIsReplaced(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		if w.spec.Watchdog != 30*time.Second {
			t.Errorf("the worker got %s", w.spec.Watchdog)
		}
		s.pass(50 * time.Second)
		w.ready()
		for range 10 {
			s.pass(29 * time.Second)
			w.events <- life.Watchdog{}
		}
		s.pass(30 * time.Second)
		s.count(1)
		s.pass(program.Grace)
		s.count(2)
		if s.why() != "no WATCHDOG=1 within 30s" {
			t.Errorf("%q", s.why())
		}
	}, guarded(t))
}

func TestWorkerTriggeringItsWatchdogIsReplacedAtOnce(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		w.ready()
		w.events <- life.Watchdog{Trigger: true}
		synctest.Wait()
		s.count(2)
		if s.why() != "it sent WATCHDOG=trigger" {
			t.Errorf("%q", s.why())
		}
	}, guarded(t))
}

func TestUnconfiguredWatchdogIsIgnored(t *testing.T) {
	onStage(t, func(s *stage) {
		w := s.workers()[0]
		w.ready()
		w.events <- life.Watchdog{Trigger: true}
		s.pass(time.Hour)
		s.count(1)
	}, testProgram(t, "web"))
}

func TestWorkersOverMaxMemoryAreReplacedOneByOne(t *testing.T) {
	p := testProgram(t, "web")
	p.Workers, p.MaxMemory = 3, 512<<20
	onStage(t, func(s *stage) {
		for i, w := range s.workers() {
			w.memory.Store(uint64(600+100*i) << 20)
			w.ready()
		}
		s.count(3)
		s.pass(sampleInterval - time.Second)
		s.count(3)
		s.pass(time.Second)
		s.count(4)
		if s.why() != "it uses 800.0 MiB of memory, more than max_memory, 512.0 MiB" {
			t.Errorf("%q", s.why())
		}
		s.pass(5 * sampleInterval)
		s.count(4)
		s.workers()[3].ready()
		s.pass(sampleInterval)
		s.count(5)
		if s.why() != "it uses 700.0 MiB of memory, more than max_memory, 512.0 MiB" {
			t.Errorf("%q", s.why())
		}
		s.workers()[2].exit()
	}, p)
}

// TestNothingIsWatchedByDefault: without health check, limit or log there is no timer.
func TestNothingIsWatchedByDefault(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.pass(time.Hour)
		p := s.super.programs["web"]
		if p.alarm != nil || p.samples || p.workers[1].pulse != nil || p.capture.log != nil {
			t.Errorf("%+v", p)
		}
	}, testProgram(t, "web"))
}
