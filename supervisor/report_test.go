package supervisor

import (
	"testing"

	"example.org/supervisord/supervisor/program"
)

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
