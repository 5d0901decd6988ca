package supervisor

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
)

func TestStatusShowsWhatReloadWaitsFor(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		s.hup()
		st := s.super.programs["web"].status()
		if st.Due == nil || st.Due.Reason != "HUP" || !strings.Contains(st.Due.Waits, "max_draining") ||
			!strings.Contains(st.Summary, "1 draining, a reload waits until a generation has gone") {
			t.Errorf("the status is %+v", st)
		}
		if !slices.Equal(s.workers()[0].signals(), []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("the old worker got %v", s.workers()[0].signals())
		}
		s.workers()[0].exit()
		synctest.Wait()
		s.count(3)
		s.workers()[2].ready()
		s.workers()[1].exit()
	}, func() *config.Program {
		c := testProgram(t, "web")
		c.Reload.MaxDraining = 1
		return c
	}())
}

func TestProgramServesWhileAWorkerAnswers(t *testing.T) {
	of := func(role program.Role, state program.WorkerState) bool {
		p := ProgramStatus{Generations: []GenerationStatus{{Role: role, Workers: []WorkerStatus{{State: state}}}}}
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

func TestStatusSaysWhereAndHowOftenWorkersCrashed(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.workers()[0].crash()
		s.count(2)
		st := s.super.programs["web"].status()
		if c := st.LastCrash; st.Restarts != 1 || c == nil || c.Worker != 1 || c.Generation != 1 || c.At.IsZero() ||
			c.Reason == "" {
			t.Errorf("%d restarts, last crash %+v", st.Restarts, st.LastCrash)
		}
		if name, _ := os.Hostname(); name == "" || s.super.Describe().Host != name {
			t.Errorf("host %q, want %q", s.super.Describe().Host, name)
		}
	}, testProgram(t, "web"))
}
