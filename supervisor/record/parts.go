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
)

// A record has a part for what belongs to no program, under headKey, and one for each program, under its name, which
// has no slash: the state of the core, its generations included. Beside it, under "NAME/KIND/NUMBER", is what would
// make that too large to be written at every step: the workers, what was looked up for a generation, the history, and
// the configurations, which generations share.
const (
	headKey        = "/"
	configPart     = "config" // its number is a hash of it
	generationPart = "generation"
	workerPart     = "worker"
	reloadPart     = "reload"
	pastPart       = "past"
)

func partKey(program, kind, number string) string { return program + "/" + kind + "/" + number }

// written is what a log says of one program. What has changed is found by comparing with it.
type written struct {
	core        []byte                     // its part
	configs     map[*config.Program]string // their keys; a configuration never changes
	generations map[int]GenerationRecord
	workers     map[int]coreWorker
	reloads     map[int]program.ReloadRecord
	past        map[int]program.PastReload
}

// coreWorker is a worker as the core knows it. What its process is, is compared when that has done something.
type coreWorker struct {
	program.Worker
	Generation int
}

func newWritten() *written {
	return &written{
		configs: map[*config.Program]string{}, generations: map[int]GenerationRecord{}, workers: map[int]coreWorker{},
		reloads: map[int]program.ReloadRecord{}, past: map[int]program.PastReload{},
	}
}

// differing adds the workers of p that are not what was written. p is nil for a program that is gone, w for one that
// is new.
func (w *written) differing(p *ProgramRecord, found map[int]struct{}) {
	var was map[int]coreWorker
	if w != nil {
		was = w.workers
	}
	core := &program.Program{}
	if p != nil {
		core = p.Core
	}
	known := 0
	for n, now := range coreWorkers(core) {
		before, has := was[n]
		if has {
			known++
		}
		if before != now {
			found[n] = struct{}{}
		}
	}
	if known == len(was) {
		return
	}
	lives := maps.Collect(coreWorkers(core))
	for n := range was {
		if _, has := lives[n]; !has {
			found[n] = struct{}{}
		}
	}
}

// coreWorkers yields the workers of a program by their numbers.
func coreWorkers(core *program.Program) iter.Seq2[int, coreWorker] {
	return func(yield func(int, coreWorker) bool) {
		for w, g := range core.Workers() {
			if !yield(w.Number, coreWorker{*w, g.Number}) {
				return
			}
		}
	}
}

