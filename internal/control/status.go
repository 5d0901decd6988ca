package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/supervisor"
)

// Status is what is going on: supervisor.Status, and what the kernel says about it.
type Status struct {
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Instance string    `json:"instance"`
	Stopping bool      `json:"stopping"`
	Config   string    `json:"config"`                   // the file
	Upgrade  string    `json:"upgrade_failed,omitempty"` // why the last upgrade did not happen, or was undone
	Programs []Program `json:"programs"`
}

// Program is a program with what is known of its workers and listeners. The fields hide those of the same name.
type Program struct {
	supervisor.ProgramStatus
	Generations []Generation `json:"generations"`
	Listeners   []Listener   `json:"listeners"`
}

// Generation is a generation with what is known of its workers.
type Generation struct {
	supervisor.GenerationStatus
	Workers []WorkerStatus `json:"workers"`
}

// WorkerStatus is a worker with what it uses.
type WorkerStatus struct {
	supervisor.WorkerStatus
	Usage
}

// Listener is a listener with its accept queue, the sum over its sockets; nil if that is not known.
type Listener struct {
	supervisor.ListenerStatus
	Queue *kernel.Queue `json:"queue"`
}

// snapshot asks the loop how things are, for one program or for all ("").
func (s *Server) snapshot(ctx context.Context, program string) (*supervisor.Status, error) {
	v, err := s.ask(ctx, askTimeout, supervisor.StatusRequest{})
	if err != nil {
		return nil, err
	}
	st := v.(*supervisor.Status)
	if program == "" {
		return st, nil
	}
	var names []string
	for _, p := range st.Programs {
		names = append(names, p.Name)
	}
	i := slices.Index(names, program)
	if i < 0 {
		return nil, fmt.Errorf("%w: %s; there are: %s", supervisor.ErrNoProgram, program, strings.Join(names, ", "))
	}
	st.Programs = st.Programs[i : i+1]
	return st, nil
}

// status answers with a Status; ?usage=no leaves out what has to be asked of the kernel.
func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	usage := r.FormValue("usage")
	if usage != "" && usage != "yes" && usage != "no" {
		return problem(BadRequest, fmt.Sprintf("usage: %q is not known", usage), "write yes or no")
	}
	st, err := s.snapshot(r.Context(), r.FormValue("program"))
	if err != nil {
		return err
	}
	x := s.Gauge.Extend(st, usage != "no")
	x.Version, x.Config = s.Version, s.Config
	return respond(w, x)
}

// Extend adds to what the loop knows. The loop does not wait for it. What has to be asked of the kernel is left out without usage.
func (g *Gauge) Extend(st *supervisor.Status, usage bool) *Status {
	used := map[int]Usage{}
	if usage {
		used = g.measure(queries(st))
	}
	x := &Status{PID: st.PID, Started: st.Started, Instance: st.Instance, Stopping: st.Stopping, Upgrade: st.Upgrade, Programs: []Program{}}
	for _, p := range st.Programs {
		xp := Program{ProgramStatus: p, Generations: []Generation{}, Listeners: []Listener{}}
		for _, g := range p.Generations {
			xg := Generation{GenerationStatus: g, Workers: []WorkerStatus{}}
			for _, w := range g.Workers {
				xg.Workers = append(xg.Workers, WorkerStatus{w, used[w.PID]})
			}
			xp.Generations = append(xp.Generations, xg)
		}
		for _, l := range p.Listeners {
			xl := Listener{ListenerStatus: l}
			if q, ok := kernel.AcceptQueues(l.FDs); usage && ok {
				xl.Queue = &q
			}
			xp.Listeners = append(xp.Listeners, xl)
		}
		x.Programs = append(x.Programs, xp)
	}
	return x
}

func queries(st *supervisor.Status) []query {
	var all []query
	for _, p := range st.Programs {
		q := query{}
		for _, l := range p.Listeners {
			q.addresses = append(q.addresses, l.Address)
		}
		for _, g := range p.Generations {
			for _, w := range g.Workers {
				if w.PID > 0 {
					q.pids = append(q.pids, w.PID)
				}
			}
		}
		all = append(all, q)
	}
	return all
}

// receipts answers with the last receipts of a program, the newest first.
func (s *Server) receipts(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	st, err := s.snapshot(r.Context(), name)
	if err != nil {
		return err
	}
	return respond(w, ReceiptsAnswer{s.Receipts(name, st.Programs[0].Reloads)})
}
