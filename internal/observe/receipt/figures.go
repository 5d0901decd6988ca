package receipt

import (
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

// Sampler adds the kernel's figures to the receipts that are being written.
type Sampler struct {
	Kernel   Kernel
	recorder *Recorder
	before   map[*course]kernel.Refused // the counters as the course began
}

// NewSampler returns a sampler for the receipts of r.
func NewSampler(r *Recorder, k Kernel) *Sampler {
	return &Sampler{Kernel: k, recorder: r, before: map[*course]kernel.Refused{}}
}

// Refused notes how many connections the kernel has turned away since each receipt began. It is to be called when
// a receipt begins, and before one ends.
func (s *Sampler) Refused() {
	now, err := s.Kernel.Listen()
	if err != nil {
		return // no /proc/net/netstat: a namespace without a network of its own
	}
	kept := make(map[*course]kernel.Refused)
	for _, b := range s.recorder.programs {
		for _, c := range b.open {
			before, known := s.before[c]
			if !known {
				before = now
			}
			kept[c] = before
			c.ListenOverflows, c.ListenDrops = now.Overflows-before.Overflows, now.Drops-before.Drops
		}
	}
	s.before = kept
}

// Queues looks at the accept queues of the programs that have a receipt open. It is cheap: one getsockopt for each socket.
func (s *Sampler) Queues(st *supervisor.Status) {
	for _, p := range st.Programs {
		b := s.recorder.programs[p.Name]
		if b == nil || len(b.open) == 0 {
			continue
		}
		for _, l := range p.Listeners {
			n := 0
			for _, fd := range l.FDs {
				if q, err := s.Kernel.AcceptQueue(fd); err == nil {
					n = max(n, q.Waiting)
				}
			}
			for _, c := range b.open {
				if c.AcceptQueue == nil {
					c.AcceptQueue = map[string]int{}
				}
				c.AcceptQueue[l.Name] = max(c.AcceptQueue[l.Name], n)
			}
		}
	}
}

// Connections counts what is still open on the generations that are told to go, all at once.
func (s *Sampler) Connections(st *supervisor.Status, now time.Time) {
	var going []*course
	var queries []kernel.Query
	for _, p := range st.Programs {
		b := s.recorder.programs[p.Name]
		if b == nil {
			continue
		}
		for _, c := range b.open {
			g := generation(p, c.goes)
			if c.goes == 0 || g == nil {
				continue
			}
			going = append(going, c)
			queries = append(queries, kernel.Query{PIDs: pids(g), Addresses: addresses(p)})
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
		going[i].sample(now.Sub(going[i].Decided), n.Open)
	}
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
