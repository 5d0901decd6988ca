package supervisor

import (
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
)

// recordSource is a Supervisor as the next one has to know it: a record.Predecessor. It copies nothing, so only the
// loop uses it, and only while it changes nothing.
type recordSource struct{ *Supervisor }

func (s recordSource) Filters() map[string]record.Adoptable { return s.Launcher.Filters() }

// Head returns the part of the record that belongs to no program.
func (s recordSource) Head() *record.Record {
	return &record.Record{Instance: s.instance, Settings: s.settings.Settings, Files: s.settings.files,
		Orphans: s.Orphans.Told()}
}

func (s recordSource) Sockets() []socket.Named { return s.table.Export() }
func (s recordSource) Programs() []string      { return s.programs.names() }

// Program returns the record of a program, which shares the state of the loop: the caller reads it before the loop
// continues.
func (s recordSource) Program(name string) *record.ProgramRecord {
	p := s.programs[name]
	if p == nil {
		return nil
	}
	r := &record.ProgramRecord{Core: p.core, Listeners: p.listeners, Removed: p.removed,
		Held: p.held, Generations: map[int]record.GenerationRecord{}}
	for n, g := range p.generations { // without one that is decided and not begun: a restore prepares it anew
		r.Generations[n] = record.GenerationRecord{Lanes: g.lanes, Snapshot: g.snapshot}
	}
	return r
}

func (p *runner) held(number int) (record.Adoptable, int) {
	if h := p.workers[number]; h != nil {
		return h, h.turn
	}
	return nil, 0
}

// resourcesOf returns what the loop keeps for a generation that was recorded, or nil if that was not prepared yet.
func resourcesOf(number int, g record.GenerationRecord) *resources {
	if g.Snapshot == nil {
		return nil
	}
	return &resources{number: number, lanes: g.Lanes, snapshot: g.Snapshot, abandon: func() {}}
}

// Restore takes over what the previous supervisord left, in place of Start; it owns every descriptor in h afterwards.
// The order matters: first all runners, because programs ask for each other; then sockets and steering, because clients
// connect meanwhile; then the workers; then what nobody has claimed is closed.
//
// The workers do not notice: Restore adopts them where they are, and continues what was interrupted. An error about
// something that workers can do without (a log file, a path, a socket) is logged, and the next reload or worker tries
// again. A supervisor that fails in Restore leaves the workers alone.
func (s *Supervisor) Restore(h *record.Inheritance) {
	store, r := s.store, h.Record
	s.resumed = true
	s.store = nil // until all is restored, what could be written down is less than what is there
	defer func() { s.store = store }()
	store.Inherit(h)
	s.table.Offer(h.Sockets)
	s.tellProblems(h)
	for _, pr := range r.Programs {
		r.Rebase(pr.Core, time.Now())
		s.programs[pr.Core.Name] = s.restored(pr)
	}
	s.restoreListeners(r.Lanes())
	for _, pr := range r.Programs {
		s.programs[pr.Core.Name].resume(pr, h)
	}
	s.claimOrphans()
	s.dropSockets()
	h.Drop(s.Launcher.KeepFilter)
	c := &config.Config{Supervisor: r.Settings, Files: r.Files}
	for _, pr := range r.Programs {
		c.Programs = append(c.Programs, *pr.Core.Config)
	}
	s.configure(c)
	s.departure.failed = h.GaveBack
	if r.Instance != "" {
		s.instance = r.Instance
	}
	s.reach()
	s.lookAtPaths(false)
	if r := r.Reload; r != nil {
		s.reload(request{Reload: program.Reload{Reason: r.Reason, AskedBy: r.AskedBy}, itself: true, all: r.All})
	}
}

// tellProblems logs what is wrong with what was handed over.
func (s *Supervisor) tellProblems(h *record.Inheritance) {
	for _, err := range h.Problems {
		s.Log.Error("what the previous supervisord left is incomplete", zap.Error(err))
	}
}

