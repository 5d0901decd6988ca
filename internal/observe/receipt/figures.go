package receipt

import (
	"slices"
	"time"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/supervisor"
)

// Kernel is asked while something is under way. package kernel answers.
type Kernel interface {
	AcceptQueue(fd int) (kernel.Queue, error)
	Connections([]kernel.Query) []kernel.Count
	Listen() (kernel.Refused, error)
}

// Sampler adds the kernel's figures to the reloads that are under way.
type Sampler struct {
	Kernel   Kernel
	recorder *Recorder
}

// NewSampler returns a sampler for the receipts of r.
func NewSampler(r *Recorder, k Kernel) *Sampler { return &Sampler{k, r} }

// Refused notes how many connections the kernel has turned away since each reload began. Call it when one begins and before one ends.
func (s *Sampler) Refused() {
	now, err := s.Kernel.Listen()
	if err != nil {
		return // no /proc/net/netstat: a namespace without a network of its own
	}
	for _, all := range s.recorder.programs {
		for _, m := range all {
			if !m.open() {
				continue
			}
			if m.before == nil {
				m.before = &now
			}
			m.ListenOverflows, m.ListenDrops = now.Overflows-m.before.Overflows, now.Drops-m.before.Drops
		}
	}
}

// Queues looks at the accept queues of the programs with a reload under way. It is cheap: one getsockopt for each socket.
func (s *Sampler) Queues(st *supervisor.Status) {
	for _, p := range st.Programs {
		all := s.recorder.programs[p.Name]
		if !slices.ContainsFunc(all, (*measured).open) {
			continue
		}
		for _, l := range p.Listeners {
			n := 0
			for _, fd := range l.FDs {
				if q, err := s.Kernel.AcceptQueue(fd); err == nil {
					n = max(n, q.Waiting)
				}
			}
			for _, m := range all {
				if m.open() {
					m.queue(l.Name, n)
				}
			}
		}
	}
}

func (f *Figures) queue(listener string, n int) {
	if f.AcceptQueue == nil {
		f.AcceptQueue = map[string]int{}
	}
	f.AcceptQueue[listener] = max(f.AcceptQueue[listener], n)
}

// Connections counts what is still open on the generations that are told to go, all at once.
func (s *Sampler) Connections(st *supervisor.Status, now time.Time) {
	var going []*measured
	var queries []kernel.Query
	for _, p := range st.Programs {
		for _, m := range s.recorder.programs[p.Name] {
			if !m.open() {
				continue
			}
			if g := generation(p, m.record.Goes()); g != nil {
				going = append(going, m)
				queries = append(queries, kernel.Query{PIDs: pids(g), Addresses: addresses(p)})
			}
		}
	}
	if len(queries) == 0 {
		return
	}
	for i, n := range s.Kernel.Connections(queries) {
		if n.Err != nil {
			going[i].ConnectionsWhy = n.Err.Error()
			continue
		}
		going[i].sample(now.Sub(going[i].record.Decided), n.Open)
	}
}

func generation(p supervisor.ProgramStatus, number int) *supervisor.GenerationStatus {
	if i := slices.IndexFunc(p.Generations, func(g supervisor.GenerationStatus) bool { return g.Number == number }); i >= 0 {
		return &p.Generations[i]
	}
	return nil
}

func pids(g *supervisor.GenerationStatus) []int {
	var list []int
	for _, w := range g.Workers {
		if w.PID > 0 {
			list = append(list, w.PID)
		}
	}
	return list
}

func addresses(p supervisor.ProgramStatus) []string {
	var list []string
	for _, l := range p.Listeners {
		list = append(list, l.Address)
	}
	return list
}
