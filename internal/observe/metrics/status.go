package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// programs writes what a status says of each program.
func programs(t *values, st *supervisor.Status) {
	t.family(prometheus.GaugeValue, "Worker processes, by the role of their generation and their own state.")
	for _, p := range st.Programs {
		workers(t, p)
	}
	each := func(name string, kind prometheus.ValueType, help string, value func(*supervisor.ProgramStatus) int) {
		t.family(kind, help)
		for i := range st.Programs {
			t.sample(name, float64(value(&st.Programs[i])), "program", st.Programs[i].Name)
		}
	}
	each("supervisord_program_serves", prometheus.GaugeValue, "Whether a worker of the program answers: 1 or 0.",
		func(p *supervisor.ProgramStatus) int {
			if p.Serves() {
				return 1
			}
			return 0
		})
	each("supervisord_program_paused", prometheus.GaugeValue, "Whether new connections wait in the kernel: 1 or 0.",
		func(p *supervisor.ProgramStatus) int {
			if p.Paused != nil {
				return 1
			}
			return 0
		})
	each("supervisord_program_generation", prometheus.GaugeValue,
		"The number of the serving generation; 0 if none serves.", func(p *supervisor.ProgramStatus) int {
			number := 0
			for _, g := range inRole(p, program.RoleServing) {
				number = g.Number
			}
			return number
		})
	releases(t, st)
	each("supervisord_log_lines_lost_total", prometheus.CounterValue,
		"Lines of workers that could not be written to a log file.", func(p *supervisor.ProgramStatus) int {
			return int(p.Lost)
		})
	each("supervisord_program_draining_generations", prometheus.GaugeValue,
		"Generations that were told to stop and are not gone.", func(p *supervisor.ProgramStatus) int {
			return len(inRole(p, program.RoleDraining))
		})
}

// releases writes what the serving generations run, and since when the oldest draining ones have been on their way out.
func releases(t *values, st *supervisor.Status) {
	t.family(prometheus.GaugeValue,
		"The directory of the serving generation, symlinks resolved, and what identifies its configuration; always 1.")
	for _, p := range st.Programs {
		for _, g := range inRole(&p, program.RoleServing) {
			t.sample("supervisord_generation_info", 1, "program", p.Name, "directory", g.Directory, "config", g.Config)
		}
	}
	t.family(prometheus.GaugeValue,
		"Since when the oldest of the draining generations has been on its way out, in seconds since the epoch.")
	for _, p := range st.Programs {
		var oldest time.Time
		for _, g := range inRole(&p, program.RoleDraining) {
			if g.Retired != nil && (oldest.IsZero() || g.Retired.Before(oldest)) {
				oldest = *g.Retired
			}
		}
		if !oldest.IsZero() {
			t.sample("supervisord_draining_since_timestamp_seconds", float64(oldest.UnixMilli())/1000, "program", p.Name)
		}
	}
}

// traffic writes who gets the new connections of each program, and what those who get none still have in hand.
func traffic(t *values, st *supervisor.Status) {
	t.family(prometheus.GaugeValue, "The part of new connections that generations get, by their role.")
	for _, p := range st.Programs {
		for _, r := range []program.Role{program.RoleServing, program.RoleTrial, program.RoleDraining} {
			share := 0
			for _, g := range inRole(&p, r) {
				share += g.Share
			}
			t.sample("supervisord_new_connections_ratio", float64(share)/program.Whole, "program", p.Name, "role", string(r))
		}
	}
	t.family(prometheus.GaugeValue, "Connections of workers that get no new ones and are not told to stop yet.")
	for _, p := range st.Programs {
		var all program.Look
		for _, g := range p.Generations {
			if l := g.InHand; l != nil {
				all = all.Plus(*l)
			}
		}
		for _, s := range []struct {
			state string
			n     int
		}{{"queued", all.Queued + all.Handshakes}, {"unread", all.Unread}, {"answering", all.Answering}, {"active",
			all.Active}, {"idle", all.Idle}} {
			t.sample("supervisord_connections_in_hand", float64(s.n), "program", p.Name, "state", s.state)
		}
	}
}

func inRole(p *supervisor.ProgramStatus, r program.Role) (found []supervisor.GenerationStatus) {
	for _, g := range p.Generations {
		if g.Role == r {
			found = append(found, g)
		}
	}
	return found
}

// cohort is which workers are counted together.
type cohort struct {
	role  program.Role
	state program.WorkerState
}

func workers(t *values, p supervisor.ProgramStatus) {
	n := map[cohort]int{{program.RoleServing, program.Ready}: 0} // always there
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			n[cohort{g.Role, w.State}]++
		}
	}
	byName := func(a, b cohort) int { return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.state, b.state)) }
	for _, k := range slices.SortedFunc(maps.Keys(n), byName) {
		t.sample("supervisord_workers", float64(n[k]), "program", p.Name, "role", string(k.role), "state", string(k.state))
	}
}

// listeners writes the accept queues of the listeners that have one, and which listeners are steered.
func listeners(t *values, st *supervisor.Status) {
	each := func(name, help string, value func(*supervisor.AcceptQueue) int) {
		t.family(prometheus.GaugeValue, help)
		for _, p := range st.Programs {
			for _, l := range p.Listeners {
				if l.Queue != nil {
					t.sample(name, float64(value(l.Queue)), "program", p.Name, "listener", l.Name)
				}
			}
		}
	}
	each("supervisord_listener_accept_queue", "Connections that wait to be accepted, over all sockets of the listener.",
		func(q *supervisor.AcceptQueue) int { return q.Waiting })
	each("supervisord_listener_accept_queue_limit", "How many connections can wait; the kernel turns more away.",
		func(q *supervisor.AcceptQueue) int { return q.Limit })
	t.family(prometheus.CounterValue, "How often supervisord has put the path of a unix socket back.")
	for _, p := range st.Programs {
		for _, l := range p.Listeners {
			if strings.HasPrefix(l.Address, "/") {
				t.sample("supervisord_listener_path_restored_total", float64(l.Path.Times()), "program", p.Name, "listener", l.Name)
			}
		}
	}
	t.family(prometheus.CounterValue, "How often a process has shut down a socket of the listener.")
	for _, p := range st.Programs {
		for _, l := range p.Listeners {
			t.sample("supervisord_listener_shut_down_total", float64(l.ShutDowns), "program", p.Name, "listener", l.Name)
		}
	}
	t.family(prometheus.GaugeValue,
		"Whether each generation has a socket of its own: 1, or 0 if generations share the listener.")
	for _, p := range st.Programs {
		for _, l := range p.Listeners {
			steered := 0.0
			if l.Handover != string(socket.Share) {
				steered = 1
			}
			t.sample("supervisord_listener_steered", steered, "program", p.Name, "listener", l.Name)
		}
	}
}
