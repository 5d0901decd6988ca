package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/process"
)

func (b *bench) measureRivals(ctx context.Context) error {
	return errors.Join(b.measurePlain(ctx), b.measureStartServer(ctx))
}

// measurePlain restarts the example worker as one does without a supervisor: TERM, wait, start. The worker is told not to linger for
// idle connections, which would be pointless here.
func (b *bench) measurePlain(ctx context.Context) error {
	address := kit.FreeAddress()
	start := func() (*process.Child, error) {
		return kit.Alone(ctx, address, exec.Command(b.hello, "-address", address, "-linger", "1ms"))
	}
	w, err := start()
	if err != nil {
		return err
	}
	defer func() { w.Stop(0) }()
	restart := func() error {
		w.Stop(kit.Patience)
		next, err := start()
		if err == nil {
			w = next
		}
		return err
	}
	const rate = 500
	var l steadyLoad
	err = kit.During(ctx, time.Second, restart, func() (err error) {
		l, err = steady(ctx, address, rate, time.Duration(b.less(10, 4))*time.Second)
		return err
	})
	b.show(fmt.Sprintf("no supervisor, kill and start each second, %d/s, p50 / p99 / max", rate), l.String())
	return err
}

// measureStartServer reloads Perl's start_server as measureHandover does supervisord. It considers a worker ready after a second:
// that is its default.
func (b *bench) measureStartServer(ctx context.Context) error {
	path, err := exec.LookPath("start_server")
	if err != nil {
		b.show("start_server", "not installed")
		return nil
	}
	address, file := kit.FreeAddress(), filepath.Join(b.dir, "start_server")
	cmd := exec.Command(path, "--port", address, "--", b.light)
	cmd.Env = append(cmd.Environ(), "BENCH_STAMPS="+file)
	s, err := kit.Alone(ctx, address, cmd)
	if err != nil {
		return err
	}
	defer s.Stop(kit.Patience)
	c := beginChat(address, 1)
	defer c.end()
	hups, used, err := b.reloadStartServer(ctx, cmd.Process.Pid)
	if err != nil {
		return err
	}
	c.end()
	stamps, err := readStamps(file)
	if err != nil {
		return err
	}
	var toFirst, toTerm []time.Duration
	for i, at := range hups { // its generations begin with 1
		if first := c.first[i+2]; first > 0 {
			toFirst = append(toFirst, first-at)
		}
		if old := stamps[i+1]; old != nil && old.term > 0 {
			toTerm = append(toTerm, old.term-at)
		}
	}
	b.show(fmt.Sprintf("start_server (Perl), %d reloads, HUP → first answer of the new generation, p50 / p99 / max", len(hups)), sorted(toFirst).String())
	b.show("start_server: HUP → the old worker has TERM", sorted(toTerm).String())
	b.show("start_server: CPU per reload, one worker", load.Short(used/time.Duration(len(hups))))
	return nil
}

// reloadStartServer returns when it sent each HUP, and the CPU time that start_server used for them.
func (b *bench) reloadStartServer(ctx context.Context, pid int) (hups []time.Duration, used time.Duration, err error) {
	if err := kit.Pause(ctx, 2*time.Second); err != nil { // the first worker has lived for its second
		return nil, 0, err
	}
	before, err := clock.CPU(pid)
	if err != nil {
		return nil, 0, err
	}
	for range b.less(20, 3) {
		hups = append(hups, clock.Monotonic())
		if err := unix.Kill(pid, unix.SIGHUP); err != nil {
			return nil, 0, err
		}
		if err := kit.Pause(ctx, 1500*time.Millisecond); err != nil { // it does not report that it is done
			return nil, 0, err
		}
	}
	after, err := clock.CPU(pid)
	return hups, after - before, err
}
