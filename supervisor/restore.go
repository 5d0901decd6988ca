package supervisor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// handoverVariable names the memfd with the state, for an image that was executed in the place of another one.
const handoverVariable = "SUPERVISORD_HANDOVER"

// The names of the memfds in the file-descriptor store: two, so that one is always whole.
const (
	stateFirst  = "state.a"
	stateSecond = "state.b"
)

// Handover is what this process was started with: sockets, and what a supervisor before it left.
type Handover struct {
	record   *Record
	upgrade  bool // by execve, from the image before this one
	sequence uint64
	memfds   map[string]int   // of the file-descriptor store
	workers  map[string]int   // the workers' descriptors, by workerFD
	sockets  []inherit.Socket // for the table
	gone     string           // why a newer image gave its place back
	problems []error          // what is not as it should be, and does not keep anybody from going on
	extra    map[string]int   // what only the caller knows what to do with: the pid file, …
}

// ReadHandover reads what environ (as os.Environ gives it) says that this process, pid, was started with. It changes nothing
// but the close-on-exec flags. A state that cannot be read is an error: the caller decides who goes on.
func ReadHandover(environ []string, pid int) (*Handover, error) {
	h := newHandover()
	if value := getenv(environ, handoverVariable); value != "" {
		return h, h.readUpgrade(value, environ)
	}
	found, err := inherit.FromEnvironment(environ, pid)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		h.sort(i)
	}
	h.readStore()
	return h, nil
}

func newHandover() *Handover {
	return &Handover{memfds: map[string]int{}, workers: map[string]int{}, extra: map[string]int{}}
}

func getenv(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// ours reports whether a descriptor of this name was put into the store by a supervisor, and not by a socket unit.
func ours(name string) bool {
	return name == stateFirst || name == stateSecond || socket.Exported(name) || strings.HasPrefix(name, workerFDPrefix) || strings.HasPrefix(name, extraPrefix)
}

// sort puts a descriptor where it belongs, by its name.
func (h *Handover) sort(i inherit.Socket) {
	switch {
	case i.Name == stateFirst, i.Name == stateSecond:
		h.memfds[i.Name] = i.FD
	case strings.HasPrefix(i.Name, workerFDPrefix):
		h.workers[i.Name] = i.FD
	case strings.HasPrefix(i.Name, extraPrefix):
		h.extra[strings.TrimPrefix(i.Name, extraPrefix)] = i.FD
	default:
		h.sockets = append(h.sockets, i)
	}
}

func (h *Handover) readUpgrade(value string, environ []string) error {
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return fmt.Errorf("%s=%s is not the number of a descriptor", handoverVariable, value)
	}
	unix.CloseOnExec(fd)
	text, err := readAll(fd)
	if err != nil {
		return fmt.Errorf("cannot read the state: %w", err)
	}
	h.upgrade, h.gone = true, GoneBack(environ)
	return h.decode(text)
}

// decode reads the record of an image that executes this one, or tries it, and takes the descriptors that it names.
func (h *Handover) decode(text []byte) (err error) {
	if h.record, h.sequence, err = decodeRecord(text); err != nil {
		return err
	}
	for name, fd := range h.record.Descriptors {
		i, err := inherit.Examine(fd, name)
		if err != nil {
			h.problems = append(h.problems, err)
			continue
		}
		h.sort(i)
	}
	return nil
}

// Stored counts what systemd keeps for the next start, for systemd.Open; nil: LISTEN_FDNAMES says it.
func (h *Handover) Stored() map[string]int {
	switch {
	case !h.upgrade:
		return nil
	case h.record.Stored != nil:
		return h.record.Stored
	}
	stored := map[string]int{} // the image before did not say: it had asked for everything
	for name := range h.record.Descriptors {
		if ours(name) {
			stored[name] = 1
		}
	}
	return stored
}

// readStore reads the newer one of the two states that the file-descriptor store kept. Without one that can be read the programs
// start anew, on the sockets that were kept; the workers of the supervisor before serve until then.
func (h *Handover) readStore() {
	for _, name := range slices.Sorted(maps.Keys(h.memfds)) {
		text, err := readAll(h.memfds[name])
		if err != nil {
			h.problems = append(h.problems, fmt.Errorf("cannot read the state: %w", err))
			continue
		}
		s, sequence, err := decodeRecord(text)
		switch {
		case errors.Is(err, errNoRecord): // the death came while it was being written: the other one is whole
		case err != nil:
			h.problems = append(h.problems, err)
		case h.record == nil || sequence > h.sequence:
			h.record, h.sequence = s, sequence
		}
	}
	h.unblock()
}