// restoreListeners gives every living generation the sockets that it had, sends new connections where they went before,
// whatever the kernel does with the sockets that are left, and then opens the listeners of the configuration. The
// generations do not need those that cannot be opened.
func (s *Supervisor) restoreListeners(lanes []*socket.Lane) {
	var serve []socket.Part
	var paused []string
	for p := range s.programs.all() {
		serve = append(serve, p.shares(p.core.Steering)...)
		if !p.core.Paused.Until.IsZero() {
			paused = append(paused, keysOf(p.listeners)...)
		}
	}
	for _, err := range s.table.Resume(lanes, serve, paused) {
		s.Log.Error("a listener is not what it was before; its workers keep the socket that they have, and the next "+
			"reload tries again", zap.Error(err))
	}
	for p := range s.programs.all() {
		p.steer()
		if !p.core.Paused.Until.IsZero() {
			p.pause(true)
		}
	}
	s.wantAgain(s.programs.wanted(nil, 0))
	s.table.SetOrphans(s.Orphans.Sockets())
	s.dropSockets()
}

// restored returns the runner of a program that was recorded. Its workers are not adopted yet.
func (s *Supervisor) restored(pr record.ProgramRecord) *runner {
	p := s.newRunner(pr.Core)
	p.listeners, p.removed = pr.Listeners, pr.Removed
	for _, cg := range pr.Core.Generations() {
		if g := resourcesOf(cg.Number, pr.Generations[cg.Number]); g != nil {
			p.generations[cg.Number] = g
		}
	}
	if p.removed && p.core.Goal == program.Run {
		p.end(program.Stop{Reason: notConfigured})
	}
	p.keepLogging()
	return p
}

// resume adopts the workers of a program and continues with what was under way.
func (p *runner) resume(pr record.ProgramRecord, h *record.Inheritance) {
	p.evade(pr)
	p.steer()
	for _, cg := range p.core.Generations() {
		if p.generations[cg.Number] == nil {
			p.prepare(cg)
			continue
		}
		for _, w := range slices.Clone(cg.Workers) {
			p.adopt(cg, w, pr.Workers[w.Number], h)
		}
	}
	p.step(program.Tick{})
}

// evade gives the generations of which no worker is left sockets that no orphan has, as Table.Evade says: the workers
// that they had may be those orphans, started in the instant of the death.
func (p *runner) evade(pr record.ProgramRecord) {
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		left := func(w *program.Worker) bool { return pr.Workers[w.Number].PID != 0 }
		if g == nil || slices.ContainsFunc(cg.Workers, left) {
			continue
		}
		for _, err := range p.s.table.Evade(g.lanes) {
			p.log.Warn("a worker shares a socket with one of a supervisord that died", zap.Int("generation", cg.Number),
				zap.Error(err))
		}
	}
}

// adopt makes the process of a worker ours again. A worker without a process is spawned if it was starting, and is gone
// otherwise.
func (p *runner) adopt(cg *program.Generation, w *program.Worker, wr record.WorkerRecord, h *record.Inheritance) {
	switch {
	case wr.PID == 0 && w.State == program.Starting:
		p.spawn(cg, w)
		return
	case wr.PID == 0:
		p.step(program.Did{Worker: w.Number, Event: life.Exited{Hint: ", while supervisord was being replaced"}})
		return
	}
	number := w.Number
	a := h.Adoption(p.core.Name, number, wr, p.specOf(cg, w))
	p.workers[number] = newHeld(p.s.Launcher.Adopt(a, p.events(number)))
	shares := cg.Sockets > 0 && !cg.Steered || len(socket.Names(p.generations[cg.Number].lanes)) > 0
	if mayBeHalted(cg, w, shares || cg == p.core.Serving) {
		_ = p.workers[number].Signal(unix.SIGCONT, true) // an error says that it has ended
	}
	p.log.Info("worker is adopted", zap.Int("generation", cg.Number), zap.Int("worker", number), zap.Int("pid", wr.PID),
		zap.String("state", string(w.State)))
}

