// Package usage fills in what the kernel says of the workers and listeners in a status.
package usage

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

const (
	reuseFor   = time.Second     // how long a measurement is used again, so that asking often costs nothing
	stuckAfter = 2 * time.Second // how long a connection may wait to be accepted
	keepFor    = time.Minute     // how long a measurement serves for comparison
	timeout    = 2 * time.Second // for counting connections; what is not counted by then is not known
)

// Gauge measures what workers use, for all who ask. Its zero value is ready to use, from several goroutines.
type Gauge struct {
	mu    sync.Mutex
	known map[int]*found // by PID
}

// found is what was found out about one worker.
type found struct {
	supervisor.Usage
	at    time.Time
	group proc.Stat
}

// Fill fills in the usage of all workers and the accept queues of all listeners.
func (g *Gauge) Fill(st *supervisor.Status) {
	FillQueues(st)
	fillStuck(st)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.measure(now, g.stale(st, now))
	for w := range workers(st) {
		if m := g.known[w.PID]; m != nil {
			w.Usage = m.Usage
		}
	}
	for pid, m := range g.known {
		if now.Sub(m.at) > keepFor {
			delete(g.known, pid)
		}
	}
}

// FillQueues fills in the accept queues only, which is cheap.
func FillQueues(st *supervisor.Status) {
	for i := range st.Programs {
		for j := range st.Programs[i].Listeners {
			l := &st.Programs[i].Listeners[j]
			l.Queue = acceptQueue(*l)
		}
	}
}

// fillStuck looks how long connections wait, where there are some that should be accepted. Those in the socket of a
// generation on trial may wait.
func fillStuck(st *supervisor.Status) {
	for i := range st.Programs {
		p := &st.Programs[i]
		for _, l := range p.Listeners {
			at, err := netip.ParseAddrPort(l.Address)
			if err != nil || l.Queue == nil || l.Queue.Waiting == 0 || p.Paused != nil || p.State != program.Up {
				continue
			}
			if waits, err := diag.TCPQueued(at.Port()); err == nil && waits >= stuckAfter {
				l.Queue.Stuck = waits
			}
		}
	}
}

// acceptQueue sums over the sockets of a listener; nil: none of them has a queue. Sockets that get no new connections
// add nothing to the limit.
func acceptQueue(l supervisor.ListenerStatus) (sum *supervisor.AcceptQueue) {
	longest := 0
	for _, fd := range l.FDs {
		waiting, limit, err := queueOf(fd)
		if err != nil {
			continue // closed meanwhile, or a datagram socket
		}
		if sum == nil {
			sum = &supervisor.AcceptQueue{}
		}
		sum.Waiting += waiting
		sum.Limit += limit
		longest = max(longest, limit)
	}
	open := 0
	for _, lane := range l.Lanes {
		if lane.Share > 0 {
			open += len(lane.Members)
		}
	}
	if sum != nil && open > 0 {
		sum.Limit = longest * open
	}
	return sum
}

// workers visits the workers that have a process.
func workers(st *supervisor.Status) func(yield func(*supervisor.WorkerStatus) bool) {
	return func(yield func(*supervisor.WorkerStatus) bool) {
		for i := range st.Programs {
			for _, g := range st.Programs[i].Generations {
				for k := range g.Workers {
					if w := &g.Workers[k]; w.PID > 0 && !yield(w) {
						return
					}
				}
			}
		}
	}
}

// stale asks about the workers whose last measurement is too old, one in each query.
func (g *Gauge) stale(st *supervisor.Status, now time.Time) (queries []query) {
	for _, p := range st.Programs {
		addresses := p.Addresses()
		for _, gen := range p.Generations {
			for _, pid := range gen.PIDs() {
				if last := g.known[pid]; last == nil || now.Sub(last.at) >= reuseFor {
					queries = append(queries, query{PIDs: []int{pid}, Addresses: addresses})
				}
			}
		}
	}
	return queries
}

