package main

import (
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// crowd is one way to run very many workers.
type crowd struct {
	strategy string
	perSlot  bool
	busy     bool
}

func (c crowd) String() string {
	s := c.strategy
	if c.perSlot {
		s += ", per_slot"
	}
	if c.busy {
		s += ", four busy clients"
	}
	return s
}

func crowds(quick bool) []crowd {
	const rolling = "rolling, max_surge 50"
	if quick {
		return []crowd{{"all", true, false}, {rolling, true, true}}
	}
	var all []crowd
	for _, strategy := range []string{"all", rolling} {
		for _, perSlot := range []bool{true, false} {
			all = append(all, crowd{strategy, perSlot, false}, crowd{strategy, perSlot, true})
		}
	}
	return all
}

func (b *bench) measureThousand() error {
	n := b.less(1000, 200)
	errs := []error{b.measureChurn(n)}
	for _, c := range crowds(b.quick) {
		if err := b.measureCrowd(c, n); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c, err))
		}
	}
	return errors.Join(errs...)
}

// measureChurn is what starting and stopping so many processes costs a program that does nothing else.
func (b *bench) measureChurn(n int) error {
	text, err := exec.Command(b.light, "churn", fmt.Sprint(n)).Output()
	if err != nil {
		return err
	}
	var up, down int64
	if _, err := fmt.Sscan(string(text), &up, &down); err != nil {
		return err
	}
	b.row(fmt.Sprintf("%d processes by a loop of fork, exec, kill, wait: CPU per process, start and stop", n), "",
		fmt.Sprintf("%s, %s", perWorker(time.Duration(up), n), perWorker(time.Duration(down-up), n)), nothing)
	return nil
}

func perWorker(d time.Duration, n int) string {
	return fmt.Sprintf("%.2f ms", d.Seconds()*1000/float64(n))
}

// phase is what a start, a roll or a stop took.
type phase struct {
	cpu, wall time.Duration
}

func (p phase) text(n int) string { return fmt.Sprintf("%s (%s)", perWorker(p.cpu, n), short(p.wall)) }

// stopwatch divides the life of a process into phases.
type stopwatch struct {
	pid  int
	cpu  time.Duration
	wall int64
}

func (s *stopwatch) phase(used time.Duration) phase {
	now := monotonic()
	p := phase{used - s.cpu, time.Duration(now - s.wall)}
	s.cpu, s.wall = used, now
	return p
}

func (s *stopwatch) lap() (phase, error) {
	used, err := cpuOf(s.pid)
	return s.phase(used), err
}

func (b *bench) measureCrowd(c crowd, n int) error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	reload := "{ strategy = \"all\" }"
	if c.strategy != "all" {
		reload = "{ strategy = \"rolling\", max_surge = 50 }"
	}
	program := fmt.Sprintf("command = [%q]\nworkers = %d\nready = { method = \"notify\", timeout = \"180s\" }\nreload = %s\nenvironment = { GOMAXPROCS = \"1\" }", b.light, n, reload)
	watch := &stopwatch{wall: monotonic()}
	m, err := b.startMaster(dir, program, fmt.Sprintf("per_slot = %t", c.perSlot))
	if err != nil {
		return err
	}
	defer m.abandon()
	watch.pid = m.pid
	clients := 0
	if c.busy {
		clients = 4
	}
	if _, err := m.await(ready, 0); err != nil {
		return err
	}
	busy := chat(m.address, clients, nil)
	defer busy.end()
	return b.timeCrowd(c, n, m, watch, busy)
}

func (b *bench) timeCrowd(c crowd, n int, m *master, watch *stopwatch, busy *chatter) error {
	if _, err := m.await(serves, 1); err != nil {
		return err
	}
	start, err := watch.lap()
	if err != nil {
		return err
	}
	if err := m.replace(2); err != nil {
		return err
	}
	roll, err := watch.lap()
	if err != nil {
		return err
	}
	v, err := vitalsOf(m.pid)
	if err != nil {
		return err
	}
	busy.end()
	watch.wall = monotonic()
	used, err := m.stop()
	if err != nil {
		return err
	}
	stop := watch.phase(used)
	const most = time.Millisecond
	each := time.Duration(n) * most
	b.row(fmt.Sprintf("%d workers, %s: the master's CPU per worker (wall): start, roll, stop", n, c), "≤ 1 ms each",
		fmt.Sprintf("%s, %s, %s; in all %s; %s, %d descriptors%s", start.text(n), roll.text(n), stop.text(n),
			perWorker(start.cpu+roll.cpu+stop.cpu, n), mib(v.rss), v.fds, busy.text()),
		verdictOf(start.cpu <= each && roll.cpu <= each && stop.cpu <= each && busy.failed.Load() == 0 && m.killed == 0 && m.failed == 0))
	return nil
}

func (t *chatter) text() string {
	if t.answered.Load()+t.failed.Load() == 0 {
		return ""
	}
	s := fmt.Sprintf("; %d failed of %d", t.failed.Load(), t.answered.Load()+t.failed.Load())
	if err := t.first.Load(); err != nil {
		s += fmt.Sprintf(" (the first: %v)", *err)
	}
	return s
}