// mayBeHalted reports whether a supervisord that is gone may have left a worker stopped: for a last look it sends
// SIGSTOP to workers that accept beside others, such as all that go before their generation, and SIGCONT after the
// look. The record has neither. A person may have stopped such a worker, too: it continues, because otherwise it would
// obey nothing of its stop plan but KILL. All other workers stay as they are.
func mayBeHalted(g *program.Generation, w *program.Worker, beside bool) bool {
	goes := w.State == program.Finishing || w.State == program.Stopping
	return goes && (beside || w.Since.Before(g.Retired))
}

// dropSockets closes the inherited sockets that no listener has taken. The store loses them with the next Keep.
func (s *Supervisor) dropSockets() {
	for _, i := range s.table.Unclaimed() {
		if !i.Ours {
			s.Log.Warn("an inherited socket belongs to no listener; it is closed", zap.String("name", i.Name),
				zap.String("address", i.Address))
		}
		unix.Close(i.FD)
	}
}

// Rehearse returns an error if this binary cannot continue with the record at descriptor fd, or with the descriptors
// that the record lists. It does as much of Restore as changes nothing: the sockets and the workers belong to a
// supervisor that runs. fd stays the caller's.
func Rehearse(fd int) error {
	h, err := record.ReadRehearsal(fd)
	if err != nil {
		return err
	}
	if len(h.Problems) > 0 {
		return h.Problems[0]
	}
	if len(h.Record.Descriptors) > 0 {
		table := socket.NewTable()
		table.Offer(h.Sockets)
		if err := table.Rehearse(h.Record.Lanes()); err != nil {
			return err
		}
	}
	return canContinue(h)
}

// canContinue returns an error if this binary cannot continue with a record that it has read. It changes the record.
func canContinue(h *record.Inheritance) error {
	if err := h.Record.CanEncode(); err != nil {
		return err
	}
	now := time.Now()
	for _, pr := range h.Record.Programs {
		for _, cg := range pr.Core.Generations() {
			g := resourcesOf(cg.Number, pr.Generations[cg.Number])
			for _, w := range cg.Workers {
				if g != nil {
					h.Adoption(pr.Core.Name, w.Number, pr.Workers[w.Number], g.workerSpec(g, cg.Config, w))
				}
			}
		}
		pr.Core.Step(now, program.Tick{}) // it may begin a generation, of which the record has nothing
		pr.Core.Next(now)
		pr.Core.Summary()
	}
	return nil
}

// claimOrphans finds out what each orphan waits for, and reads its output. The table must have taken the sockets
// before.
func (s *Supervisor) claimOrphans() {
	s.orphaned = map[*record.Orphan]func(){}
	s.table.SetOrphans(s.Orphans.Sockets())
	for _, o := range s.Orphans.Serving() {
		if streams := o.Streams(); len(streams) > 0 {
			s.orphaned[o] = s.Launcher.ReadOn(o.PID(), streams, s.outputOf(o))
		}
	}
	s.shareOrphans()
}

// shareOrphans says which programs the orphans serve for, as configured now.
func (s *Supervisor) shareOrphans() {
	s.Orphans.Claim(s.needsOrphan, func(yield func(program string, fd int) bool) {
		for p := range s.programs.all() {
			for _, l := range p.listeners {
				for _, fd := range s.table.FDs(l.Key()) {
					if !yield(p.core.Name, fd) {
						return
					}
				}
			}
		}
	})
	for p := range s.programs.all() {
		if s.Orphans.Serve(p.core.Name) {
			p.step(program.Tick{}) // its listeners stay open
		}
	}
}

// outputOf says where the output of an orphan goes: to the destination of its program's next generation, or to
// supervisord's own streams if the program is gone.
func (s *Supervisor) outputOf(o *record.Orphan) (spec worker.Spec) {
	p := s.programs[o.Program]
	if p == nil {
		return spec
	}
	if p.capture.orphans == nil {
		p.capture.orphans = &snapshot.Snapshot{Credential: o.Credential()}
		p.capture.orphans.UseLogs(p.core.Config, p.capture.errors)
	}
	spec.Stdout, spec.Stderr = p.capture.orphans.Stdout, p.capture.orphans.Stderr
	if log := p.capture.of(p.core.Config); log != nil {
		log.UseFile(p.capture.orphans.LogFile(p.core.Config))
		spec.Captured = log.Of(0)
	}
	return spec
}

