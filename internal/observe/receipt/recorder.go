package receipt

import (
	"slices"
	"sync"
	"time"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// kept is how many reloads of each program have their figures kept, at least: more than have a record.
const kept = 40

// Kernel is what a Recorder asks while a reload is under way.
type Kernel interface {
	AcceptQueue(fd int) (waiting, limit int, err error)
	Connections([]kernel.Query) []kernel.Count
	Listen() (kernel.Refused, error)
}

// Recorder adds the kernel's figures to the records of reloads. It is safe for several goroutines.
type Recorder struct {
	kernel   Kernel
	mu       sync.Mutex
	refused  *kernel.Refused        // the counters as they were read last; nil: never
	programs map[string][]*measured // oldest first
}

// measured is what is kept of one reload. When the record has ended, its receipt was given away.
type measured struct {
	Figures
	record program.ReloadRecord // as it was seen last
	before *kernel.Refused      // the counters as it began; nil: not known
}

func (m *measured) open() bool { return m.record.Ended.IsZero() }

// NewRecorder returns a recorder that has seen nothing.
func NewRecorder(k Kernel) *Recorder {
	return &Recorder{kernel: k, programs: map[string][]*measured{}}
}

// See records an update, and returns the receipt that it completes, or nil.
func (r *Recorder) See(u supervisor.Update) *Receipt {
	if u.Reload == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.find(u.Program, u.Reload.Generation); m == nil || !m.open() || !u.Reload.Ended.IsZero() {
		r.countRefused() // in between it would take CPU time from workers that begin to serve
	}
	return r.take(u.Program, *u.Reload)
}

// Resync records the state of all records: at the beginning, and after missed updates. It returns the receipts that are complete,
// but not those of reloads that ended before this image began: the previous image has returned them.
func (r *Recorder) Resync(st *supervisor.Status) []Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countRefused()
	var done []Receipt
	there := map[string]bool{}
	for _, p := range st.Programs {
		there[p.Name] = true
		for _, record := range p.Reloads {
			if c := r.take(p.Name, record); c != nil && !record.Ended.Before(st.Started) {
				done = append(done, *c)
			}
		}
	}
	for name := range r.programs {
		if !there[name] {
			delete(r.programs, name)
		}
	}
	return done
}

// take stores a record, and returns its receipt once, when the record has ended.
func (r *Recorder) take(name string, record program.ReloadRecord) *Receipt {
	m := r.find(name, record.Generation)
	switch {
	case m == nil:
		m = &measured{before: r.refused}
		r.add(name, m)
	case !m.open() && record.Began.After(m.record.Decided): // the program was removed and configured again, and counts from 1
		*m = measured{before: r.refused}
	case !m.open():
		return nil
	}
	m.record = record
	if m.open() {
		return nil
	}
	return &Receipt{name, record, m.copy()}
}

func (r *Recorder) add(name string, m *measured) {
	all := append(r.programs[name], m)
	surplus := len(all) - kept
	r.programs[name] = slices.DeleteFunc(all, func(m *measured) bool {
		surplus--
		return surplus >= 0 && !m.open()
	})
}

func (r *Recorder) find(name string, generation int) *measured {
	for _, m := range r.programs[name] {
		if m.record.Generation == generation {
			return m
		}
	}
	return nil
}

// open lists the reloads of a program that are under way.
func (r *Recorder) open(name string) []*measured {
	var list []*measured
	for _, m := range r.programs[name] {
		if m.open() {
			list = append(list, m)
		}
	}
	return list
}

// Busy reports whether a reload is under way.
func (r *Recorder) Busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.programs {
		if len(r.open(name)) > 0 {
			return true
		}
	}
	return false
}

// Receipts adds the figures to the records of a program, and returns the newest first.
func (r *Recorder) Receipts(name string, records []program.ReloadRecord) []Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open(name)) > 0 {
		r.countRefused() // a record may have ended that was not seen here yet
	}
	list := []Receipt{}
	for _, record := range slices.Backward(records) {
		c := Receipt{Program: name, ReloadRecord: record}
		if m := r.find(name, record.Generation); m != nil {
			c.Figures = m.copy()
		}
		list = append(list, c)
	}
	return list
}

// countRefused records how many connections the kernel has refused since each reload began.
func (r *Recorder) countRefused() {
	now, err := r.kernel.Listen()
	if err != nil {
		return // without /proc/net/netstat, such as in a namespace without a network
	}
	r.refused = &now
	for name := range r.programs {
		for _, m := range r.open(name) {
			if m.before == nil {
				m.before = &now
			}
			m.ListenOverflows, m.ListenDrops = now.Overflows-m.before.Overflows, now.Drops-m.before.Drops
		}
	}
}

// Queues looks at the accept queues of the programs with a reload under way. It is cheap: one getsockopt(2) for each socket.
func (r *Recorder) Queues(st *supervisor.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range st.Programs {
		reloads := r.open(p.Name)
		if len(reloads) == 0 {
			continue
		}
		for _, l := range p.Listeners {
			longest := 0
			for _, fd := range l.FDs {
				if waiting, _, err := r.kernel.AcceptQueue(fd); err == nil {
					longest = max(longest, waiting)
				}
			}
			for _, m := range reloads {
				m.queue(l.Name, longest)
			}
		}
	}
}

// Connections counts what is still open on the generations that have to go, all at once, and what the kernel has refused.
func (r *Recorder) Connections(st *supervisor.Status, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countRefused()
	var going []*measured
	var queries []kernel.Query
	for _, p := range st.Programs {
		for _, m := range r.open(p.Name) {
			for _, g := range p.Generations {
				if g.Number == m.record.Goes() {
					going = append(going, m)
					queries = append(queries, kernel.Query{PIDs: g.PIDs(), Addresses: p.Addresses()})
				}
			}
		}
	}
	if len(queries) == 0 {
		return
	}
	for i, n := range r.kernel.Connections(queries) {
		if n.Err != nil {
			going[i].ConnectionsError = n.Err.Error()
			continue
		}
		going[i].sample(now.Sub(going[i].record.Decided), n.Open)
	}
}
