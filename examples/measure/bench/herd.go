package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// measureHerd measures what a request costs the workers where they have one socket, a few, or one each.
// docs/performance.md has the conclusion.
func (b *bench) measureHerd(ctx context.Context) error {
	for _, n := range []int{2, 8, 32, 64, 256, b.less(1000, 300)} {
		var cells []string
		for _, perSlot := range []string{"false", `"auto"`, "true"} {
			cell, err := b.herd(ctx, n, "per_slot = "+perSlot)
			if err != nil {
				return fmt.Errorf("%d workers, per_slot = %s: %w", n, perSlot, err)
			}
			cells = append(cells, cell)
		}
		b.show(fmt.Sprintf("%d epoll workers, four clients, per_slot false, auto, true: the workers' CPU for a request (p99)",
			n), strings.Join(cells, "; "))
	}
	return nil
}

// herd puts four clients on n workers for a second.
func (b *bench) herd(ctx context.Context, n int, listener string) (string, error) {
	s, err := b.side.serve(ctx, b.light, strconv.Itoa(n), "environment = { GOMAXPROCS = \"1\" }", listener)
	if err != nil {
		return "", err
	}
	defer s.Abandon()
	before, err := cpuOfChildren(s.PID())
	if err != nil {
		return "", err
	}
	c := beginChat(s.Dial(s.Addresses[0]), 4)
	paused := kit.Pause(ctx, time.Second)
	t := c.end()
	used, err := cpuOfChildren(s.PID())
	if err != nil || paused != nil || t.Requests == 0 {
		return "", fmt.Errorf("%s: %w", &t, paused)
	}
	took := c.record.Attempts().Latencies()
	return fmt.Sprintf("%s (%s)", load.Short((used-before)/time.Duration(t.Requests)),
		load.Short(took.Quantile(0.99))), nil
}

// cpuOfChildren adds up the CPU time of a process's children.
func cpuOfChildren(pid int) (sum time.Duration, err error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name())) // the thread may have ended
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field) // digits
			used, err := clock.CPU(child)
			if err != nil {
				return 0, err
			}
			sum += used
		}
	}
	return sum, nil
}
