package supervisor

import (
	"context"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
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
			return g.snapshot.command(cg.Config)
		}
	}
	return nil
}

// LookUp looks up now what a generation of this program would be given. It may take a while: not for the loop.
func LookUp(c *config.Program) (*worker.Spec, error) {
	snap, err := lookUp(c)
	if err != nil {
		return nil, err
	}
	return snap.command(c), nil
}

// command is spec without the log files, which end with the generation.
func (snap *snapshot) command(c *config.Program) *worker.Spec {
	spec := snap.spec(c)
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.Null}, output.Destination{Kind: output.Null}
	return &spec
}
