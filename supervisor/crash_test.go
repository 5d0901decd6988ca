package supervisor

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLoopReplacesCrashesWithoutAWaitWhileThereIsBudget(t *testing.T) {
	c := testProgram(t, "web")
	c.Restart.Budget = 3
	onStage(t, func(s *stage) {
		crash := func() (waited time.Duration) {
			before, n := time.Now(), len(s.workers())
			s.workers()[n-1].ready()
			s.workers()[n-1].crash()
			for ; len(s.workers()) == n; synctest.Wait() {
				time.Sleep(time.Millisecond)
			}
			return time.Since(before)
		}
		for n := 1; n <= 4; n++ {
			if waited := crash(); waited != 0 {
				t.Errorf("crash %d was replaced after %s", n, waited)
			}
		}
		for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
			if waited := crash(); waited > want || waited < want*4/5 {
				t.Errorf("without budget a crash was replaced after %s, want %s less a fifth", waited, want)
			}
		}
		time.Sleep(20 * time.Second) // the next worker is stable, and two are back
		s.workers()[len(s.workers())-1].ready()
		time.Sleep(10 * time.Second)
		for n := 1; n <= 4; n++ {
			if waited := crash(); waited != 0 {
				t.Errorf("crash %d after a stable worker was replaced after %s", n, waited)
			}
		}
		if waited := crash(); waited == 0 {
			t.Error("the budget has no end")
		}
	}, c)
}

func TestUnhealthyWorkerServesWhileItsSuccessorWaits(t *testing.T) {
	c := testProgram(t, "web")
	c.Health.Watchdog = 100 * time.Millisecond
	onStage(t, func(s *stage) {
		for n := range 2 {
			s.workers()[n].ready() // and never says WATCHDOG=1
			time.Sleep(210 * time.Millisecond)
			synctest.Wait()
		}
		s.count(2)
		if got := s.workers()[1].signals(); len(got) > 0 {
			t.Errorf("the worker got %v before there is another", got)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		s.count(3)
		s.workers()[0].exit()
	}, c)
}
