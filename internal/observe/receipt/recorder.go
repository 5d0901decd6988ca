package receipt

import (
	"maps"
	"slices"
	"time"

	"example.org/supervisord/supervisor"
)

// kept is how many receipts, and how many lives of generations, are kept of each program.
const kept = 20

// Recorder makes receipts out of updates. It is plain data: no clock, no goroutine; not for several goroutines at once.
type Recorder struct {
	programs map[string]*book
}

// book is what is kept of a program.
type book struct {
	open  []*course // oldest first
	ended []Receipt // oldest first
	lives []Life    // oldest first
}

// course is a receipt that is being written.
type course struct {
	Receipt
	goes    int       // the generation whose end ends it; 0: not known yet
	spawned time.Time // the first worker of the new generation
	ready   time.Time // the last one
	oldEnd  time.Time // the last end of a worker of the generation before
}

// Life is when a generation lived, for a timeline.
type Life struct {
	Generation int       `json:"generation"`
	Reason     string    `json:"reason,omitempty"`
	Began      time.Time `json:"began"`
	Served     time.Time `json:"served,omitzero"`
	Retired    time.Time `json:"retired,omitzero"` // told to go
	Gone       time.Time `json:"gone,omitzero"`
	Failed     bool      `json:"failed,omitempty"`
}

// NewRecorder returns a recorder that has seen nothing.
func NewRecorder() *Recorder { return &Recorder{programs: map[string]*book{}} }

func (r *Recorder) book(program string) *book {
	b := r.programs[program]
	if b == nil {
		b = &book{}
		r.programs[program] = b
	}
	return b
}

// See takes notice of an update, and returns the receipts that are complete with it.
func (r *Recorder) See(u supervisor.Update) []Receipt {
	b := r.book(u.Program)
	b.live(u)
	switch u.Kind {
	case supervisor.TrialBegan:
		if b.find(u.Generation) == nil { // not learned from a status already
			b.open = append(b.open, &course{Receipt: Receipt{
				Program: u.Program, Generation: u.Generation, Replaced: u.Serving, Outcome: UnderWay, Reason: u.Reason, AskedBy: u.AskedBy, Began: u.Time}})
		}
	case supervisor.GenerationServes:
		b.decide(u, Served)
	case supervisor.TrialFailed:
		b.decide(u, Failed)
	case supervisor.GenerationGone:
		b.gone(u)
	default:
		for _, c := range b.open {
			c.see(u)
		}
	}
	return b.finish()
}

// see is for what happens to a worker.
func (c *course) see(u supervisor.Update) {
	mine, old := u.Generation == c.Generation, c.Replaced != 0 && u.Generation == c.Replaced
	switch u.Kind {
	case supervisor.WorkerSpawned:
		if mine && c.spawned.IsZero() {
			c.spawned = u.Time
		}
	case supervisor.WorkerReady:
		if mine && c.Outcome == UnderWay {
			c.ready = u.Time
		}
	case supervisor.WorkerStopped, supervisor.WorkerDied:
		if old {
			c.oldEnd = u.Time
		}
	case supervisor.WorkerKilled:
		if old && c.Outcome != Failed || mine && c.Outcome == Failed {
			c.Killed = append(c.Killed, Kill{u.Generation, u.Worker, u.Slot, u.PID, u.Reason})
		}
	}
}

func (b *book) find(generation int) *course {
	for _, c := range b.open {
		if c.Generation == generation {
			return c
		}
	}
	return nil
}

func (b *book) decide(u supervisor.Update, o Outcome) {
	c := b.find(u.Generation)
	if c == nil {
		return
	}
	c.Outcome, c.Decided, c.Took, c.Replaced = o, u.Time, u.Took, u.Serving
	if !c.spawned.IsZero() && !c.ready.IsZero() {
		c.SpawnToReady = c.ready.Sub(c.spawned)
	}
	c.goes = c.Replaced
	if o == Failed {
		c.goes = c.Generation
		c.Failure = &Failure{u.Step, u.Reason, u.Worker, u.Slot, u.PID, u.Tail}
	}
	if c.goes == 0 {
		c.Ended = u.Time
	}
}

