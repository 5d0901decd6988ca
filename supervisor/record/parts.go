package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
)

// A record has a part for what belongs to no program, under headKey, and for each program
//
//	NAME                the state of its core with its generations, but for what follows; a name has no slash
//	NAME/config/N       a configuration, which generations share; the log numbers them
//	NAME/generation/N   what was looked up and opened for a generation, and the number of its configuration
//	NAME/reload/N       the record of the reload to this generation
//	NAME/worker/N       a worker: as the core knows it, and its process
//
// So a step writes the core, and of the rest what is another value than before. A worker that has become ready, for
// one, makes a batch of two parts:
//
//	{"Parts":{"web":{"Name":"web",…},"web/worker/7":{"number":7,"state":"ready",…,"Process":{"PID":4711,…}}}}
//
// A reader needs no order among the parts: it collects the last text of each, and joins them by their numbers.
const (
	headKey        = "/"
	configPart     = "config"
	generationPart = "generation"
	reloadPart     = "reload"
	workerPart     = "worker"
)

func partKey(program, kind string, number int) string {
	return program + "/" + kind + "/" + strconv.Itoa(number)
}

// written is what a log says of one program, in a form that is fast to compare: what is only replaced, never changed,
// by its pointer. Only the core is compared as text: nearly every step changes it, so the text is needed anyway. It
// lives as long as the log, and is filled by the same functions that write the parts.
type written struct {
	core        []byte // its part
	numbers     map[*config.Program]int
	configs     map[int]*config.Program
	generations map[int]generationState
	reloads     map[int]*program.ReloadRecord
	workers     map[int]workerState
}

func newWritten() *written {
	return &written{
		numbers: map[*config.Program]int{}, configs: map[int]*config.Program{}, generations: map[int]generationState{},
		reloads: map[int]*program.ReloadRecord{}, workers: map[int]workerState{},
	}
}

// number is the number of a configuration in the log; 0: there is no configuration.
func (w *written) number(c *config.Program) int {
	if c != nil && w.numbers[c] == 0 {
		last := 0
		for _, n := range w.numbers {
			last = max(last, n)
		}
		w.numbers[c] = last + 1
	}
	return w.numbers[c]
}

// generationState is what changes about the part of a generation: the lanes are only replaced together.
type generationState struct {
	config   int
	snapshot *snapshot.Snapshot
	lanes    **socket.Lane
}

// workerState is a worker as the core knows it, and the turn of its process.
type workerState struct {
	program.Worker
	Generation int
	turn       int
}

// changes are programs that may have changed, by name, each with the numbers of its workers that have.
type changes map[string][]int