// unblock gives the sockets of a socket unit back the O_NONBLOCK that the workers rely on who live on with them: systemd has
// changed it at the start of this process.
func (h *Handover) unblock() {
	if h.record == nil {
		return
	}
	for i := range h.sockets {
		s := &h.sockets[i]
		if ours(s.Name) || s.Network == "" {
			continue
		}
		s.InUse = true
		if err := unix.SetNonblock(s.FD, slices.Contains(h.record.NonBlocking, inode(s.FD))); err != nil {
			h.problems = append(h.problems, fmt.Errorf("cannot set O_NONBLOCK of the inherited socket %s: %w", s.Address, err))
		}
	}
}

// Programs reports whether there are programs to take over.
func (h *Handover) Programs() bool { return h.record != nil }

// Upgrade reports whether the image before this one executed this one in its place.
func (h *Handover) Upgrade() bool { return h.upgrade }

// Settings returns the [supervisor] table that the record has.
func (h *Handover) Settings() config.Supervisor { return h.record.Settings }

// PIDs lists the worker processes that will be adopted, for worker.Expect.
func (h *Handover) PIDs() []int {
	if h.record == nil {
		return nil
	}
	return h.record.pids()
}

// unknown takes the pidfds of processes that the record does not know: forked in the instant in which their supervisor died.
func (h *Handover) unknown() []int {
	known := map[string]bool{}
	if h.record != nil {
		for _, p := range h.record.Programs {
			for _, g := range p.Generations {
				for _, w := range g.Workers {
					known[workerFD(p.Core.Name, w.Number, worker.FDProcess)] = w.PID > 0
				}
			}
		}
	}
	var pidfds []int
	for name, fd := range h.workers {
		if strings.HasSuffix(name, "."+worker.FDProcess) && !known[name] {
			pidfds = append(pidfds, fd)
			delete(h.workers, name)
		}
	}
	return pidfds
}

// Extra returns a descriptor that was handed over under this name, or -1.
func (h *Handover) Extra(name string) int {
	if fd, ok := h.extra[name]; ok {
		return fd
	}
	return -1
}

// Restore takes over what was handed over, in place of Start. The workers are not touched: they are adopted where they are, and
// what was interrupted goes on. Nothing is an error that the workers can do without: a log file, a path, a socket is logged, and
// tried again by a reload or with the next worker. Who fails here leaves them without a supervisor.
func (s *Supervisor) Restore(h *Handover) {
	k := s.keeper
	s.keeper = nil // until all is restored, what could be written down is less than what is there
	defer func() { s.keeper = k }()
	k.inherit(h)
	s.table.Offer(h.sockets)
	h.record.ownListeners()
	s.tellProblems(h)
	s.restoreListeners(h.record)
	for _, ps := range h.record.Programs {
		ps.Core.CompleteReloads()
		h.record.rebase(ps.Core, time.Now())
		s.restoreProgram(ps)
	}
	for _, ps := range h.record.Programs {
		s.resume(s.programs[ps.Core.Name], ps, h.workers)
	}
	s.claimOrphans()
	s.drop(h)
	c := &config.Config{Supervisor: h.record.Settings, Files: h.record.Files}
	for _, ps := range h.record.Programs {
		c.Programs = append(c.Programs, *ps.Core.Config)
	}
	s.settings(c)
	s.stumbled = h.gone
	if h.record.Instance != "" {
		s.instance = h.record.Instance
	}
	s.reach()
	if r := h.record.Reload; r != nil {
		s.reload(request{reason: r.Reason, itself: true, all: r.All})
	}
}

// tellProblems logs what is not as it should be of what was handed over.
func (s *Supervisor) tellProblems(h *Handover) {
	for _, err := range h.problems {
		s.Log.Error("what the supervisord before left is not complete", zap.Error(err))
	}
}

// restoreListeners gives every generation that lives the sockets that it had, and then opens what the configuration wants. What it
// cannot have of that the generations do not need.
func (s *Supervisor) restoreListeners(r *Record) {
	for _, err := range s.table.Resume(r.held()) {
		s.Log.Error("a listener is not what it was before; its workers keep the socket that they have, and the next reload tries again", zap.Error(err))
	}
	var newest []socket.Want
	for _, p := range r.Programs {
		for _, l := range p.Listeners {
			if !p.Removed {
				newest = append(newest, socket.Want{Resolved: l, Slots: p.Core.Config.Workers, Together: true})
			}
		}
	}
	s.wantAgain(newest)
	s.dropSockets()
}

