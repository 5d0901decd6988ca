package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// ofPrograms are the metrics with one value for each program.
var ofPrograms = []struct {
	name  string
	kind  prometheus.ValueType
	help  string
	value func(*supervisor.ProgramStatus, *counts) int
}{
	{"supervisord_worker_restarts_total", prometheus.CounterValue,
		"Workers of the serving generation that ended unexpectedly and are started again.",
		func(_ *supervisor.ProgramStatus, c *counts) int { return c.restarts }},
	{"supervisord_worker_kills_total", prometheus.CounterValue, "Workers that did not stop in time and were killed.",
		func(_ *supervisor.ProgramStatus, c *counts) int { return c.kills }},
	{"supervisord_rollbacks_total", prometheus.CounterValue, "How often the old generation served again.",
		func(_ *supervisor.ProgramStatus, c *counts) int { return c.rollbacks }},
	{"supervisord_drain_timeouts_total", prometheus.CounterValue,
		"How often drain.timeout was over while old workers had connections in hand.",
		func(_ *supervisor.ProgramStatus, c *counts) int { return c.busy }},
	{"supervisord_connections_left_total", prometheus.CounterValue,
		"Connections that old workers had in hand when drain.timeout was over.",
		func(_ *supervisor.ProgramStatus, c *counts) int { return c.left }},
	{"supervisord_connections_reset_total", prometheus.CounterValue,
		"Connections that supervisord has reset because no worker was left to accept them.",
		func(_ *supervisor.ProgramStatus, c *counts) int { return c.reset }},
	{"supervisord_program_serves", prometheus.GaugeValue, "Whether a worker of the program answers: 1 or 0.",
		func(p *supervisor.ProgramStatus, _ *counts) int { return bit(p.Serves()) }},
	{"supervisord_program_paused", prometheus.GaugeValue, "Whether new connections wait in the kernel: 1 or 0.",
		func(p *supervisor.ProgramStatus, _ *counts) int { return bit(p.Paused != nil) }},
	{"supervisord_program_generation", prometheus.GaugeValue, "The number of the serving generation; 0 if none serves.",
		func(p *supervisor.ProgramStatus, _ *counts) (number int) {
			for _, g := range inRole(p, program.RoleServing) {
				number = g.Number
			}
			return number
		}},
	{"supervisord_log_lines_lost_total", prometheus.CounterValue,
		"Lines of workers that could not be written to a log file.",
		func(p *supervisor.ProgramStatus, _ *counts) int { return int(p.Lost) }},
	{"supervisord_program_draining_generations", prometheus.GaugeValue,
		"Generations that were told to stop and are not gone.",
		func(p *supervisor.ProgramStatus, _ *counts) int { return len(inRole(p, program.RoleDraining)) }},
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// program writes what a status says of a program, and what was counted.
func (t values) program(p *supervisor.ProgramStatus, c *counts) {
	for _, m := range ofPrograms {
		t.add(m.kind, m.name, m.help, float64(m.value(p, c)), "program", p.Name)
	}
	for _, o := range program.Origins() {
		t.counter("supervisord_reloads_begun_total", "Reloads that began, first starts included, by the kind of who asked.",
			float64(c.begun[o]), "program", p.Name, "source", string(o))
	}
	for _, o := range program.ReloadOutcomes() {
		t.counter("supervisord_reloads_total", "Reloads that were decided, first starts included, by outcome.",
			float64(c.reloads[o]), "program", p.Name, "outcome", string(o))
	}
	t.workers(p)
	t.release(p)
	t.traffic(p)
}

// release writes what the serving generation runs, and since when the oldest draining one has been on its way out.
func (t values) release(p *supervisor.ProgramStatus) {
	for _, g := range inRole(p, program.RoleServing) {
		t.gauge("supervisord_generation_info",
			"The directory of the serving generation, symlinks resolved, and what identifies its configuration; always 1.",
			1, "program", p.Name, "directory", g.Directory, "config", g.Config)
	}
	var oldest time.Time
	for _, g := range inRole(p, program.RoleDraining) {
		if !g.Retired.IsZero() && (oldest.IsZero() || g.Retired.Before(oldest)) {
			oldest = g.Retired
		}
	}
	if !oldest.IsZero() {
		t.gauge("supervisord_draining_since_timestamp_seconds",
			"Since when the oldest of the draining generations has been on its way out, in seconds since the epoch.",
			float64(oldest.UnixMilli())/1000, "program", p.Name)
	}
}

// traffic writes who gets the new connections of a program, and what those who get none still have in hand.
func (t values) traffic(p *supervisor.ProgramStatus) {
	for _, r := range []program.Role{program.RoleServing, program.RoleTrial, program.RoleDraining} {
		share := 0
		for _, g := range inRole(p, r) {
			share += g.Share
		}
		t.gauge("supervisord_new_connections_ratio", "The part of new connections that generations get, by their role.",
			float64(share)/program.Whole, "program", p.Name, "role", string(r))
	}
	var all program.Look
	for _, g := range p.Generations {
		if l := g.InHand; l != nil {
			all = all.Plus(*l)
		}
	}
	for state, n := range map[string]int{"queued": all.Queued + all.Handshakes, "unread": all.Unread,
		"answering": all.Answering, "active": all.Active, "idle": all.Idle} {
		t.gauge("supervisord_connections_in_hand",
			"Connections of workers that get no new ones and are not told to stop yet.",
			float64(n), "program", p.Name, "state", state)
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

func (t values) workers(p *supervisor.ProgramStatus) {
	n := map[cohort]int{{program.RoleServing, program.Ready}: 0} // always there
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			n[cohort{g.Role, w.State}]++
		}
	}
	for k, n := range n {
		t.gauge("supervisord_workers", "Worker processes, by the role of their generation and their own state.",
			float64(n), "program", p.Name, "role", string(k.role), "state", string(k.state))
	}
}

// listener writes the accept queue of a listener that has one, what processes have done to it, and whether it is
// steered.
func (t values) listener(name string, l *supervisor.ListenerStatus) {
	labels := []string{"program", name, "listener", l.Name}
	if q := l.Queue; q != nil {
		t.gauge("supervisord_listener_accept_queue",
			"Connections that wait to be accepted, over all sockets of the listener.", float64(q.Waiting), labels...)
		t.gauge("supervisord_listener_accept_queue_limit",
			"How many connections can wait; the kernel turns more away.", float64(q.Limit), labels...)
	}
	if strings.HasPrefix(l.Address, "/") {
		t.counter("supervisord_listener_path_restored_total",
			"How often supervisord has put the path of a unix socket back.", float64(l.Path.Times()), labels...)
	}
	t.counter("supervisord_listener_shut_down_total", "How often a process has shut down a socket of the listener.",
		float64(l.ShutDowns), labels...)
	t.gauge("supervisord_listener_steered",
		"Whether each generation has a socket of its own: 1, or 0 if generations share the listener.",
		float64(bit(l.Handover != string(socket.Share))), labels...)
}
