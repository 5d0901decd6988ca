package handover

import (
	"encoding/json"
	"errors"
	"fmt"
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

// The kinds of parts besides those of package program. A configuration is a part because several generations, and the program, share it.
const (
	resourcesPart program.PartKind = "resources" // of a generation: what was looked up and opened for it
	configPart    program.PartKind = "config"
)

// part names a part of a record. The zero part is what belongs to no program.
type part struct {
	program string
	program.Part
}

// headKey is the key of the part that belongs to no program. No program has a slash in its name.
const headKey = "/"

func (p part) key() string {
	switch {
	case p.program == "":
		return headKey
	case p.Kind == "":
		return p.program
	}
	return p.program + "/" + string(p.Kind) + "/" + strconv.Itoa(p.Number)
}

// batchSize is how large a batch of a whole record grows, in bytes, so that its text need not fit into memory as a whole.
const batchSize = 32 << 10

// putWhole writes a whole record: head, whose programs do not count, and the programs of src. The log has nothing else yet.
func (l *logWriter) putWhole(head *Record, programs func(yield func(Program) bool)) error {
	l.begin(recordVersion, nil)
	l.put(headKey, head.head())
	for p := range programs {
		r := p.Record()
		l.putProgram(r)
		l.put(part{r.Core.Name, program.Part{Kind: program.SteeringPart}}.key(), r.Core.Steering)
		for _, reload := range r.Core.Reloads {
			l.put(part{r.Core.Name, program.Part{Kind: program.ReloadPart, Number: reload.Generation}}.key(), reload)
		}
		for _, past := range r.Core.Past {
			l.put(part{r.Core.Name, program.Part{Kind: program.PastPart, Number: past.Generation}}.key(), past)
		}
		for _, g := range r.Core.Generations() {
			l.putGeneration(r.Core.Name, g)
			l.putResources(r.Core.Name, p, g.Number)
			for _, w := range g.Workers {
				l.putWorker(r.Core.Name, p, w, g)
				if err := l.split(); err != nil {
					return err
				}
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

// putTouched writes the parts that have changed, in no order.
func (l *logWriter) putTouched(src Predecessor, head *Record, touched map[part]struct{}, gone []string) error {
	l.begin(0, gone)
	for _, name := range gone {
		delete(l.configs, name)
	}
	for t := range touched {
		if t.program == "" {
			l.put(headKey, head.head())
		} else if p := src.Program(t.program); p != nil {
			l.putPart(p, t)
		}
	}
	return l.commit(true)
}

// putPart writes a part of a program as it is now.
func (l *logWriter) putPart(p Program, t part) {
	r := p.Record()
	switch t.Kind {
	case "":
		l.putProgram(r)
		l.dropConfigs(r.Core)
	case program.SteeringPart:
		l.put(t.key(), r.Core.Steering)
	case program.ReloadPart:
		if i := slices.IndexFunc(r.Core.Reloads, func(r *program.ReloadRecord) bool { return r.Generation == t.Number }); i >= 0 {
			l.put(t.key(), r.Core.Reloads[i])
		} else {
			l.put(t.key(), nil)
		}
	case program.PastPart:
		if i := slices.IndexFunc(r.Core.Past, func(r program.PastReload) bool { return r.Generation == t.Number }); i >= 0 {
			l.put(t.key(), r.Core.Past[i])
		} else {
			l.put(t.key(), nil)
		}
	case program.WorkerPart:
		if w, g := r.Core.Find(t.Number); w != nil {
			l.putWorker(t.program, p, w, g)
		} else {
			l.put(t.key(), nil)
		}
	case program.GenerationPart, resourcesPart:
		resources := part{t.program, program.Part{Kind: resourcesPart, Number: t.Number}}
		switch g := r.Core.Generation(t.Number); {
		case g == nil:
			l.put(t.key(), nil)
			l.put(resources.key(), nil)
		case t.Kind == resourcesPart:
			l.putResources(t.program, p, t.Number)
		default:
			l.putGeneration(t.program, g)
		}
	case configPart: // it goes with the part that refers to it
	}
}

// absent takes the place of a field that has a part of its own.
type absent *struct{}

// programPart is a program without what has a part of its own.
type programPart struct {
	*program.Program
	Config    int
	Candidate int    `json:",omitempty"`
	Serving   int    `json:",omitempty"`
	Trial     int    `json:",omitempty"`
	Draining  []int  `json:",omitempty"`
	Reloads   absent `json:",omitempty"`
	Past      absent `json:",omitempty"`
	Steering  absent `json:",omitempty"`

	Listeners []socket.Resolved
	Removed   bool      `json:",omitempty"`
	DownSince time.Time `json:",omitzero"`
}

func (l *logWriter) putProgram(r ProgramRecord) {
	core := r.Core
	p := programPart{Program: core, Config: l.config(core.Name, core.Config), Listeners: r.Listeners, Removed: r.Removed, DownSince: r.DownSince,
		Serving: numberOf(core.Serving), Trial: numberOf(core.Trial)}
	if core.Candidate != nil {
		p.Candidate = l.config(core.Name, core.Candidate)
	}
	for _, g := range core.Draining {
		p.Draining = append(p.Draining, g.Number)
	}
	l.put(core.Name, p)
}

func numberOf(g *program.Generation) int {
	if g == nil {
		return 0
	}
	return g.Number
}

// generationPart is a generation without what has a part of its own. Most slots have nothing to remember.
type generationPart struct {
	*program.Generation
	Config  int
	Workers absent `json:",omitempty"`
	Slots   int
	Marked  map[int]program.Slot `json:",omitempty"` // the slots that are not zero
}

func (l *logWriter) putGeneration(name string, g *program.Generation) {
	p := generationPart{Generation: g, Config: l.config(name, g.Config), Slots: len(g.Slots)}
	for i, s := range g.Slots {
		if s != (program.Slot{}) {
			if p.Marked == nil {
				p.Marked = map[int]program.Slot{}
			}
			p.Marked[i] = s
		}
	}
	l.put(part{name, program.Part{Kind: program.GenerationPart, Number: g.Number}}.key(), p)
}

// resources is the part of a GenerationRecord that never changes once the generation is prepared.
type resources struct {
	Listeners []socket.Resolved  `json:",omitempty"`
	Claims    []string           `json:",omitempty"`
	Snapshot  *snapshot.Snapshot `json:",omitempty"`
}

func (l *logWriter) putResources(name string, p Program, number int) {
	g := p.Generation(number)
	l.put(part{name, program.Part{Kind: resourcesPart, Number: number}}.key(), resources{g.Listeners, g.Claims, g.Snapshot})
}

// workerPart is a worker, in the core and as a process.
type workerPart struct {
	*program.Worker
	Generation int
	Process    WorkerRecord
}

func (l *logWriter) putWorker(name string, p Program, w *program.Worker, g *program.Generation) {
	l.put(part{name, program.Part{Kind: program.WorkerPart, Number: w.Number}}.key(), workerPart{w, g.Number, p.Worker(w.Number)})
}

// configNumbers are the numbers of the configurations in a log, by program. A configuration never changes.
type configNumbers map[string]map[*config.Program]int

// config returns the number of a configuration, and writes it if it is not in the log.
func (l *logWriter) config(name string, c *config.Program) int {
	if c == nil {
		return 0
	}
	of := l.configs[name]
	if of == nil {
		of = map[*config.Program]int{}
		l.configs[name] = of
	}
	if of[c] == 0 {
		l.lastConfig++
		of[c] = l.lastConfig
		l.put(part{name, program.Part{Kind: configPart, Number: of[c]}}.key(), c)
	}
	return of[c]
}

// dropConfigs takes the configurations that nothing refers to any more out of the log.
func (l *logWriter) dropConfigs(core *program.Program) {
	used := map[*config.Program]bool{core.Config: true, core.Candidate: true}
	for _, g := range core.Generations() {
		used[g.Config] = true
	}
	of := l.configs[core.Name]
	for c, n := range of {
		if !used[c] {
			delete(of, c)
			l.put(part{core.Name, program.Part{Kind: configPart, Number: n}}.key(), nil)
		}
	}
}

// into decodes a part.
func (e *encodedPart) into(v any) error {
	if err := json.Unmarshal(e.Value, v); err != nil {
		return err
	}
	for _, x := range e.Exact {
		x.restore(v) //nolint:errcheck // this version does not use strings that it has no place for
	}
	return nil
}

// programParts are the decoded parts of one program.
type programParts struct {
	configs     map[int]*config.Program
	generations map[int]*generationPart
	resources   map[int]*resources
	workers     map[int]*workerPart
	reloads     map[int]*program.ReloadRecord
	past        map[int]*program.PastReload
	steering    []program.Share
	whole       *programPart
}

// record puts a record together.
func (all parts) record() (*Record, error) {
	r, programs := &Record{}, map[string]*programParts{}
	for key, e := range all {
		var err error
		if key == headKey {
			err = e.into(r)
		} else {
			name, rest, _ := strings.Cut(key, "/")
			if programs[name] == nil {
				programs[name] = &programParts{configs: map[int]*config.Program{}, generations: map[int]*generationPart{}, resources: map[int]*resources{},
					workers: map[int]*workerPart{}, reloads: map[int]*program.ReloadRecord{}, past: map[int]*program.PastReload{}}
			}
			err = programs[name].take(rest, e)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read part %s of the record: %w", key, err)
		}
	}
	r.Version = recordVersion
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		p, err := programs[name].record(name)
		if err != nil {
			return nil, fmt.Errorf("cannot use the record: program %s: %w", name, err)
		}
		r.Programs = append(r.Programs, p)
	}
	return r, nil
}

// take decodes the part under a key, which is "" for the program itself.
func (p *programParts) take(key string, e *encodedPart) error {
	kind, text, _ := strings.Cut(key, "/")
	number, err := strconv.Atoi(text)
	if err != nil && kind != "" {
		return err
	}
	switch program.PartKind(kind) {
	case "":
		p.whole = &programPart{Program: &program.Program{}}
		return e.into(p.whole)
	case program.SteeringPart:
		return e.into(&p.steering)
	case configPart:
		return takeInto(p.configs, number, e)
	case program.GenerationPart:
		return takeInto(p.generations, number, e)
	case resourcesPart:
		return takeInto(p.resources, number, e)
	case program.WorkerPart:
		return takeInto(p.workers, number, e)
	case program.ReloadPart:
		return takeInto(p.reloads, number, e)
	case program.PastPart:
		return takeInto(p.past, number, e)
	}
	return fmt.Errorf("unknown kind %q", kind)
}

func takeInto[T any](all map[int]*T, number int, e *encodedPart) error {
	all[number] = new(T)
	return e.into(all[number])
}

// record puts the record of a program together.
func (p *programParts) record(name string) (ProgramRecord, error) {
	if p.whole == nil || p.whole.Program == nil || p.whole.Name != name {
		return ProgramRecord{}, errors.New("its state is missing")
	}
	core := p.whole.Program
	core.Config, core.Candidate, core.Steering = p.configs[p.whole.Config], p.configs[p.whole.Candidate], p.steering
	for _, n := range slices.Sorted(maps.Keys(p.reloads)) {
		core.Reloads = append(core.Reloads, p.reloads[n])
	}
	for _, n := range slices.Sorted(maps.Keys(p.past)) {
		core.Past = append(core.Past, *p.past[n])
	}
	r := ProgramRecord{Core: core, Listeners: p.whole.Listeners, Removed: p.whole.Removed, DownSince: p.whole.DownSince}
	core.Serving, core.Trial = p.generation(p.whole.Serving), p.generation(p.whole.Trial)
	for _, number := range p.whole.Draining {
		core.Draining = append(core.Draining, p.generation(number))
	}
	if slices.Contains(core.Draining, nil) || numberOf(core.Serving) != p.whole.Serving || numberOf(core.Trial) != p.whole.Trial {
		return r, errors.New("a generation is missing")
	}
	records := map[int]*GenerationRecord{}
	for _, g := range core.Generations() {
		records[g.Number] = p.generationRecord(g.Number)
	}
	for _, n := range slices.Sorted(maps.Keys(p.workers)) {
		w := p.workers[n]
		g, of := core.Generation(w.Generation), records[w.Generation]
		if w.Worker == nil || w.Number != n || w.Process.Number != n || g == nil {
			return r, fmt.Errorf("worker %d has no generation", n)
		}
		g.Workers = append(g.Workers, w.Worker)
		of.Workers = append(of.Workers, w.Process)
	}
	for _, g := range core.Generations() {
		r.Generations = append(r.Generations, *records[g.Number])
	}
	return r, nil
}

// generation returns a generation of the core without its workers, or nil.
func (p *programParts) generation(number int) *program.Generation {
	part := p.generations[number]
	if part == nil || part.Generation == nil || part.Number != number || part.Slots < 0 || part.Slots > maxSlots {
		return nil
	}
	g := part.Generation
	g.Config, g.Slots = p.configs[part.Config], make([]program.Slot, part.Slots)
	for i, s := range part.Marked {
		if i >= 0 && i < len(g.Slots) {
			g.Slots[i] = s
		}
	}
	return g
}

// maxSlots is more than a generation ever has.
const maxSlots = 1 << 20

func (p *programParts) generationRecord(number int) *GenerationRecord {
	g := &GenerationRecord{Number: number}
	if r := p.resources[number]; r != nil {
		g.Listeners, g.Claims, g.Snapshot = r.Listeners, r.Claims, r.Snapshot
	}
	return g
}
