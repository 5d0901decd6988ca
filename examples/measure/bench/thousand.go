package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// crowd is one way to run very many workers.
type crowd struct{ rolling, perSlot, busy bool }

func (c crowd) String() string {
	text := "all"
	if c.rolling {
		text = "rolling, max_surge 50"
	}
	if c.perSlot {
		text += ", per_slot"
	}
	if c.busy {
		text += ", four busy clients"
	}
	return text
}

func crowds(quick bool) (all []crowd) {
	if quick {
		return []crowd{{perSlot: true}, {true, true, true}}
	}
	for i := range 8 {
		all = append(all, crowd{rolling: i&4 != 0, perSlot: i&2 == 0, busy: i&1 != 0})
	}
	return all
}

func (b *bench) measureThousand(ctx context.Context) error {
	n := b.less(1000, 200)
	errs := []error{b.measureChurn(n)}
	for _, c := range crowds(b.quick) {
		if err := b.measureCrowd(ctx, c, n); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c, err))
		}
	}
	return errors.Join(errs...)
}

// measureChurn measures what starting and stopping so many processes costs a program that does nothing else.
func (b *bench) measureChurn(n int) error {
	text, err := exec.Command(b.light, "churn", strconv.Itoa(n)).Output()
	if err != nil {
		return err
	}
	var up, down int64
	if _, err := fmt.Sscan(string(text), &up, &down); err != nil {
		return err
	}
	b.show(fmt.Sprintf("%d processes by a loop of fork, exec, kill, wait: CPU per process, start and stop", n),
		fmt.Sprintf("%s, %s", perWorker(time.Duration(up), n), perWorker(time.Duration(down-up), n)))
	return nil
}

func perWorker(d time.Duration, n int) string {
	return fmt.Sprintf("%.2f ms", d.Seconds()*1000/float64(n))
}

// phase is what a start, a roll or a stop took: the master's CPU time, and the time by the clock.
type phase struct{ cpu, wall time.Duration }

// stopwatch divides the life of the master into phases.
type stopwatch struct {
	last   phase
	phases []phase
}

// lap ends a phase. cpu is what the master has used so far.
func (w *stopwatch) lap(cpu time.Duration) {
	now := phase{cpu, clock.Monotonic()}
	w.phases = append(w.phases, phase{now.cpu - w.last.cpu, now.wall - w.last.wall})
	w.last = now
}

func (b *bench) measureCrowd(ctx context.Context, c crowd, n int) error {
	reload := `{ strategy = "all" }`
	if c.rolling {
		reload = `{ strategy = "rolling", max_surge = 50 }`
	}
	w := &stopwatch{last: phase{wall: clock.Monotonic()}}
	s, err := kit.Start(b.supervisord, table(b.light, strconv.Itoa(n), "reload = "+reload+"\nenvironment = { GOMAXPROCS = \"1\" }", fmt.Sprintf("per_slot = %t", c.perSlot)))
	if err != nil {
		return err
	}
	defer s.Abandon()
	if _, err := s.Await(ctx, 0, func(u *supervisor.Update) bool { return u.Kind == program.WorkerReady }); err != nil {
		return err
	}
	clients := 0
	if c.busy {
		clients = 4
	}
	busy := beginChat(s.Addresses[0], clients)
	defer busy.end()
	if err := s.Serves(ctx, 1); err != nil {
		return err
	}
	used, err := clock.CPU(s.PID())
	w.lap(used)
	if err != nil {
		return err
	}
	if _, err := s.Replace(ctx); err != nil {
		return err
	}
	v, err := vitalsOf(s.PID())
	w.lap(v.cpu)
	if err != nil {
		return err
	}
	t := busy.end()
	w.last.wall = clock.Monotonic()
	s.Stop(kit.Patience)
	w.lap(s.CPU)
	b.crowdRow(c, n, w.phases, v, t, s.Count(program.WorkerKilled)+s.Count(program.TrialFailed) == 0)
	return nil
}

func (b *bench) crowdRow(c crowd, n int, phases []phase, v vitals, t kit.Totals, well bool) {
	var each []string
	all := time.Duration(0)
	for _, p := range phases {
		each = append(each, fmt.Sprintf("%s (%s)", perWorker(p.cpu, n), load.Short(p.wall)))
		all += p.cpu
		well = well && p.cpu <= time.Duration(n)*time.Millisecond
	}
	text := fmt.Sprintf("%s; in all %s; %s, %d descriptors", strings.Join(each, ", "), perWorker(all, n), mib(v.rss), v.fds)
	if c.busy {
		text += "; " + t.String()
	}
	b.require(fmt.Sprintf("%d workers, %s: the master's CPU per worker (wall): start, roll, stop", n, c), "≤ 1 ms each", text, well && t.Failed == 0)
}
