package supervisor

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
)

// generation is what the loop keeps for a Generation.
type resources struct {
	number    int
	listeners []socket.Resolved
	claims    []string // on the listeners, from the table
	abandon   func()   // ends its Prepare
	snapshot  *snapshot
	log       *output.Log // of the program; nil: nothing is captured
}

func (g *resources) files() []*output.LogFile {
	if g.snapshot == nil {
		return nil
	}
	return g.snapshot.files
}

// perform does what the core has decided. Nothing here can fail or wait: what goes wrong comes back as an event.
func (s *Supervisor) perform(p *runner, a program.Action) {
	switch a := a.(type) {
	case program.Prepare:
		s.prepare(p, a.Generation)
	case program.Abandon:
		p.generations[a.Generation].abandon()
	case program.Spawn:
		s.spawn(p, a.Generation, a.Worker)
	case program.Signal:
		s.send(p, a)
	case program.Serve:
		s.serve(p, a.Generation)
	case program.Forget:
		s.forget(p, a.Generation)
	case program.Report:
		s.report(p, a)
	}
}

func (s *Supervisor) spawn(p *runner, cg *program.Generation, w *program.Worker) {
	s.open(p) // it needs sockets that listen
	number := w.Number
	spec := p.generations[cg.Number].workerSpec(s.table, cg.Config, w)
	if s.Path != "" {
		spec.Environment = append(spec.Environment, configVariable+"="+s.Path)
	}
	p.workers[number] = s.Launcher.Start(spec, func(e worker.Event) {
		s.post(func() { s.workerDid(p, number, e) })
	})
}

func (s *Supervisor) send(p *runner, a program.Signal) {
	h := p.workers[a.Worker]
	if h == nil || s.postponed(p, a) {
		return
	}
	if w, _ := p.core.Find(a.Worker); w != nil {
		p.told[a.Worker] = w.Step + 1
	}
	if err := h.Signal(a.Signal, a.Group); err != nil {
		s.Log.Error("cannot signal worker", zap.String("program", p.core.Name), zap.Int("worker", a.Worker),
			zap.String("signal", config.SignalName(a.Signal)), zap.Error(err))
	}
}

func (s *Supervisor) serve(p *runner, number int) {
	if err := s.table.Serve(p.generations[number].claims); err != nil {
		s.Log.Error("cannot spread connections over the slots; none is lost", zap.String("program", p.core.Name), zap.Error(err))
	}
}

func (s *Supervisor) forget(p *runner, number int) {
	g := p.generations[number]
	delete(p.generations, number)
	s.table.Release(g.claims)
	s.keeper.changed()
	for _, f := range g.files() {
		s.closeLog(p, f)
	}
	s.releaseLog(p)
}

// workerSpec is what a worker of this generation is started with.
func (g *resources) workerSpec(t *socket.Table, c *config.Program, w *program.Worker) worker.Spec {
	var fds []int
	var passed []dialect.Socket
	numbers := socket.FDNumbers(c.Listen)
	for i, l := range g.listeners {
		claim := socket.ClaimOn(l, g.claims)
		fds = append(fds, t.FD(claim, w.Slot))
		passed = append(passed, dialect.Socket{Name: l.Name, Address: l.Address, Bound: t.Address(claim), FD: numbers[i], Starter: l.StarterName})
	}
	spec := g.snapshot.spec(c)
	spec.Command = fillAll(fdPlaceholders(c), c.Command)
	spec.Sockets, spec.Places = fds, numbers
	spec.Ready = g.fillProbe(w, c.Ready.Ready)
	spec.Watchdog = c.Health.Watchdog
	if g.log != nil {
		spec.Captured = g.log.Of(w.Number)
	}
	told := dialect.Worker{Dialects: c.Dialects, Sockets: passed, Parent: os.Getpid(), Slot: w.Slot, Generation: g.number}
	spec.Told, spec.Einhorn = told.Environment(), slices.Contains(c.Dialects, dialect.Einhorn)
	spec.Environment = append(slices.Clone(spec.Environment), []string{
		"SUPERVISORD_PROGRAM=" + c.Name,
		"SUPERVISORD_SLOT=" + strconv.Itoa(w.Slot),
		"SUPERVISORD_GENERATION=" + strconv.Itoa(g.number),
	}...)
	return spec
}

// fillProbe fills in the placeholders of a probe.
func (g *resources) fillProbe(w *program.Worker, r worker.Ready) worker.Ready {
	fill := g.placeholders(w)
	r.URL = fill.Replace(r.URL)
	r.Address = fill.Replace(r.Address)
	r.Command = fillAll(fill, r.Command)
	return r
}

// fdPlaceholders fills in {fd:NAME}.
func fdPlaceholders(c *config.Program) *strings.Replacer {
	var pairs []string
	for i, number := range socket.FDNumbers(c.Listen) {
		pairs = append(pairs, "{fd:"+c.Listen[i].Name+"}", strconv.Itoa(number))
	}
	return strings.NewReplacer(pairs...)
}

// placeholders fills in what is known before the spawn; {pid} is left to package worker.
func (g *resources) placeholders(w *program.Worker) *strings.Replacer {
	return strings.NewReplacer("{slot}", strconv.Itoa(w.Slot), "{generation}", strconv.Itoa(g.number))
}

func fillAll(r *strings.Replacer, words []string) []string {
	filled := make([]string, len(words))
	for i, w := range words {
		filled[i] = r.Replace(w)
	}
	return filled
}
