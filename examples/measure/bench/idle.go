package main

import (
	"fmt"
	"os/exec"
	"time"
)

// pulse is what a process did in a stretch of time.
type pulse struct {
	vitals
	cpu      time.Duration
	switches uint64
}

// pulses watches processes side by side.
func (b *bench) pulses(d time.Duration, pids ...int) ([]pulse, error) {
	read := func() ([]pulse, error) {
		var all []pulse
		for _, pid := range pids {
			v, err := vitalsOf(pid)
			if err != nil {
				return nil, err
			}
			used, err := cpuOf(pid)
			if err != nil {
				return nil, err
			}
			all = append(all, pulse{vitals: v, cpu: used, switches: v.switches + v.preempted})
		}
		return all, nil
	}
	before, err := read()
	if err != nil {
		return nil, err
	}
	if err := b.children.rest(d); err != nil {
		return nil, err
	}
	after, err := read()
	for i := range after {
		after[i].cpu -= before[i].cpu
		after[i].switches -= before[i].switches
	}
	return after, err
}

// measureIdle looks at a master with ten idle workers, beside a Go program that only waits for a signal: what that one does is
// the Go runtime's and not ours.
func (b *bench) measureIdle() error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	program := fmt.Sprintf("command = [%q]\nworkers = 10\nready = { method = \"notify\" }", b.light)
	m, err := b.startMaster(dir, program, "")
	if err != nil {
		return err
	}
	defer m.abandon()
	if _, err := m.await(serves, 1); err != nil {
		return err
	}
	bare := exec.Command(b.light, "block")
	if err := b.children.start(bare); err != nil {
		return err
	}
	defer func() {
		bare.Process.Kill() //nolint:errcheck // it is our own child
		bare.Wait()         //nolint:errcheck // likewise
	}()
	d := time.Duration(b.less(60, 10)) * time.Second
	if err := b.children.rest(3 * time.Second); err != nil { // the start is over, and the runtime has found that there is nothing to do
		return err
	}
	p, err := b.pulses(d, m.pid, bare.Process.Pid)
	if err != nil {
		return err
	}
	b.idleRows(p[0], p[1], d)
	if err := m.replace(2); err != nil {
		return err
	}
	v, err := vitalsOf(m.pid)
	if err != nil {
		return err
	}
	b.row("memory of the master, ten workers, after a reload", "≤ 16 MiB", fmt.Sprintf("%s, of which %s its own", mib(v.rss), mib(v.anon)), verdictOf(v.rss <= 16<<20))
	_, err = m.stop()
	return err
}

func (b *bench) idleRows(ours, bare pulse, d time.Duration) {
	b.row(fmt.Sprintf("wake-ups of the idle master in %s, ten workers", d), "as many as Go's own",
		fmt.Sprintf("%d; a Go program that only waits: %d", ours.switches, bare.switches), verdictOf(ours.switches <= bare.switches+1))
	b.row("CPU meanwhile", "", fmt.Sprintf("%s; a Go program that only waits: %s", short(ours.cpu), short(bare.cpu)), nothing)
	b.row("memory of the master, ten workers", "≤ 16 MiB", fmt.Sprintf("%s, of which %s its own; a Go program that only waits: %s",
		mib(ours.rss), mib(ours.anon), mib(bare.rss)), verdictOf(ours.rss <= 16<<20))
	b.row("descriptors and threads of the master, ten workers", "", fmt.Sprintf("%d and %d; a Go program that only waits: %d and %d",
		ours.fds, ours.threads, bare.fds, bare.threads), nothing)
}
