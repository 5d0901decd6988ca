package control

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"supervisord/internal/observe/kernel"
)

// Usage is what a worker uses: its process and everything else in its process group. What could not be found out is nil.
type Usage struct {
	Began       *time.Time `json:"began"`
	Processes   *int       `json:"processes"`
	CPUPercent  *float64   `json:"cpu_percent"` // of one CPU, since the last look if that was less than a minute ago, else since it began
	Memory      *int64     `json:"memory"`      // resident, in bytes; what is shared counts for each process
	Connections *int       `json:"connections"` // open, of those that came in on the program's listeners
}

const (
	fresh     = time.Second            // for so long what was measured is used again: asking often costs nothing
	forgotten = time.Minute            // after which a sample says nothing about "now"
	patience  = 500 * time.Millisecond // of a status; what cannot be counted within it is not known
	ticks     = 100                    // USER_HZ, the unit of times in /proc/PID/stat, is 100 wherever Go runs
)

// gauge measures what workers use, whoever asks, at most once in a while.
type gauge struct {
	mu    sync.Mutex
	known map[int]*measured // by PID
}

// measured is what was found out about one worker.
type measured struct {
	Usage
	at    time.Time
	group group
}

// group is the sum over a process group.
type group struct {
	processes int
	cpu       int64 // ticks
	memory    int64 // bytes
	began     int64 // of the leader: ticks since the machine began
}

// query is the question for some workers.
type query struct {
	pids      []int
	addresses []string // of the program's listeners
}

// measure answers for every worker that is asked for.
func (g *gauge) measure(queries []query) map[int]Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.known == nil {
		g.known = map[int]*measured{}
	}
	var groups map[int]group
	all := map[int]Usage{}
	for _, q := range queries {
		for _, pid := range q.pids {
			last := g.known[pid]
			if last == nil || now.Sub(last.at) >= fresh {
				if groups == nil {
					groups = processGroups()
				}
				g.known[pid] = look(now, last, groups, pid, q.addresses)
			}
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

// look measures one worker. Counting connections ends when the status has taken long enough.
func look(began time.Time, last *measured, groups map[int]group, pid int, addresses []string) *measured {
	m := &measured{at: began}
	if g, ok := groups[pid]; ok {
		m.group = g
		age := sinceBoot() - time.Duration(g.began)*time.Second/ticks
		cpu, birth := m.percent(last, age), began.Add(-age)
		m.Began, m.Processes, m.Memory, m.CPUPercent = &birth, &g.processes, &g.memory, &cpu
	}
	if len(addresses) == 0 || time.Since(began) > patience {
		return m
	}
	if n, err := kernel.Connections([]int{pid}, addresses); err == nil {
		m.Connections = &n
	}
	return m
}

// percent is the CPU time that was used since last, or in the age of the worker.
func (m *measured) percent(last *measured, age time.Duration) float64 {
	used, took := m.group.cpu, age
	if last != nil && last.group.began == m.group.began && m.at.Sub(last.at) < forgotten {
		used, took = used-last.group.cpu, m.at.Sub(last.at)
	}
	if took <= 0 || used < 0 {
		return 0
	}
	return 100 * float64(used) / ticks / took.Seconds()
}

// sinceBoot is the clock that the kernel counts the beginnings of processes in.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// processGroups sums up every process group there is, by its number.
func processGroups() map[int]group {
	all := map[int]group{}
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer dir.Close() //nolint:errcheck // it was only read
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // gone, or hidden
		}
		if number, one, ok := parseStat(line); ok {
			sum := all[number]
			sum.processes++
			sum.cpu += one.cpu
			sum.memory += one.memory
			if pid == number {
				sum.began = one.began
			}
			all[number] = sum
		}
	}
	return all
}

// parseStat reads /proc/PID/stat, see proc_pid_stat(5).
func parseStat(line []byte) (number int, g group, ok bool) {
	after := bytes.LastIndexByte(line, ')') // the name may have anything in it
	fields := strings.Fields(string(line[after+1:]))
	if after < 0 || len(fields) < 22 {
		return 0, g, false
	}
	var values [22]int64
	for _, i := range []int{2, 11, 12, 19, 21} { // pgrp, utime, stime, starttime, rss: the first is field 3
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, g, false
		}
		values[i] = n
	}
	return int(values[2]), group{1, values[11] + values[12], values[21] * int64(os.Getpagesize()), values[19]}, true
}