// gone is for the end of a generation: that which somebody waits for, or one on trial whose program was stopped.
func (b *book) gone(u supervisor.Update) {
	for _, c := range b.open {
		switch {
		case c.Outcome == UnderWay && c.Generation == u.Generation:
			c.Outcome, c.Decided, c.Took = Stopped, u.Time, u.Time.Sub(c.Began)
			c.Ended = u.Time
		case c.goes != 0 && c.goes == u.Generation:
			c.Ended = u.Time
			c.Drain = c.Ended.Sub(c.Decided)
			c.overlap()
		}
	}
}

// overlap is known when one of the generations has gone.
func (c *course) overlap() {
	end := c.oldEnd
	if c.Outcome == Failed {
		end = c.Ended
	}
	if c.Replaced != 0 && !c.spawned.IsZero() && end.After(c.spawned) {
		c.Overlap = end.Sub(c.spawned)
	}
}

// finish moves the receipts that have ended.
func (b *book) finish() []Receipt {
	var done []Receipt
	b.open = slices.DeleteFunc(b.open, func(c *course) bool {
		if c.Ended.IsZero() {
			return false
		}
		done = append(done, c.copy())
		return true
	})
	b.ended = append(b.ended, done...)
	b.ended = slices.Clone(b.ended[max(0, len(b.ended)-kept):])
	return done
}

func (b *book) live(u supervisor.Update) {
	switch u.Kind {
	case supervisor.TrialBegan:
		if slices.ContainsFunc(b.lives, func(l Life) bool { return l.Generation == u.Generation }) {
			return
		}
		b.lives = append(b.lives, Life{Generation: u.Generation, Reason: u.Reason, Began: u.Time})
		b.lives = slices.Clone(b.lives[max(0, len(b.lives)-kept):])
		return
	case supervisor.GenerationServes, supervisor.TrialFailed, supervisor.GenerationGone:
	default:
		return
	}
	for i := range b.lives {
		l := &b.lives[i]
		mine := l.Generation == u.Generation
		switch {
		case u.Kind == supervisor.GenerationServes && mine:
			l.Served = u.Time
		case u.Kind == supervisor.GenerationServes && l.Generation == u.Serving:
			l.Retired = u.Time
		case u.Kind == supervisor.TrialFailed && mine:
			l.Failed, l.Retired = true, u.Time
		case u.Kind == supervisor.GenerationGone && mine:
			l.Gone = u.Time
			if l.Retired.IsZero() {
				l.Retired = u.Time.Add(-u.Took)
			}
		}
	}
}

// Busy lists the programs with a reload under way.
func (r *Recorder) Busy() []string {
	var busy []string
	for _, name := range slices.Sorted(maps.Keys(r.programs)) {
		if len(r.programs[name].open) > 0 {
			busy = append(busy, name)
		}
	}
	return busy
}

// Receipts returns the last receipts of a program that are complete, the newest first.
func (r *Recorder) Receipts(program string) []Receipt {
	list := []Receipt{}
	if b := r.programs[program]; b != nil {
		for _, e := range slices.Backward(b.ended) {
			list = append(list, e.copy())
		}
	}
	return list
}

// Open returns the receipts of a program that are not complete yet, the newest first.
func (r *Recorder) Open(program string) []Receipt {
	list := []Receipt{}
	if b := r.programs[program]; b != nil {
		for _, c := range slices.Backward(b.open) {
			list = append(list, c.copy())
		}
	}
	return list
}

// Lives returns when the last generations of a program lived, oldest first.
func (r *Recorder) Lives(program string) []Life {
	if b := r.programs[program]; b != nil {
		return slices.Clone(b.lives)
	}
	return []Life{}
}
