package supervisor

import (
	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// CommandRequest asks with what a command that belongs to a program is run. Do answers it with a *Command.
type CommandRequest struct {
	Program    string
	Generation int // whose snapshot is wanted; that of the serving generation if this one has none any more
}

func (CommandRequest) request() {}

// Command is what a command that belongs to a program (a hook) is run with.
type Command struct {
	Config *config.Program // the newest; not to be changed
	Spec   *worker.Spec    // directory, environment, user and limits as of a worker; no Command, no output; nil: see LookUp
}

func (s *Supervisor) commandAsked(r CommandRequest) (*Command, error) {
	p := s.programs[r.Program]
	if p == nil {
		return nil, s.noProgram(r.Program)
	}
	c := &Command{Config: p.core.Config}
	for _, number := range []int{r.Generation, p.core.ServingNumber()} {
		for _, cg := range p.core.Generations() {
			g := p.generations[cg.Number]
			if c.Spec == nil && cg.Number == number && g != nil && g.snapshot != nil && cg.Prepared && (cg.Failure == nil || cg.Failure.Step != program.StepPrepare) {
				c.Spec = g.snapshot.command(cg.Config)
			}
		}
	}
	return c, nil
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
	spec.Stdout, spec.Stderr = worker.Output{Kind: worker.Null}, worker.Output{Kind: worker.Null}
	return &spec
}
