package supervisor

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/ready"
)

// workerSpec is what a worker of this generation is started with.
func (g *resources) workerSpec(t *socket.Table, c *config.Program, w *program.Worker) worker.Spec {
	var fds []int
	var passed []dialect.Passed
	numbers := dialect.FDNumbers(c.Listen)
	for i, l := range g.listeners {
		claim := socket.ClaimOn(l, g.claims)
		fds = append(fds, t.FD(claim, w.Slot))
		passed = append(passed, dialect.Passed{Name: l.Name, Address: l.Address, Bound: t.Address(claim), FD: numbers[i], Starter: l.StarterName})
	}
	spec := g.snapshot.spec(c)
	spec.Command = fillAll(fdPlaceholders(c), c.Command)
	spec.Sockets, spec.Places = fds, numbers
	spec.Ready = g.fillProbe(w, c.Ready.Check)
	spec.Watchdog = c.Health.Watchdog
	if g.log != nil {
		spec.Captured = g.log.Of(w.Number)
	}
	told := dialect.Message{Dialects: c.Dialects, Sockets: passed, Parent: os.Getpid(), Slot: w.Slot, Generation: g.number}
	spec.Told, spec.Einhorn = told.Environment(), slices.Contains(c.Dialects, dialect.Einhorn)
	spec.Environment = append(slices.Clone(spec.Environment), []string{
		"SUPERVISORD_PROGRAM=" + c.Name,
		"SUPERVISORD_SLOT=" + strconv.Itoa(w.Slot),
		"SUPERVISORD_GENERATION=" + strconv.Itoa(g.number),
	}...)
	return spec
}

// fillProbe fills in the placeholders of a probe.
func (g *resources) fillProbe(w *program.Worker, r ready.Check) ready.Check {
	fill := g.placeholders(w)
	r.URL = fill.Replace(r.URL)
	r.Address = fill.Replace(r.Address)
	r.Command = fillAll(fill, r.Command)
	return r
}

// fdPlaceholders fills in {fd:NAME}.
func fdPlaceholders(c *config.Program) *strings.Replacer {
	var pairs []string
	for i, number := range dialect.FDNumbers(c.Listen) {
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