// releaseOrphans ends the orphans that are not needed any more. Each goes through the stop plan of its program as that
// is configured now, because the plan that the process was started with died with its supervisor. If the program is
// gone, the orphan gets the plan of a program that has its sockets. An orphan finishes first what it has, like any old
// worker.
func (s *Supervisor) releaseOrphans() {
	released := s.Orphans.Release(s.needsOrphan, s.staysBeside)
	for p := range s.programs.all() {
		if len(released) > 0 {
			p.glance() // its orphans are counted
		}
	}
	for _, o := range released {
		stop, drain := record.DefaultStop(), config.DrainPolicy{}
		names := o.Claimants()
		if i := slices.IndexFunc(names, func(name string) bool { return s.programs[name] != nil }); i >= 0 {
			p := s.programs[names[i]]
			if len(p.core.Config.Stop.Steps) > 0 {
				stop = p.core.Config.Stop
			}
			if !s.stopping() {
				drain = p.core.Config.Drain
			}
		}
		h := s.handOf(o, drain.Silence, stop)
		s.later(func() func() {
			o.Await(func(age time.Duration) (bool, time.Duration) {
				look, err := h.look([]int{o.PID()})
				return err == nil && look.Quiet(), look.Next(age)
			}, drain.Timeout)
			return func() { s.tellOrphan(o, stop) }
		})
	}
}

// tellOrphan ends an orphan when the record says so: who dies meanwhile tells it no second time.
func (s *Supervisor) tellOrphan(o *record.Orphan, stop config.StopPolicy) {
	s.Orphans.Tell(o)
	s.unsaved = append(s.unsaved, func() {
		s.later(func() func() {
			o.End(stop)
			return func() { s.orphanEnded(o) }
		})
	})
}

// handOf is what an orphan may have in hand now, before it is told to stop as stop says.
func (s *Supervisor) handOf(o *record.Orphan, silence time.Duration, stop config.StopPolicy) *hand {
	h := &hand{left: s.table.LeftOf(o.Sockets()), shared: s.table.NamesOf(o.Sockets()), silence: silence,
		until: time.Now().Add(silence), signal: stop.Steps[0].Signal, group: stop.Group}
	if h.alone = len(h.left) == 0; h.alone {
		h.left = s.table.Beside(o.Sockets())
	} else {
		h.watch = diag.NewWatch(h.left, silence)
	}
	h.replace = !h.alone || len(h.left) == 0 // of TCP sockets that others have all counts, whatever it does at the signal
	return h
}

// staysBeside reports whether an orphan serves beside the workers of a living generation, in a lane that gets nothing
// new once that generation is replaced: it was spawned in the instant of the death, and the record does not know it. To
// stop it before would cost what it has in hand, and it always has something. Where nothing was restored, an orphan is
// of an earlier generation.
func (s *Supervisor) staysBeside(o *record.Orphan) bool {
	p := s.programs[o.Program]
	return s.resumed && p != nil && !p.removed && !s.stopping() && p.core.Goal == program.Run && p.core.Serving != nil &&
		!p.core.Serving.StopFirst() && s.table.InLane(o.Sockets())
}

// orphanEnded forgets an orphan, and ends the reading of its output.
func (s *Supervisor) orphanEnded(o *record.Orphan) {
	s.Orphans.Ended(o)
	if finish := s.orphaned[o]; finish != nil {
		finish()
	}
	s.table.SetOrphans(s.Orphans.Sockets())
	if s.Orphans.Gone() {
		for p := range s.programs.all() {
			p.closeFiles(p.capture.orphans)
			p.capture.orphans = nil
		}
	}
}

// needsOrphan reports whether a program is meant to serve, if only until another one does, and does not yet or cannot
// be sent its new connections.
func (s *Supervisor) needsOrphan(name string) bool {
	p := s.programs[name]
	if p == nil || p.removed && p.ending == nil || s.stopping() {
		return false
	}
	state := p.core.State()
	return state == program.StartingUp || state == program.Waiting || p.astray != "" && p.core.Goal == program.Run
}
