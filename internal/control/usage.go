package control

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/internal/proc"
)

// Usage is what a worker uses: its process and everything else in its process group. What could not be found out is nil.
type Usage struct {
	Began          *time.Time `json:"began"`
	Processes      *int       `json:"processes"`
	CPUPercent     *float64   `json:"cpu_percent"` // of one CPU, since the last look if that was less than a minute ago, else since it began
	Memory         *int64     `json:"memory"`      // resident, in bytes; what is shared counts for each process
	Connections    *int       `json:"connections"` // open, of those that came in on the program's listeners, in its descendants too
	ConnectionsWhy string     `json:"connections_error,omitempty"`
}

const (
	fresh     = time.Second     // for so long what was measured is used again: asking often costs nothing
	forgotten = time.Minute     // after which a sample says nothing about "now"
	patience  = 2 * time.Second // of a status; what cannot be counted within it is not known
)

// Gauge measures what workers use, whoever asks, at most once in a while. Its zero value is ready; it is for several goroutines.
type Gauge struct {
	mu    sync.Mutex
	known map[int]*measured // by PID
}

// measured is what was found out about one worker.
type measured struct {
	Usage
	at    time.Time
	group proc.Stat
}

// query is the question for the workers of a program.
type query struct {
	pids      []int
	addresses []string // of the program's listeners
}

// measure answers for every worker that is asked for. Those about whom nothing fresh is known are looked at together.
func (g *Gauge) measure(queries []query) map[int]Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.known == nil {
		g.known = map[int]*measured{}
	}
	var stale []kernel.Query
	for _, q := range queries {
		for _, pid := range q.pids {
			if last := g.known[pid]; last == nil || now.Sub(last.at) >= fresh {
				stale = append(stale, kernel.Query{PIDs: []int{pid}, Addresses: q.addresses})
			}
		}
	}
	g.look(now, stale)
	all := map[int]Usage{}
	for _, q := range queries {
		for _, pid := range q.pids {
			all[pid] = g.known[pid].Usage
		}
	}
	for pid, m := range g.known {
		if now.Sub(m.at) > forgotten {
			delete(g.known, pid)
		}
	}
	return all
}

// look measures workers, one in each query: one look at all processes, and one at all their connections.
func (g *Gauge) look(now time.Time, workers []kernel.Query) {
	if len(workers) == 0 {
		return
	}
	table := kernel.Processes()
	boot := sinceBoot()
	for i, count := range table.Connections(workers, now.Add(patience)) {
		pid := workers[i].PIDs[0]
		m := &measured{at: now}
		m.weigh(table, pid, g.known[pid], boot)
		if m.Connections = &count.Open; count.Err != nil {
			m.Connections, m.ConnectionsWhy = nil, count.Err.Error()
		}
		g.known[pid] = m
	}
}

// weigh fills in what the process group of a worker uses.
func (m *measured) weigh(table *kernel.Table, pid int, last *measured, boot time.Duration) {
	group, processes := table.Group(pid)
	if processes == 0 {
		return
	}
	m.group = group
	age := boot - group.Began
	cpu, birth := m.percent(last, age), m.at.Add(-age)
	m.Began, m.Processes, m.Memory, m.CPUPercent = &birth, &processes, &m.group.Resident, &cpu
}

// percent is the CPU time that was used since last, or in the age of the worker.
func (m *measured) percent(last *measured, age time.Duration) float64 {
	used, took := m.group.CPU, age
	if last != nil && last.group.Began == m.group.Began && m.at.Sub(last.at) < forgotten {
		used, took = used-last.group.CPU, m.at.Sub(last.at)
	}
	if took <= 0 || used < 0 {
		return 0
	}
	return 100 * used.Seconds() / took.Seconds()
}

// sinceBoot is the clock that the kernel counts the beginnings of processes in.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