// held lists what the generations that live have of listeners.
func (r *Record) held() []socket.Generation {
	var held []socket.Generation
	for _, p := range r.Programs {
		for _, g := range p.Generations {
			if g.Snapshot == nil {
				continue
			}
			serves := p.Core.Serving != nil && p.Core.Serving.Number == g.Number
			for _, l := range g.Listeners {
				held = append(held, socket.Generation{Resolved: l, Claim: socket.ClaimOn(l, g.Claims), Serves: serves})
			}
		}
	}
	return held
}

func (p *ProgramRecord) generation(number int) *GenerationRecord {
	for i := range p.Generations {
		if p.Generations[i].Number == number {
			return &p.Generations[i]
		}
	}
	return nil // impossible: check has looked
}

func (s *Supervisor) restoreProgram(ps ProgramRecord) {
	p := s.newRunner(ps.Core)
	p.listeners, p.removed = ps.Listeners, ps.Removed
	if p.outage.since = ps.DownSince; p.outage.since.After(time.Now()) {
		p.outage.since = time.Now() // the clock has gone back
	}
	for _, cg := range ps.Core.Generations() {
		gs := ps.generation(cg.Number)
		if gs.Snapshot == nil {
			continue // it is prepared anew
		}
		p.generations[cg.Number] = &resources{
			number: cg.Number, listeners: gs.Listeners, claims: gs.Claims, snapshot: gs.Snapshot, abandon: func() {},
		}
	}
	p.keepLogging()
	s.programs[ps.Core.Name] = p
}

// resume adopts the workers of a program and goes on with what was under way.
func (s *Supervisor) resume(p *runner, ps ProgramRecord, fds map[string]int) {
	for _, cg := range p.core.Generations() {
		if p.generations[cg.Number] == nil {
			p.prepare(cg)
			continue
		}
		gs := ps.generation(cg.Number)
		for _, w := range slices.Clone(cg.Workers) {
			s.adopt(p, cg, w, gs.worker(w.Number), fds)
		}
	}
	p.step(program.Tick{})
}

func (g *GenerationRecord) worker(number int) WorkerRecord {
	for _, w := range g.Workers {
		if w.Number == number {
			return w
		}
	}
	return WorkerRecord{Number: number}
}

// adopt makes the process of a worker ours again. One that had no process yet is spawned now, one that has none any more, or none
// that could be handed over, is gone.
func (s *Supervisor) adopt(p *runner, cg *program.Generation, w *program.Worker, ws WorkerRecord, fds map[string]int) {
	if ws.PID == 0 && w.State == program.Starting {
		p.spawn(cg, w)
		return
	}
	if ws.PID == 0 {
		p.step(program.Exited{Worker: w.Number, Exit: program.Exit{Reason: "ended while supervisord was being replaced"}})
		return
	}
	p.told[w.Number] = ws.Told
	number := w.Number
	a := adoption(p.core.Name, ws, p.generations[cg.Number].workerSpec(s.table, cg.Config, w), fds)
	p.workers[number] = s.Launcher.Adopt(a, p.events(number))
	s.Log.Info("worker is adopted", zap.String("program", p.core.Name), zap.Int("generation", cg.Number),
		zap.Int("worker", number), zap.Int("pid", ws.PID), zap.String("state", string(w.State)))
}

// adoption takes the descriptors of a worker out of those that were handed over.
func adoption(program string, ws WorkerRecord, spec worker.Spec, fds map[string]int) worker.Adoption {
	a := worker.Adoption{State: ws.State, Descriptors: map[string]int{}, Spec: spec}
	for _, kind := range workerFDKinds {
		name := workerFD(program, ws.Number, kind)
		if fd, ok := fds[name]; ok {
			a.Descriptors[kind] = fd
			delete(fds, name)
		}
	}
	return a
}

// drop closes what nobody wants any more. The keeper takes it out of the store.
func (s *Supervisor) drop(h *Handover) {
	s.dropSockets()
	for _, fd := range h.workers {
		unix.Close(fd)
	}
}

// dropSockets closes the inherited sockets that no listener has taken.
func (s *Supervisor) dropSockets() {
	for _, i := range s.table.Leftover() {
		if !i.Ours {
			s.Log.Warn("an inherited socket belongs to no listener; it is closed", zap.String("name", i.Name), zap.String("address", i.Address))
		}
		unix.Close(i.FD)
	}
}
