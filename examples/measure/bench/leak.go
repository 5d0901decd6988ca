package main

import (
	"fmt"
	"time"
)

// measureLeak reloads again and again, one after the other, and compares what the master holds.
func (b *bench) measureLeak() error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	program := fmt.Sprintf("command = [%q]\nworkers = 2\nready = { method = \"notify\" }", b.light)
	m, err := b.startMaster(dir, program, "")
	if err != nil {
		return err
	}
	defer m.abandon()
	if _, err := m.await(serves, 1); err != nil {
		return err
	}
	const warm = 20 // the runtime has its threads and its heap
	n := b.less(1000, 50)
	before, _, err := m.replaceMany(2, warm)
	if err != nil {
		return err
	}
	began := time.Now()
	middle, first, err := m.replaceMany(2+warm, n/2)
	if err != nil {
		return err
	}
	after, second, err := m.replaceMany(2+warm+n/2, n/2)
	if err != nil {
		return err
	}
	used := first + second
	b.row(fmt.Sprintf("descriptors of the master before, in the middle and after %d reloads", n), "the same", fmt.Sprintf("%d, %d, %d", before.fds, middle.fds, after.fds), verdictOf(after.fds <= before.fds))
	b.row("its memory", "no growth in the second half, ≤ 16 MiB", fmt.Sprintf("%s, %s, %s", mib(before.rss), mib(middle.rss), mib(after.rss)),
		verdictOf(after.rss <= middle.rss+1<<20 && after.rss <= 16<<20))
	b.row("its threads", "", fmt.Sprintf("%d, %d, %d", before.threads, middle.threads, after.threads), nothing)
	b.row("its CPU per reload, two workers (wall)", "", fmt.Sprintf("%s (%s)", short(used/time.Duration(n)), short(time.Since(began)/time.Duration(n))), nothing)
	_, err = m.stop()
	return err
}

// replaceMany reloads n times, the first of them into that generation, and returns what the master then holds and what it used.
func (m *master) replaceMany(generation, n int) (vitals, time.Duration, error) {
	before, err := cpuOf(m.pid)
	if err != nil {
		return vitals{}, 0, err
	}
	for g := range n {
		if err := m.replace(generation + g); err != nil {
			return vitals{}, 0, err
		}
	}
	after, err := cpuOf(m.pid)
	if err != nil {
		return vitals{}, 0, err
	}
	v, err := settled(m.pid)
	return v, after - before, err
}

// settled is what a process holds when it is at rest: it may just be reading a file. The one with the fewest descriptors counts.
func settled(pid int) (vitals, error) {
	least, err := vitalsOf(pid)
	tick := time.Tick(20 * time.Millisecond)
	for range 10 {
		<-tick
		v, err := vitalsOf(pid)
		if err != nil {
			return v, err
		}
		if v.fds <= least.fds {
			least = v
		}
	}
	return least, err
}