// differing returns the numbers of what is not as it was, or is not there any more. It makes a map only if something is
// gone: a thousand workers are compared at each step.
func differing[T comparable](was map[int]T, is iter.Seq2[int, T]) (numbers []int) {
	known := 0
	for n, now := range is {
		before, has := was[n]
		if has {
			known++
		}
		if !has || before != now {
			numbers = append(numbers, n)
		}
	}
	if known == len(was) {
		return numbers
	}
	there := maps.Collect(is)
	for n := range was {
		if _, has := there[n]; !has {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// put writes the parts of this kind with these numbers as they are now, or takes them out.
func put[T comparable](l *logWriter, name, kind string, numbers []int, was map[int]T, is iter.Seq2[int, T],
	part func(number int, now T) any) {
	if len(numbers) == 0 {
		return
	}
	there, wanted := make(map[int]T, len(numbers)), make(map[int]bool, len(numbers))
	for _, n := range numbers {
		wanted[n] = true
	}
	for n, now := range is {
		if wanted[n] {
			there[n] = now
		}
	}
	for _, n := range numbers {
		key := partKey(name, kind, n)
		if now, has := there[n]; has {
			was[n] = now
			l.put(key, l.encode(part(n, now)))
		} else {
			delete(was, n)
			l.put(key, nil)
		}
	}
}

// putDiffering writes the parts of this kind that differ from what was written.
func putDiffering[T comparable](l *logWriter, name, kind string, was map[int]T, is iter.Seq2[int, T],
	part func(number int, now T) any) {
	put(l, name, kind, differing(was, is), was, is, part)
}

// workerStates calls yield with the workers of a program by their numbers. p is nil for a program that is gone.
func (p *ProgramRecord) workerStates(yield func(int, workerState) bool) {
	if p == nil {
		return
	}
	for w, g := range p.Core.Workers() {
		turn := 0
		if p.Held != nil {
			_, turn = p.Held(w.Number)
		}
		if !yield(w.Number, workerState{*w, g.Number, turn}) {
			return
		}
	}
}

// The parts. What a part of its own has, the core says nothing of when it is encoded.
type (
	corePart struct {
		*program.Program
		Config    int               // its number
		Candidate int               `json:",omitempty"`
		Slots     map[int]slotsPart `json:",omitempty"` // by generation

		Listeners []socket.Resolved
		Removed   bool `json:",omitempty"`
	}

	slotsPart struct {
		Count  int
		Marked map[int]program.Slot `json:",omitempty"` // those that are not zero: most have nothing to remember
	}

	generationRecordPart struct {
		Config int // its number
		GenerationRecord
	}

	workerRecordPart struct {
		workerState
		Process WorkerRecord
	}
)

// putWhole writes a whole record: head, whose programs do not count, and programs. The log has nothing else yet.
func (l *logWriter) putWhole(head *Record, programs iter.Seq[*ProgramRecord]) error {
	l.begin(recordVersion, nil)
	l.putHead(head)
	for p := range programs {
		l.putCore(p)
		for n, w := range p.workerStates {
			l.programs[p.Core.Name].workers[n] = w
			l.put(partKey(p.Core.Name, workerPart, n), l.encode(workerRecordPart{w, p.worker(n)}))
			if err := l.split(); err != nil {
				return err
			}
		}
		if err := l.split(); err != nil {
			return err
		}
	}
	err := l.commit(true)
	l.base = l.end
	return err
}

// batchSize is how large a batch of a whole record grows, in bytes, so that its text need not fit into memory as a
// whole.
const batchSize = 32 << 10

// split writes the batch so far if it is large, and begins another one.
func (l *logWriter) split() error {
	if l.text.Len() < batchSize {
		return nil
	}
	if err := l.commit(false); err != nil {
		return err
	}
	l.begin(0, nil)
	return nil
}

// putChanged writes the parts of these programs that differ from what was written last, as one batch: a death in the
// middle leaves all of them as they were. Nothing is written if nothing differs.
func (l *logWriter) putChanged(src Predecessor, c changes) error {
	var gone []string
	for name := range c {
		if l.programs[name] != nil && src.Program(name) == nil {
			gone = append(gone, name)
			delete(l.programs, name)
		}
	}
	l.begin(0, gone)
	l.putHead(headOf(src))
	for name, workers := range c {
		if p := src.Program(name); p != nil {
			l.putCore(p)
			l.putWorkers(p, workers)
		}
	}
	if l.empty && len(gone) == 0 {
		return l.err
	}
	return l.commit(true)
}

// putHead writes the part that belongs to no program. A new clock reading alone does not count as a change.
func (l *logWriter) putHead(r *Record) {
	head := *r
	head.Programs, head.Clock = nil, clockReading{}
	if text := l.encode(head); !bytes.Equal(text, l.head) {
		l.head = text
		head.Clock = r.Clock
		l.put(headKey, l.encode(head))
	}
}

// putCore writes a program without its workers.
func (l *logWriter) putCore(p *ProgramRecord) {
	name, w := p.Core.Name, l.programs[p.Core.Name]
	if w == nil {
		w = newWritten()
		l.programs[name] = w
	}
	core := corePart{Program: p.Core, Config: w.number(p.Core.Config), Candidate: w.number(p.Core.Candidate),
		Slots: map[int]slotsPart{}, Listeners: p.Listeners, Removed: p.Removed}
	configs := map[int]*config.Program{core.Config: p.Core.Config, core.Candidate: p.Core.Candidate}
	generations := map[int]generationState{}
	for _, g := range p.Core.Generations() {
		state := generationState{config: w.number(g.Config), snapshot: p.Generations[g.Number].Snapshot}
		if lanes := p.Generations[g.Number].Lanes; len(lanes) > 0 {
			state.lanes = &lanes[0]
		}
		configs[state.config], generations[g.Number] = g.Config, state
		core.Slots[g.Number] = slotsPart{len(g.Slots), marked(g)}
	}
	delete(configs, 0)
	putDiffering(l, name, configPart, w.configs, maps.All(configs), func(_ int, c *config.Program) any { return c })
	maps.DeleteFunc(w.numbers, func(_ *config.Program, n int) bool { return configs[n] == nil })
	putDiffering(l, name, generationPart, w.generations, maps.All(generations), func(n int, s generationState) any {
		return generationRecordPart{s.config, p.Generations[n]}
	})
	putDiffering(l, name, reloadPart, w.reloads, func(yield func(int, *program.ReloadRecord) bool) {
		for _, r := range p.Core.Reloads {
			if !yield(r.Generation, r) {
				return
			}
		}
	}, func(_ int, r *program.ReloadRecord) any { return r })
	if text := l.encode(core); !bytes.Equal(text, w.core) {
		w.core = text
		l.put(name, text)
	}
}

// marked returns the slots of a generation in which something is remembered.
func marked(g *program.Generation) (marked map[int]program.Slot) {
	for i, s := range g.Slots {
		if s == (program.Slot{}) {
			continue
		}
		if marked == nil {
			marked = map[int]program.Slot{}
		}
		marked[i] = s
	}
	return marked
}

// putWorkers writes these workers of a program as they are now.
func (l *logWriter) putWorkers(p *ProgramRecord, numbers []int) {
	put(l, p.Core.Name, workerPart, numbers, l.programs[p.Core.Name].workers, p.workerStates,
		func(n int, w workerState) any { return workerRecordPart{w, p.worker(n)} })
}

// programParts are the parts of one program.
type programParts struct {
	core        *corePart
	configs     map[int]*config.Program
	generations map[int]*generationRecordPart
	reloads     map[int]*program.ReloadRecord
	workers     map[int]*workerRecordPart
}

func newProgramParts() *programParts {
	return &programParts{
		core: &corePart{Program: &program.Program{}}, configs: map[int]*config.Program{},
		generations: map[int]*generationRecordPart{}, reloads: map[int]*program.ReloadRecord{},
		workers: map[int]*workerRecordPart{},
	}
}

// record puts a record together.
func (all parts) record() (*Record, error) {
	r, programs := &Record{}, map[string]*programParts{}
	for key, text := range all {
		var err error
		if key == headKey {
			err = json.Unmarshal(text, r)
		} else {
			name, rest, _ := strings.Cut(key, "/")
			if programs[name] == nil {
				programs[name] = newProgramParts()
			}
			err = programs[name].take(rest, text)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read part %s of the record: %w", key, err)
		}
	}
	r.Programs = nil
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		p, err := programs[name].join(name)
		if err != nil {
			return nil, fmt.Errorf("cannot use the record: program %s: %w", name, err)
		}
		r.Programs = append(r.Programs, *p)
	}
	return r, nil
}

// take decodes the part under a key, which is "" for the core.
func (p *programParts) take(key string, text []byte) error {
	if key == "" {
		return json.Unmarshal(text, p.core)
	}
	kind, number, _ := strings.Cut(key, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	switch kind {
	case configPart:
		return decodePart(p.configs, n, text)
	case generationPart:
		return decodePart(p.generations, n, text)
	case reloadPart:
		return decodePart(p.reloads, n, text)
	case workerPart:
		return decodePart(p.workers, n, text)
	}
	return fmt.Errorf("unknown kind %q", kind)
}

func decodePart[T any](into map[int]*T, number int, text []byte) error {
	into[number] = new(T)
	return json.Unmarshal(text, into[number])
}

// join puts the record of a program together. The text may come from a damaged memfd or another version, so join and
// check refuse what putCore and putWorkers never write.
func (p *programParts) join(name string) (*ProgramRecord, error) {
	if p.core.Program == nil || p.core.Name != name {
		return nil, errors.New("its state is missing")
	}
	core := p.core.Program
	r := &ProgramRecord{Core: core, Listeners: p.core.Listeners, Removed: p.core.Removed,
		Generations: map[int]GenerationRecord{}, Workers: map[int]WorkerRecord{}}
	core.Config, core.Candidate = p.configs[p.core.Config], p.configs[p.core.Candidate]
	if slices.Contains(core.Draining, nil) {
		return nil, errors.New("a generation is missing")
	}
	for _, g := range core.Generations() {
		if part := p.generations[g.Number]; part != nil {
			g.Config, r.Generations[g.Number] = p.configs[part.Config], part.GenerationRecord
		}
		slots := p.core.Slots[g.Number]
		g.Slots = make([]program.Slot, min(max(0, slots.Count), maxSlots))
		for i, s := range slots.Marked {
			if i >= 0 && i < len(g.Slots) {
				g.Slots[i] = s
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.reloads)) {
		if core.Reloads = append(core.Reloads, p.reloads[n]); p.reloads[n].Generation != n {
			return nil, fmt.Errorf("the record of reload %d is of another one", n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.workers)) {
		w := p.workers[n]
		g := core.Generation(w.Generation)
		if w.Number != n || g == nil {
			return nil, fmt.Errorf("worker %d has no generation", n)
		}
		g.Workers = append(g.Workers, &w.Worker)
		r.Workers[n] = w.Process
	}
	return r, nil
}

// maxSlots is more than a generation ever has.
const maxSlots = 1 << 20
