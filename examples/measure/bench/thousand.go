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
	"example.org/supervisord/supervisor/program"
)

// strategies are the ways to roll 1,000 workers.
var strategies = []struct{ name, keys string }{
	{"all at once", `reload = { strategy = "all" }`},
	{"rolling, max_surge 50", `reload = { strategy = "rolling", max_surge = 50 }`},
}

func (b *bench) measureThousand(ctx context.Context) error {
	n := b.less(1000, 200)
	var errs []error
	if b.side.Lab == nil {
		errs = append(errs, b.measureChurn(n))
	}
	for _, strategy := range strategies {
		if err := b.measureRoll(ctx, strategy.name, strategy.keys, n); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strategy.name, err))
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
	b.show(fmt.Sprintf("%d processes by a loop of fork, exec, kill, wait: CPU for a process started and stopped", n),
		perWorker(time.Duration(down), n))
	return nil
}

func perWorker(d time.Duration, n int) string {
	return fmt.Sprintf("%.2f ms", d.Seconds()*1000/float64(n))
}

// roll is what the replacement of all workers took: CPU time of the master and of systemd, and the time by the clock.
type roll struct {
	cpu, systemd, wall time.Duration
	slow               bool
}

// longestRoll limits the wait for a roll.
const longestRoll = 75 * time.Second

// roll replaces all workers once.
func (b *bench) roll(ctx context.Context, s *kit.Subject) (r roll, err error) {
	before, err := cpuOf(s)
	if err != nil {
		return r, err
	}
	from, began := s.Len(), clock.Monotonic()
	r.slow, err = within(ctx, longestRoll, s.HUP, func(ctx context.Context) error {
		_, err := s.Await(ctx, from, gone(1))
		return err
	})
	r.wall = clock.Monotonic() - began
	after, e := cpuOf(s)
	r.cpu, r.systemd = after.cpu-before.cpu, after.systemd-before.systemd
	return r, errors.Join(err, e)
}

// cpuOf returns the CPU time so far.
func cpuOf(s *kit.Subject) (r roll, err error) {
	if s.Lab != nil {
		if r.systemd, err = clock.CPU(s.Lab.PID); err != nil {
			return r, err
		}
	}
	r.cpu, err = clock.CPU(s.PID())
	return r, err
}

// serveCrowd starts n workers with one thread each.
func (b *bench) serveCrowd(ctx context.Context, n int, keys string) (*kit.Subject, error) {
	return b.side.serve(ctx, b.light, strconv.Itoa(n), keys+"\nenvironment = { GOMAXPROCS = \"1\" }", "")
}

// measureRoll rolls n workers without clients, three times or until that has taken half a minute.
func (b *bench) measureRoll(ctx context.Context, name, keys string, n int) error {
	s, err := b.serveCrowd(ctx, n, keys)
	if err != nil {
		return err
	}
	defer s.Abandon()
	started, err := clock.CPU(s.PID())
	if err != nil {
		return err
	}
	var cpu, systemd []time.Duration
	var each []string
	slow := false
	for began := time.Now(); len(cpu) < 3 && !slow && (len(cpu) == 0 || time.Since(began) < 15*time.Second); {
		r, err := b.roll(ctx, s)
		if err != nil {
			return err
		}
		slow = r.slow
		cpu, systemd = append(cpu, r.cpu), append(systemd, r.systemd)
		each = append(each, fmt.Sprintf("%s (%s)", perWorker(r.cpu, n), load.Short(r.wall)))
	}
	v, err := settled(s.PID())
	if err != nil {
		return err
	}
	limit := 500 * time.Microsecond
	if b.side.Lab != nil {
		limit = 800 * time.Microsecond
	}
	what := fmt.Sprintf("%d workers, %s: the master's CPU for a worker started and stopped, median (each roll, wall)", n,
		name)
	killed := s.Count(program.WorkerKilled) + s.Count(program.TrialFailed)
	middle := sorted(cpu).Quantile(0.5)
	text := fmt.Sprintf("%s (%s); the first start %s; %s, %d descriptors%s", perWorker(middle, n),
		strings.Join(each, ", "), perWorker(started, n),
		mib(v.pss), v.fds, troubled(killed, slow))
	if b.side.Lab != nil {
		text += "; systemd itself " + perWorker(sorted(systemd).Quantile(0.5), n)
	}
	b.require(what, fmt.Sprintf("≤ %.1f ms", limit.Seconds()*1000), text,
		middle <= time.Duration(n)*limit && killed == 0 && !slow)
	return nil
}

func troubled(killed int, slow bool) (text string) {
	if killed > 0 {
		text += fmt.Sprintf("; %d workers or generations failed", killed)
	}
	if slow {
		text += fmt.Sprintf("; not over after %s", longestRoll)
	}
	return text
}

// measureBusy rolls n workers in the default configuration while four clients ask without a rest.
func (b *bench) measureBusy(ctx context.Context) error {
	n := b.less(1000, 200)
	s, err := b.serveCrowd(ctx, n, "")
	if err != nil {
		return err
	}
	defer s.Abandon()
	c := beginChat(s.Dial(s.Addresses[0]), 4)
	defer c.end()
	if err := kit.Pause(ctx, time.Second); err != nil {
		return err
	}
	r, err := b.roll(ctx, s)
	if err != nil {
		return err
	}
	t := c.end()
	killed := s.Count(program.WorkerKilled) + s.Count(program.TrialFailed)
	b.require(fmt.Sprintf("%d workers, four busy clients, default configuration: wall time of a roll", n),
		"≤ 8 s, 0 failed",
		fmt.Sprintf("%s; the master's CPU %s for each worker; %s, %s/s%s", load.Short(r.wall), perWorker(r.cpu, n), &t,
			t.PerSecond(), troubled(killed, r.slow)),
		!r.slow && r.wall <= 8*time.Second && t.Failed+killed == 0)
	return nil
}
