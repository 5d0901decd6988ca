package supervisor

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/supervisor/program"
)

// watchedSystemd has a watchdog.
type watchedSystemd struct {
	fakeSystemd
	fed int
}

func (s *watchedSystemd) Watchdog() error                 { s.fed++; return nil }
func (s *watchedSystemd) WatchdogInterval() time.Duration { return time.Hour }

// An image that is replaced before its first tick must have fed the watchdog, too.
func TestNewImageFeedsTheWatchdogAtOnce(t *testing.T) {
	to := &watchedSystemd{}
	n := newServiceNotifier(to, zap.NewNop())
	n.ticker.Stop()
	if to.fed != 1 {
		t.Errorf("it was fed %d times, want once", to.fed)
	}
}

func TestProgramServesWhileAWorkerAnswers(t *testing.T) {
	of := func(role program.Role, state program.WorkerState) bool {
		p := ProgramStatus{Generations: []GenerationStatus{{Role: role,
			Workers: []WorkerStatus{{Standing: program.Standing{State: state}}}}}}
		return p.Serves()
	}
	for state, want := range map[program.WorkerState]bool{program.Ready: true, program.Soaking: true,
		program.Leaving: true, program.Starting: false, program.Stopping: false} {
		if got := of(program.RoleServing, state); got != want {
			t.Errorf("serving and %s: %v", state, got)
		}
	}
	if of(program.RoleTrial, program.Ready) || !of(program.RoleDraining, program.Leaving) {
		t.Error("a trial serves, or a leaving worker does not")
	}
}
