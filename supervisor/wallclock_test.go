package supervisor

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
)

// clockSet changes a record as if the wall clock had been set back by d since it was written.
func clockSet(r *record.Record, d time.Duration) {
	at := r.Clock.Wall
	for _, p := range r.Programs {
		p.Core.Rebase(at, at.Add(d))
	}
	r.Clock.Wall = at.Add(d)
}

func TestStopDeadlineSurvivesAnUpgradeAndClockSteps(t *testing.T) {
	for name, back := range map[string]time.Duration{"untouched": 0, "an hour back": time.Hour,
		"a second back": time.Second, "an hour on": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			web := testProgram(t, "web")
			h := handoverOf(t, web, func(s *stage) {
				s.hup()
				s.workers()[1].ready()
			})
			for _, g := range h.Record.Programs[0].Core.Generations() {
				setPID(h.Record, g.Workers[0].Number, 4711+g.Number)
			}
			clockSet(h.Record, back)
			restored(t, h, web, func(s *stage, _ *adopting) {
				old := s.workers()[slices.IndexFunc(s.workers(), func(w *fakeWorker) bool {
					return slices.Contains(w.spec.Environment, "SUPERVISORD_GENERATION=1")
				})]
				time.Sleep(20 * time.Second) // not 29: the record's second clock is real, and this machine may be busy
				synctest.Wait()
				if got := old.signals(); slices.Contains(got, syscall.SIGKILL) {
					t.Errorf("the worker is killed too soon: %v", got)
				}
				time.Sleep(12 * time.Second)
				synctest.Wait()
				if got := old.signals(); !slices.Contains(got, syscall.SIGKILL) {
					t.Errorf("the worker is not killed: %v", got)
				}
			})
		})
	}
}

// wound returns t with a monotonic reading d later.
func wound(t time.Time, d time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

func TestTimesFollowWallClock(t *testing.T) {
	now := time.Now()
	s := New(Options{Log: zap.NewNop()})
	s.clock = wound(now, -time.Hour) // an hour has passed since, and the wall clock shows the same
	core := program.New(testConfig(1, config.All))
	// due in half a minute, although the wall clock says in an hour
	core.RetryAt = wound(now.Add(time.Hour), -time.Hour+30*time.Second)
	s.programs["web"] = s.newRunner(core)
	s.followClock()
	if left := core.RetryAt.Round(0).Sub(now.Round(0)); (left - 30*time.Second).Abs() > time.Second {
		t.Errorf("by the wall clock it is in %s, want 30s", left)
	}
	if left := core.RetryAt.Sub(now); (left - 30*time.Second).Abs() > time.Second {
		t.Errorf("it is in %s, want 30s", left)
	}
}

// stalling is a watcher whose loop stops for a while on request.
type stalling struct {
	fakeWatcher
	stall *time.Duration
}

func (w stalling) Changes() <-chan map[string]string {
	d := *w.stall
	*w.stall = 0
	time.Sleep(d)
	return w.fakeWatcher.Changes()
}

// stalls stops the loop for this time, as SIGSTOP would.
func (s *stage) stalls(d time.Duration) {
	synctest.Wait()
	w := s.super.Watch.(stalling)
	*w.stall = d
	go s.super.Status(s.Context()) //nolint:errcheck // any request wakes the loop
	time.Sleep(d - time.Nanosecond)
	synctest.Wait()
	time.Sleep(time.Nanosecond) // missed events arrive a moment later
}

func onStallingStage(t *testing.T, play func(*stage), web *config.Program) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, web)
		s.super.Watch = stalling{s.watcher, new(time.Duration)}
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		s.run()
		play(s)
		s.end()
	})
}

func TestWorkerReadyWhileLoopStalledIsInTime(t *testing.T) {
	onStallingStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.count(2)
		s.stalls(2 * time.Minute)
		time.Sleep(10 * time.Millisecond)
		s.workers()[1].ready()
		if s.logged(program.TrialFailed.Sentence()) != 0 || s.super.programs["web"].core.Serving.Number != 2 {
			t.Error("the trial has failed")
		}
		s.workers()[0].exit()
	}, testProgram(t, "web"))
}

func TestWorkerNotReadyAfterLoopStalledFailsAfterGrace(t *testing.T) {
	onStallingStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.count(2)
		s.stalls(2 * time.Minute)
		time.Sleep(program.Grace + time.Millisecond)
		synctest.Wait()
		if s.logged(program.TrialFailed.Sentence()) != 1 {
			t.Error("the trial has not failed")
		}
		s.workers()[1].exit()
	}, testProgram(t, "web"))
}

func TestWorkerDyingInSoakWhileLoopStalledFailsTrial(t *testing.T) {
	web := testProgram(t, "web")
	web.Reload.Soak = 10 * time.Second
	onStallingStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		s.stalls(time.Minute)
		time.Sleep(10 * time.Millisecond)
		s.workers()[1].exit()
		if s.super.programs["web"].core.Serving.Number != 1 || len(s.workers()[0].signals()) > 0 {
			t.Error("the dead generation counts as serving")
		}
	}, web)
}

func TestWorkerStoppedWhileLoopStalledIsNotKilled(t *testing.T) {
	onStallingStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		s.stalls(time.Minute)
		time.Sleep(10 * time.Millisecond)
		s.workers()[0].exit()
		if got := s.workers()[0].signals(); !slices.Equal(got, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("it got %v", got)
		}
	}, testProgram(t, "web"))
}

func TestEarlyAlarmIsSetAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		p := s.super.programs["web"]
		p.alarm.timer.Stop() // on a clock other than the deadline's
		s.super.post(func() { p.ring(p.alarm) })
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := s.workers()[0].signals(); !slices.Contains(got, syscall.SIGKILL) {
			t.Errorf("the deadline is lost: the worker got %v", got)
		}
	}, testProgram(t, "web"))
}

// slowLauncher delays the loop at each start of a worker.
type slowLauncher struct {
	*fakeLauncher
	by time.Duration
}

func (l *slowLauncher) Start(s worker.Spec, post func(life.Event)) Handle {
	time.Sleep(l.by)
	return l.fakeLauncher.Start(s, post)
}

func TestDeadlinePassingBeforeAlarmIsSetIsNotLost(t *testing.T) {
	web := testProgram(t, "web")
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.super.Launcher = &slowLauncher{s.launcher, web.Ready.Timeout + time.Millisecond}
		s.hup()
		time.Sleep(web.Ready.Timeout + 2*time.Millisecond)
		synctest.Wait()
		if s.logged(program.TrialFailed.Sentence()) != 1 {
			t.Error("the trial has not failed")
		}
		s.workers()[1].exit()
	}, web)
}

func TestSpawnedEventKeepsDueAlarm(t *testing.T) {
	web := testProgram(t, "web")
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		w := s.workers()[1]
		due := s.super.programs["web"].alarm
		due.timer.Stop() // as if it were about to fire
		time.Sleep(web.Ready.Timeout + time.Millisecond)
		w.events <- life.Spawned{PID: 1001}
		synctest.Wait()
		if s.super.programs["web"].alarm != due {
			t.Error("the alarm was removed before it fired")
		}
		s.super.post(func() { s.super.programs["web"].ring(due) })
		synctest.Wait()
		w.exit()
	}, web)
}
