package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
)

// A record has a part for what belongs to no program, under headKey, and three kinds of parts for each program:
//
//	NAME                the state of its core with its generations, but for what follows; a name has no slash
//	NAME/worker/NUMBER  a worker: as the core knows it, and its process
//	NAME/value/HASH     what is only replaced as a whole: a configuration, which generations share, what was looked up
//	                    or opened for a generation, a reload. The core names it by a hash of its text
//
// So a step writes the core, the workers that it concerned, and the values that are new.
const (
	headKey    = "/"
	workerPart = "worker"
	valuePart  = "value"
)

func partKey(program, kind, number string) string { return program + "/" + kind + "/" + number }

// written is what a log says of one program. What has changed is found by comparing with it.
type written struct {
	core    []byte // its part
	values  map[any]*writtenValue
	round   int // counts how often the core was compared
	workers map[int]coreWorker
}

// writtenValue is a value in the log, by its pointer: it is only replaced, unless it is a reload.
type writtenValue struct {
	hash   string                // names it in the log: what is replaced by the same is written once
	round  int                   // in which the core named it last
	reload *program.ReloadRecord // a copy of it
}

// changes are programs that may have changed, by name, each with the numbers of its workers that have.
type changes map[string][]int

// coreWorker is a worker as the core knows it, and how often its process has turned since.
type coreWorker struct {
	program.Worker
	Generation int
	turn       int
}

func newWritten() *written {
	return &written{values: map[any]*writtenValue{}, workers: map[int]coreWorker{}}
}

// differing returns the workers of p that differ from what was written. p is nil for a program that is gone, w for a
// new one.
func (w *written) differing(p *ProgramRecord) (found []int) {
	var was map[int]coreWorker
	if w != nil {
		was = w.workers
	}
	known := 0
	for n, now := range p.coreWorkers {
		before, has := was[n]
		if has {
			known++
		}
		if before != now {
			found = append(found, n)
		}
	}
	if known == len(was) {
		return found
	}
	lives := maps.Collect(p.coreWorkers)
	for n := range was {
		if _, has := lives[n]; !has {
			found = append(found, n)
		}
	}
	return found
}

// coreWorkers calls yield with the workers of a program by their numbers. p is nil for a program that is gone.
func (p *ProgramRecord) coreWorkers(yield func(int, coreWorker) bool) {
	if p == nil {
		return
	}
	for w, g := range p.Core.Workers() {
		turn := 0
		if p.Held != nil {
			_, turn = p.Held(w.Number)
		}
		if !yield(w.Number, coreWorker{*w, g.Number, turn}) {
			return
		}
	}
}

// The parts. A field of type absent is in parts of its own; a string, or a list of them, names values.
type (
	absent *struct{}

	corePart struct {
		*program.Program
		Config    string
		Candidate string            `json:",omitempty"`
		Serving   *generationPart   `json:",omitempty"`
		Trial     *generationPart   `json:",omitempty"`
		Draining  []*generationPart `json:",omitempty"`
		Reloads   []string          `json:",omitempty"`
		Past      []string          `json:",omitempty"`

		Listeners []socket.Resolved
		Removed   bool      `json:",omitempty"`
		DownSince time.Time `json:",omitzero"`
	}

	generationPart struct {
		*program.Generation
		Config   string
		Snapshot string   `json:",omitempty"`
		Lanes    []string `json:",omitempty"`
		Workers  absent   `json:",omitempty"`
		Slots    int
		Marked   map[int]program.Slot `json:",omitempty"` // the slots that are not zero: most have nothing to remember
	}

	workerRecordPart struct {
		coreWorker
		Process WorkerRecord
	}
)

