package program

// Part names a part of a program that is recorded by itself, because it changes by itself. The zero Part is the rest of the program,
// which any Step may change.
type Part struct {
	Kind   PartKind
	Number int // of the worker, the generation, or the reload's generation; of no meaning for Steered
}

// PartKind is the kind of a Part.
type PartKind string

// The kinds of parts.
const (
	WorkerPart     PartKind = "worker"     // a Worker
	GenerationPart PartKind = "generation" // a Generation without its workers
	ReloadPart     PartKind = "reload"     // a ReloadRecord
	PastPart       PartKind = "past"       // a PastReload
	SteeringPart   PartKind = "steering"   // Program.Steering
)

// Touched returns the parts that have changed, come or gone since the last call. A part may be in it twice, or without having changed.
func (p *Program) Touched() []Part {
	touched := p.touched
	p.touched = nil
	return touched
}

func (p *Program) touch(k PartKind, number int) { p.touched = append(p.touched, Part{k, number}) }

func (p *Program) touchWorker(w *Worker)         { p.touch(WorkerPart, w.Number) }
func (p *Program) touchGeneration(g *Generation) { p.touch(GenerationPart, g.Number) }
func (p *Program) touchReload(r *ReloadRecord)   { p.touch(ReloadPart, r.Generation) }

// touchAll is for what changes everything.
func (p *Program) touchAll() {
	p.touch(SteeringPart, 0)
	for _, r := range p.Reloads {
		p.touchReload(r)
	}
	for i := range p.Past {
		p.touch(PastPart, p.Past[i].Generation)
	}
	for _, g := range p.Generations() {
		p.touchGeneration(g)
		for _, w := range g.Workers {
			p.touchWorker(w)
		}
	}
}
