package kernel

import (
	"slices"

	"example.org/supervisord/internal/proc"
)

// Table is every process that can be seen, at one moment.
type Table struct {
	all      map[int]proc.Stat
	groups   map[int][]int
	children map[int][]int
}

// Processes reads /proc. What cannot be read is left out.
func Processes() *Table {
	t := &Table{all: map[int]proc.Stat{}, groups: map[int][]int{}, children: map[int][]int{}}
	for _, p := range proc.Stats() {
		t.all[p.PID] = p
		t.groups[p.Group] = append(t.groups[p.Group], p.PID)
		t.children[p.Parent] = append(t.children[p.Parent], p.PID)
	}
	return t
}

// Group sums up a process group. The rest is that of its leader, if that lives.
func (t *Table) Group(number int) (sum proc.Stat, processes int) {
	sum = t.all[number]
	sum.CPU, sum.Resident = 0, 0
	for _, pid := range t.groups[number] {
		sum.CPU += t.all[pid].CPU
		sum.Resident += t.all[pid].Resident
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