// putWhole writes a whole record: head, whose programs do not count, and programs. The log has nothing else yet.
func (l *logWriter) putWhole(head *Record, programs iter.Seq[*ProgramRecord]) error {
	l.begin(recordVersion, nil)
	l.putHead(head)
	for p := range programs {
		l.putCore(p)
		for n, w := range p.coreWorkers {
			l.putWorker(p, n, w)
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

// putChanged writes the parts of these programs that differ from what was written last.
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

// putCore writes a program without its workers, and those of its values that the log does not have.
func (l *logWriter) putCore(p *ProgramRecord) {
	name, was := p.Core.Name, l.programs[p.Core.Name]
	if was == nil {
		was = newWritten()
		l.programs[name] = was
	}
	was.round++
	v := valueWriter{l, name, was}
	core := corePart{
		Program: p.Core, Listeners: p.Listeners, Removed: p.Removed, DownSince: p.DownSince,
		Config: v.config(p.Core.Config), Candidate: v.config(p.Core.Candidate),
	}
	for _, g := range p.Core.Generations() {
		part := v.generation(g, p.Generations[g.Number])
		switch g {
		case p.Core.Serving:
			core.Serving = part
		case p.Core.Trial:
			core.Trial = part
		default:
			core.Draining = append(core.Draining, part)
		}
	}
	for _, r := range p.Core.Reloads {
		core.Reloads = append(core.Reloads, v.reload(r))
	}
	for i := range p.Core.Past {
		core.Past = append(core.Past, v.put(&p.Core.Past[i]))
	}
	if text := l.encode(core); !bytes.Equal(text, was.core) {
		was.core = text
		l.put(name, text)
		v.drop()
	}
}

// valueWriter puts the values of a program into the log.
type valueWriter struct {
	log     *logWriter
	program string
	was     *written
}

// put returns the hash of a value, and writes it if the log does not have it.
func (v valueWriter) put(value any) string {
	e := v.was.values[value]
	if e == nil {
		text := v.log.encode(value)
		sum := sha256.Sum256(text)
		e = &writtenValue{hash: hex.EncodeToString(sum[:8])}
		if !v.has(e.hash) {
			v.log.put(partKey(v.program, valuePart, e.hash), text)
		}
		v.was.values[value] = e
	}
	e.round = v.was.round
	return e.hash
}

func (v valueWriter) has(hash string) bool {
	for _, e := range v.was.values {
		if e.hash == hash {
			return true
		}
	}
	return false
}

func (v valueWriter) reload(r *program.ReloadRecord) string {
	if e := v.was.values[r]; e != nil && *e.reload != *r {
		v.remove(r)
	}
	hash := v.put(r)
	if e := v.was.values[r]; e.reload == nil {
		e.reload = r.Copy()
	}
	return hash
}

func (v valueWriter) config(c *config.Program) string {
	if c == nil {
		return ""
	}
	return v.put(c)
}

func (v valueWriter) generation(g *program.Generation, r GenerationRecord) *generationPart {
	part := &generationPart{Generation: g, Config: v.config(g.Config), Slots: len(g.Slots), Marked: marked(g)}
	if r.Snapshot != nil {
		part.Snapshot = v.put(r.Snapshot)
	}
	for _, ln := range r.Lanes {
		part.Lanes = append(part.Lanes, v.put(ln))
	}
	return part
}

// drop takes the values that the core has ceased to name out of the log.
func (v valueWriter) drop() {
	for value, e := range v.was.values {
		if e.round != v.was.round {
			v.remove(value)
		}
	}
}

// remove takes a value out of the log, unless another one is the same.
func (v valueWriter) remove(value any) {
	hash := v.was.values[value].hash
	delete(v.was.values, value)
	if !v.has(hash) {
		v.log.put(partKey(v.program, valuePart, hash), nil)
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
	if len(numbers) == 0 {
		return
	}
	lives := maps.Collect(p.coreWorkers)
	for _, n := range numbers {
		if w, has := lives[n]; has {
			l.putWorker(p, n, w)
			continue
		}
		delete(l.programs[p.Core.Name].workers, n)
		l.put(partKey(p.Core.Name, workerPart, strconv.Itoa(n)), nil)
	}
}

func (l *logWriter) putWorker(p *ProgramRecord, n int, w coreWorker) {
	l.programs[p.Core.Name].workers[n] = w
	l.put(partKey(p.Core.Name, workerPart, strconv.Itoa(n)), l.encode(workerRecordPart{w, p.worker(n)}))
}

// programParts are the parts of one program.
type programParts struct {
	ProgramRecord
	core    *corePart
	values  map[string]json.RawMessage
	configs map[string]*config.Program
	workers map[int]*workerRecordPart
	err     error // of the first value that could not be read
}

func newProgramParts() *programParts {
	return &programParts{
		ProgramRecord: ProgramRecord{Generations: map[int]GenerationRecord{}, Workers: map[int]WorkerRecord{}},
		values:        map[string]json.RawMessage{}, configs: map[string]*config.Program{},
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
		p := programs[name]
		if err := p.join(name); err != nil {
			return nil, fmt.Errorf("cannot use the record: program %s: %w", name, err)
		}
		r.Programs = append(r.Programs, p.ProgramRecord)
	}
	return r, nil
}

// take decodes the part under a key, which is "" for the program itself. A value is decoded where it is named.
func (p *programParts) take(key string, text []byte) error {
	kind, number, _ := strings.Cut(key, "/")
	switch kind {
	case "":
		p.core = &corePart{Program: &program.Program{}}
		return json.Unmarshal(text, p.core)
	case valuePart:
		p.values[number] = text
		return nil
	case workerPart:
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		p.workers[n] = new(workerRecordPart)
		return json.Unmarshal(text, p.workers[n])
	}
	return fmt.Errorf("unknown kind %q", kind)
}

// join puts the record of a program together.
func (p *programParts) join(name string) error {
	if p.core == nil || p.core.Program == nil || p.core.Name != name {
		return errors.New("its state is missing")
	}
	core := p.core.Program
	p.Core, p.Listeners, p.Removed, p.DownSince = core, p.core.Listeners, p.core.Removed, p.core.DownSince
	core.Config, core.Candidate = p.config(p.core.Config), p.config(p.core.Candidate)
	core.Serving, core.Trial = p.generation(p.core.Serving), p.generation(p.core.Trial)
	for _, g := range p.core.Draining {
		core.Draining = append(core.Draining, p.generation(g))
	}
	if slices.Contains(core.Draining, nil) ||
		core.Serving == nil && p.core.Serving != nil || core.Trial == nil && p.core.Trial != nil {
		return errors.New("a generation is missing")
	}
	for _, hash := range p.core.Reloads {
		core.Reloads = append(core.Reloads, value[program.ReloadRecord](p, hash))
	}
	for _, hash := range p.core.Past {
		core.Past = append(core.Past, *value[program.PastReload](p, hash))
	}
	for _, n := range slices.Sorted(maps.Keys(p.workers)) {
		w := p.workers[n]
		g := core.Generation(w.Generation)
		if w.Number != n || g == nil {
			return fmt.Errorf("worker %d has no generation", n)
		}
		g.Workers = append(g.Workers, &w.Worker)
		p.Workers[n] = w.Process
	}
	return p.err
}

// value decodes a value: each time anew, because two that are the same now need not stay so.
func value[T any](p *programParts, hash string) *T {
	v := new(T)
	if err := json.Unmarshal(p.values[hash], v); err != nil && p.err == nil {
		p.err = fmt.Errorf("cannot read value %q: %w", hash, err)
	}
	return v
}

// config decodes a configuration once: it never changes.
func (p *programParts) config(hash string) *config.Program {
	if hash != "" && p.configs[hash] == nil {
		p.configs[hash] = value[config.Program](p, hash)
	}
	return p.configs[hash]
}

// maxSlots is more than a generation ever has.
const maxSlots = 1 << 20

// generation returns a generation of the core without its workers, or nil.
func (p *programParts) generation(g *generationPart) *program.Generation {
	if g == nil || g.Generation == nil || g.Slots < 0 || g.Slots > maxSlots {
		return nil
	}
	core := g.Generation
	core.Config, core.Slots = p.config(g.Config), make([]program.Slot, g.Slots)
	for i, s := range g.Marked {
		if i >= 0 && i < len(core.Slots) {
			core.Slots[i] = s
		}
	}
	r := GenerationRecord{}
	if g.Snapshot != "" {
		r.Snapshot = value[snapshot.Snapshot](p, g.Snapshot)
	}
	for _, hash := range g.Lanes {
		r.Lanes = append(r.Lanes, value[socket.Lane](p, hash))
	}
	p.Generations[core.Number] = r
	return core
}
