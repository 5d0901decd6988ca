package kernel

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Process is what is known of a process, or of several together.
type Process struct {
	PID    int
	Parent int
	Group  int           // process group
	CPU    time.Duration // user and system time
	Memory int64         // resident, in bytes; what is shared counts for each process
	Began  time.Duration // since the machine was started
}

// Table is every process that can be seen, at one moment.
type Table struct {
	all      map[int]Process
	groups   map[int][]int
	children map[int][]int
}

// ticks is USER_HZ, the unit of times in /proc/PID/stat: 100 wherever Go runs.
const ticks = 100

// Processes reads /proc. What cannot be read is left out.
func Processes() *Table {
	t := &Table{all: map[int]Process{}, groups: map[int][]int{}, children: map[int][]int{}}
	dir, err := os.Open("/proc")
	if err != nil {
		return t
	}
	defer dir.Close() //nolint:errcheck // it was only read
	names, _ := dir.Readdirnames(-1)
	buf := make([]byte, 4096)
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if p, ok := parseStat(readAt(int(dir.Fd()), name+"/stat", buf)); ok {
			t.add(p)
		}
	}
	return t
}

func (t *Table) add(p Process) {
	t.all[p.PID] = p
	t.groups[p.Group] = append(t.groups[p.Group], p.PID)
	t.children[p.Parent] = append(t.children[p.Parent], p.PID)
}

// readAt reads a small file; nil: it cannot be read.
func readAt(dir int, name string, buf []byte) []byte {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// parseStat reads /proc/PID/stat, see proc_pid_stat(5).
func parseStat(line []byte) (p Process, ok bool) {
	open, after := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')') // the name may have anything in it
	if open < 1 || after < open {
		return p, false
	}
	fields := bytes.Fields(line[after+1:])
	if len(fields) < 22 {
		return p, false
	}
	var values [22]int64
	for _, i := range []int{1, 2, 11, 12, 19, 21} { // ppid, pgrp, utime, stime, starttime, rss: the first is field 3
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return p, false
		}
		values[i] = n
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	const tick = time.Second / ticks
	return Process{
		PID: pid, Parent: int(values[1]), Group: int(values[2]), CPU: time.Duration(values[11]+values[12]) * tick,
		Memory: values[21] * int64(os.Getpagesize()), Began: time.Duration(values[19]) * tick,
	}, err == nil
}

// Group sums up a process group. The rest is that of its leader, if that lives.
func (t *Table) Group(number int) (sum Process, processes int) {
	sum = t.all[number]
	sum.CPU, sum.Memory = 0, 0
	for _, pid := range t.groups[number] {
		sum.CPU += t.all[pid].CPU
		sum.Memory += t.all[pid].Memory
	}
	return sum, len(t.groups[number])
}

// Family adds to processes the rest of their process groups, and all descendants.
func (t *Table) Family(pids ...int) []int {
	var all []int
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
	for _, pid := range slices.Clone(pids) {
		add(t.groups[pid])
	}
	for i := 0; i < len(all); i++ {
		add(t.children[all[i]])
	}
	return all
}