// The parts. A field of type absent is in a part of its own.
type (
	absent *struct{}

	corePart struct {
		*program.Program
		Config    string
		Candidate string                `json:",omitempty"`
		Serving   *generationCorePart   `json:",omitempty"`
		Trial     *generationCorePart   `json:",omitempty"`
		Draining  []*generationCorePart `json:",omitempty"`
		Reloads   absent                `json:",omitempty"`
		Past      absent                `json:",omitempty"`

		Listeners []socket.Resolved
		Removed   bool      `json:",omitempty"`
		DownSince time.Time `json:",omitzero"`
	}

	generationCorePart struct {
		*program.Generation
		Config  string
		Workers absent `json:",omitempty"`
		Slots   int
		Marked  map[int]program.Slot `json:",omitempty"` // the slots that are not zero: most have nothing to remember
	}

	workerCorePart struct {
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
		for n, w := range coreWorkers(p.Core) {
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

// putChanged writes what is not as it was written last.
func (l *logWriter) putChanged(src Source, t *touched) error {
	var gone []string
	for name := range t.programs {
		if l.programs[name] != nil && src.Program(name) == nil {
			gone = append(gone, name)
			delete(l.programs, name)
		}
	}
	l.begin(0, gone)
	l.putHead(headOf(src))
	for name, t := range t.programs {
		p := src.Program(name)
		if p == nil {
			continue
		}
		if t.stepped || l.programs[name] == nil {
			l.putCore(p)
		}
		l.putWorkers(p, t.workers)
	}
	if l.empty && len(gone) == 0 {
		return l.err
	}
	return l.commit(true)
}

// putHead writes the part that belongs to no program. Its clock alone changes nothing.
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
	name, was := p.Core.Name, l.programs[p.Core.Name]
	if was == nil {
		was = newWritten()
		l.programs[name] = was
	}
	core := corePart{
		Program: p.Core, Listeners: p.Listeners, Removed: p.Removed, DownSince: p.DownSince,
		Config: l.config(name, was, p.Core.Config), Candidate: l.config(name, was, p.Core.Candidate),
	}
	for _, g := range p.Core.Generations() {
		part := &generationCorePart{
			Generation: g, Config: l.config(name, was, g.Config), Slots: len(g.Slots), Marked: marked(g),
		}
		switch g {
		case p.Core.Serving:
			core.Serving = part
		case p.Core.Trial:
			core.Trial = part
		default:
			core.Draining = append(core.Draining, part)
		}
	}
	if text := l.encode(core); !bytes.Equal(text, was.core) {
		was.core = text
		l.put(name, text)
		l.dropConfigs(p.Core, was)
	}
	putAll(l, name, generationPart, was.generations, func(yield func(int, GenerationRecord) bool) {
		for _, g := range p.Core.Generations() {
			if !yield(g.Number, p.Generations[g.Number]) {
				return
			}
		}
	}, GenerationRecord.same)
	putAll(l, name, reloadPart, was.reloads, func(yield func(int, program.ReloadRecord) bool) {
		for _, r := range p.Core.Reloads {
			if !yield(r.Generation, *r) {
				return
			}
		}
	}, func(a, b program.ReloadRecord) bool { return a == b })
	putAll(l, name, pastPart, was.past, func(yield func(int, program.PastReload) bool) {
		for _, r := range p.Core.Past {
			if !yield(r.Generation, r) {
				return
			}
		}
	}, func(a, b program.PastReload) bool { return a == b })
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

// same reports whether nothing has happened to a generation: what is in it is only replaced.
func (g GenerationRecord) same(h GenerationRecord) bool {
	return g.Snapshot == h.Snapshot && slices.Equal(g.Lanes, h.Lanes)
}

// putAll writes what has changed of the parts of one kind, and takes out those that are gone.
func putAll[T any](l *logWriter, name, kind string, was map[int]T, is iter.Seq2[int, T], same func(a, b T) bool) {
	n := 0
	for number, value := range is {
		n++
		if before, has := was[number]; !has || !same(before, value) {
			was[number] = value
			l.put(partKey(name, kind, strconv.Itoa(number)), l.encode(value))
		}
	}
	if n == len(was) {
		return
	}
	lives := maps.Collect(is)
	for number := range was {
		if _, has := lives[number]; !has {
			delete(was, number)
			l.put(partKey(name, kind, strconv.Itoa(number)), nil)
		}
	}
}

// putWorkers writes these workers of a program as they are now.
func (l *logWriter) putWorkers(p *ProgramRecord, numbers map[int]struct{}) {
	if len(numbers) == 0 {
		return
	}
	gone := maps.Clone(numbers)
	for n, w := range coreWorkers(p.Core) {
		if _, is := numbers[n]; is {
			l.putWorker(p, n, w)
			delete(gone, n)
		}
	}
	for n := range gone {
		delete(l.programs[p.Core.Name].workers, n)
		l.put(partKey(p.Core.Name, workerPart, strconv.Itoa(n)), nil)
	}
}

func (l *logWriter) putWorker(p *ProgramRecord, n int, w coreWorker) {
	l.programs[p.Core.Name].workers[n] = w
	l.put(partKey(p.Core.Name, workerPart, strconv.Itoa(n)), l.encode(workerCorePart{w, p.worker(n)}))
}

// config returns the number of a configuration, and writes it if it is not in the log.
func (l *logWriter) config(name string, was *written, c *config.Program) string {
	if c == nil {
		return ""
	}
	number := was.configs[c]
	if number == "" {
		text := l.encode(c)
		sum := sha256.Sum256(text)
		number = hex.EncodeToString(sum[:8])
		if !slices.Contains(slices.Collect(maps.Values(was.configs)), number) {
			l.put(partKey(name, configPart, number), text)
		}
		was.configs[c] = number
	}
	return number
}

// dropConfigs takes the configurations that nothing refers to any more out of the log.
func (l *logWriter) dropConfigs(core *program.Program, was *written) {
	used := map[*config.Program]bool{core.Config: true, core.Candidate: true}
	for _, g := range core.Generations() {
		used[g.Config] = true
	}
	for c, number := range was.configs {
		if used[c] {
			continue
		}
		delete(was.configs, c)
		if !slices.Contains(slices.Collect(maps.Values(was.configs)), number) {
			l.put(partKey(core.Name, configPart, number), nil)
		}
	}
}

// programParts are the decoded parts of one program.
type programParts struct {
	ProgramRecord
	core    *corePart
	configs map[string]*config.Program
	workers map[int]*workerCorePart
	reloads map[int]*program.ReloadRecord
	past    map[int]program.PastReload
}

func newProgramParts() *programParts {
	return &programParts{
		ProgramRecord: ProgramRecord{Generations: map[int]GenerationRecord{}, Workers: map[int]WorkerRecord{}},
		configs:       map[string]*config.Program{}, workers: map[int]*workerCorePart{},
		reloads: map[int]*program.ReloadRecord{}, past: map[int]program.PastReload{},
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

// take decodes the part under a key, which is "" for the program itself.
func (p *programParts) take(key string, text []byte) error {
	kind, number, _ := strings.Cut(key, "/")
	switch kind {
	case "":
		p.core = &corePart{Program: &program.Program{}}
		return json.Unmarshal(text, p.core)
	case configPart:
		return takeInto(p.configs, number, text, new(config.Program))
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	switch kind {
	case generationPart:
		var g GenerationRecord
		err = json.Unmarshal(text, &g)
		p.Generations[n] = g
	case workerPart:
		return takeInto(p.workers, n, text, new(workerCorePart))
	case reloadPart:
		return takeInto(p.reloads, n, text, new(program.ReloadRecord))
	case pastPart:
		var r program.PastReload
		err = json.Unmarshal(text, &r)
		p.past[n] = r
	default:
		return fmt.Errorf("unknown kind %q", kind)
	}
	return err
}

func takeInto[K comparable, T any](all map[K]*T, key K, text []byte, value *T) error {
	all[key] = value
	return json.Unmarshal(text, value)
}

// join puts the record of a program together.
func (p *programParts) join(name string) error {
	if p.core == nil || p.core.Program == nil || p.core.Name != name {
		return errors.New("its state is missing")
	}
	core := p.core.Program
	p.Core, p.Listeners, p.Removed, p.DownSince = core, p.core.Listeners, p.core.Removed, p.core.DownSince
	core.Config, core.Candidate = p.configs[p.core.Config], p.configs[p.core.Candidate]
	core.Serving, core.Trial = p.generation(p.core.Serving), p.generation(p.core.Trial)
	for _, g := range p.core.Draining {
		core.Draining = append(core.Draining, p.generation(g))
	}
	if slices.Contains(core.Draining, nil) ||
		core.Serving == nil && p.core.Serving != nil || core.Trial == nil && p.core.Trial != nil {
		return errors.New("a generation is missing")
	}
	for _, n := range slices.Sorted(maps.Keys(p.reloads)) {
		core.Reloads = append(core.Reloads, p.reloads[n])
	}
	for _, n := range slices.Sorted(maps.Keys(p.past)) {
		core.Past = append(core.Past, p.past[n])
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
	return nil
}

// maxSlots is more than a generation ever has.
const maxSlots = 1 << 20

// generation returns a generation of the core without its workers, or nil.
func (p *programParts) generation(g *generationCorePart) *program.Generation {
	if g == nil || g.Generation == nil || g.Slots < 0 || g.Slots > maxSlots {
		return nil
	}
	core := g.Generation
	core.Config, core.Slots = p.configs[g.Config], make([]program.Slot, g.Slots)
	for i, s := range g.Marked {
		if i >= 0 && i < len(core.Slots) {
			core.Slots[i] = s
		}
	}
	return core
}
