package supervisor

import (
	"context"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
)

// Command is what a command that belongs to a program (a hook) is run with.
type Command struct {
	Config *config.Program // the newest; not to be changed
	Spec   *worker.Spec    // directory, environment, user and limits as of a worker; no Command, no output; nil: see LookUp
}

// HookCommand returns what a hook of a program is run with, from the snapshot of this generation, or of the serving one if this
// one has none. Errors: ErrNoProgram, and those of every request.
func (s *Supervisor) HookCommand(ctx context.Context, name string, generation int) (*Command, error) {
	return askOf(ctx, s, name, func(p *runner) (*Command, error) {
		spec := p.commandOf(generation)
		if spec == nil {
			spec = p.commandOf(p.core.ServingNumber())
		}
		return &Command{p.core.Config, spec}, nil
	})
}

// commandOf returns nil if the generation is not prepared, or gone.
func (p *runner) commandOf(generation int) *worker.Spec {
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		failed := cg.Failure != nil && cg.Failure.Step == program.StepPrepare
		if cg.Number == generation && g != nil && g.snapshot != nil && cg.Prepared && !failed {
			return g.snapshot.Command(cg.Config)
		}
	}
	return nil
}

// LookUp looks up now what a generation of this program would be given. It may take a while: it is not for the loop.
func LookUp(c *config.Program) (*worker.Spec, error) {
	snap, err := snapshot.LookUp(c)
	if err != nil {
		return nil, err
	}
	return snap.Command(c), nil
}
