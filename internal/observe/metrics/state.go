package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// programs writes what a status says of each program.
func programs(t *text, st *supervisor.Status) {
	t.family("supervisord_workers", "gauge", "Worker processes, by the role of their generation and their state.")
	for _, p := range st.Programs {
		workers(t, p)
	}
	each := func(name, help string, value func(supervisor.ProgramStatus) int) {
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		t.family(name, kind, help)
		for _, p := range st.Programs {
			t.sample(name, float64(value(p)), "program", p.Name)
		}
	}
	each("supervisord_program_serves", "Whether somebody answers for the program: 1 or 0.", func(p supervisor.ProgramStatus) int {
		if Serves(p) {
			return 1
		}
		return 0
	})
	each("supervisord_program_generation", "The number of the generation that serves; 0: none does.", func(p supervisor.ProgramStatus) int {
		for _, g := range p.Generations {
			if g.Role == program.RoleServing {
				return g.Number
			}
		}
		return 0
	})
	each("supervisord_log_lines_lost_total", "Lines of workers that could not be written to a log file.", func(p supervisor.ProgramStatus) int {
		return int(p.Lost)
	})
	each("supervisord_program_draining_generations", "Generations that were told to go and are not gone.", func(p supervisor.ProgramStatus) int {
		n := 0
		for _, g := range p.Generations {
			if g.Role == program.RoleDraining {
				n++
			}
		}
		return n
	})
}

// kind is which workers are counted together.
type kind struct {
	role  program.Role
	state program.WorkerState
}

func workers(t *text, p supervisor.ProgramStatus) {
	n := map[kind]int{{program.RoleServing, program.Ready}: 0} // always there
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			n[kind{g.Role, w.State}]++
		}
	}
	byName := func(a, b kind) int { return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.state, b.state)) }
	for _, k := range slices.SortedFunc(maps.Keys(n), byName) {
		t.sample("supervisord_workers", float64(n[k]), "program", p.Name, "role", string(k.role), "state", string(k.state))
	}
}

// Serves reports whether somebody answers for the program: a worker that is ready and not told to stop.
func Serves(p supervisor.ProgramStatus) bool {
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			if g.Role == program.RoleServing && w.State != program.Starting && w.State != program.Stopping || w.State == program.Leaving {
				return true
			}
		}
	}
	return false
}

// queues writes the accept queues of all listeners that have one.
func queues(t *text, st *supervisor.Status) {
	type found struct {
		program, listener string
		kernel.Queue
	}
	var all []found
	for _, p := range st.Programs {
		for _, l := range p.Listeners {
			if q, ok := kernel.AcceptQueues(l.FDs); ok {
				all = append(all, found{p.Name, l.Name, q})
			}
		}
	}
	t.family("supervisord_listener_accept_queue", "gauge", "Connections that wait to be accepted, all sockets of the listener together.")
	for _, f := range all {
		t.sample("supervisord_listener_accept_queue", float64(f.Waiting), "program", f.program, "listener", f.listener)
	}
	t.family("supervisord_listener_accept_queue_limit", "gauge", "How many can wait: when so many do, the kernel turns others away.")
	for _, f := range all {
		t.sample("supervisord_listener_accept_queue_limit", float64(f.Limit), "program", f.program, "listener", f.listener)
	}
}