// measure looks once at all processes, and once at the connections of all these workers.
func (g *Gauge) measure(now time.Time, queries []query) {
	if len(queries) == 0 {
		return
	}
	if g.known == nil {
		g.known = map[int]*found{}
	}
	table, boot := processes(), sinceBoot()
	for i, count := range table.connections(queries, now.Add(timeout)) {
		pid := queries[i].PIDs[0]
		m := &found{at: now}
		m.weigh(table, pid, g.known[pid], boot)
		if m.Connections = &count.Open; count.Err != nil {
			m.Connections, m.ConnectionsError = nil, count.Err.Error()
		}
		g.known[pid] = m
	}
}

// weigh measures the process group of a worker.
func (m *found) weigh(table *processTable, pid int, last *found, boot time.Duration) {
	group, processes := table.group(pid)
	if processes == 0 {
		return
	}
	m.group = group
	age := boot - group.Began
	cpu, began := m.cpuPercent(last, age), m.at.Add(-age)
	m.Began, m.Processes, m.Memory, m.CPUPercent = &began, &processes, &m.group.Resident, &cpu
}

// cpuPercent is the share of a CPU used since the last measurement, or over the age of the worker.
func (m *found) cpuPercent(last *found, age time.Duration) float64 {
	used, took := m.group.CPU, age
	if last != nil && last.group.Began == m.group.Began && m.at.Sub(last.at) < keepFor {
		used, took = used-last.group.CPU, m.at.Sub(last.at)
	}
	if took <= 0 || used < 0 {
		return 0
	}
	return 100 * used.Seconds() / took.Seconds()
}

// sinceBoot is the clock in which the kernel counts when a process began.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// errNoQueue says that connections do not queue on a socket.
var errNoQueue = errors.New("not a listening socket")

// queueOf returns how many connections wait to be accepted from one of this process's own listening sockets, and how
// many can. It asks TCP sockets by TCP_INFO (tcp(7); tcpi_unacked and tcpi_sacked of a listener are the queue and its
// limit), unix sockets by sock_diag(7). Errors: errNoQueue for anything else.
func queueOf(fd int) (waiting, limit int, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt", err)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return 0, 0, errNoQueue
	}
	switch domain {
	case unix.AF_INET, unix.AF_INET6:
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, 0, os.NewSyscallError("getsockopt", err)
		}
		return int(info.Unacked), int(info.Sacked), nil
	case unix.AF_UNIX:
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return 0, 0, os.NewSyscallError("fstat", err)
		}
		return diag.UnixQueue(stat.Ino)
	}
	return 0, 0, errNoQueue
}

// processTable is every process that can be seen, at one moment.
type processTable struct {
	all      map[int]proc.Stat
	groups   map[int][]int
	children map[int][]int
}

// processes reads /proc. It leaves out what it cannot read.
func processes() *processTable {
	t := &processTable{all: map[int]proc.Stat{}, groups: map[int][]int{}, children: map[int][]int{}}
	for _, p := range proc.Stats() {
		t.all[p.PID] = p
		t.groups[p.Group] = append(t.groups[p.Group], p.PID)
		t.children[p.Parent] = append(t.children[p.Parent], p.PID)
	}
	return t
}

// group sums up the CPU time and memory of a process group. It began when the oldest of its processes did. The other
// fields are those of its leader, if that lives.
func (t *processTable) group(number int) (sum proc.Stat, processes int) {
	sum = t.all[number]
	sum.CPU, sum.Resident = 0, 0
	for _, pid := range t.groups[number] {
		sum.CPU += t.all[pid].CPU
		sum.Resident += t.all[pid].Resident
		if began := t.all[pid].Began; sum.Began == 0 || began < sum.Began {
			sum.Began = began
		}
	}
	return sum, len(t.groups[number])
}

// family returns processes, the rest of their process groups, and all descendants of these.
func (t *processTable) family(pids []int) (all []int) {
	known := map[int]bool{}
	add := func(more []int) {
		for _, pid := range more {
			if !known[pid] {
				known[pid] = true
				all = append(all, pid)
			}
		}
	}
	add(pids)
	for _, pid := range pids {
		add(t.groups[pid])
	}
	for i := 0; i < len(all); i++ {
		add(t.children[all[i]])
	}
	return all
}
