package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// pulses returns the vitals of processes after a time, with the CPU time and the wake-ups of that time only.
func pulses(ctx context.Context, d time.Duration, pids ...int) ([]vitals, error) {
	look := func() (all []vitals, err error) {
		for _, pid := range pids {
			v, e := vitalsOf(pid)
			all, err = append(all, v), errors.Join(err, e)
		}
		return all, err
	}
	before, err := look()
	if err == nil {
		err = kit.Pause(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	after, err := look()
	for i := range after {
		after[i].cpu -= before[i].cpu
		after[i].woken += after[i].preempted - before[i].woken - before[i].preempted
	}
	return after, err
}

// serveEverything starts supervisord with metrics and the page on, and so many workers, and asks for both once:
// Prometheus asks again and again.
func (b *bench) serveEverything(ctx context.Context, workers string) (*kit.Subject, error) {
	address := kit.FreeAddress()
	s, err := b.side.with(fmt.Sprintf("http = %q", address)).serve(ctx, b.light, workers, "", "")
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"/metrics", "/"} {
		if err := get(ctx, s.Dial(address), path); err != nil {
			s.Abandon()
			return nil, err
		}
	}
	return s, nil
}

func get(ctx context.Context, dial func(context.Context) (net.Conn, error), path string) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !bytes.Contains(answer[:min(len(answer), 32)], []byte(" 200 ")) {
		err = fmt.Errorf("GET %s: %.100s", path, answer)
	}
	return err
}

// atRest is how long after the last event the master is taken to be at rest.
const atRest = 3 * time.Second

// measureIdle measures a master with ten idle workers beside a Go program that only waits for a signal, which shows
// what the Go runtime does by itself.
func (b *bench) measureIdle(ctx context.Context) error {
	s, err := b.serveEverything(ctx, "10")
	if err != nil {
		return err
	}
	defer s.Abandon()
	bare := exec.Command(b.light, "block")
	if err := bare.Start(); err != nil {
		return err
	}
	defer func() {
		bare.Process.Kill() //nolint:errcheck // it is our own child
		bare.Wait()         //nolint:errcheck // likewise
	}()
	if err := kit.Pause(ctx, atRest); err != nil {
		return err
	}
	d := time.Duration(b.less(60, 10)) * time.Second
	p, err := pulses(ctx, d, s.PID(), bare.Process.Pid)
	if err != nil {
		return err
	}
	if _, err := s.Replace(ctx); err != nil {
		return err
	}
	v, err := vitalsOf(s.PID())
	b.idleRows(p[0], p[1], v, d)
	return err
}

func (b *bench) idleRows(ours, bare, reloaded vitals, d time.Duration) {
	woken := fmt.Sprintf("%d; a Go program that only waits: %d", ours.woken, bare.woken)
	what := fmt.Sprintf("wake-ups of the idle master in %s, ten workers, metrics and page on", d)
	if b.side.Lab == nil {
		b.require(what, "0 beyond Go's own", woken, ours.woken <= bare.woken)
	} else {
		b.show(what, woken+"; systemd's watchdog is answered each 7.5 s")
	}
	b.show("CPU meanwhile", fmt.Sprintf("%s; a Go program that only waits: %s", load.Short(ours.cpu),
		load.Short(bare.cpu)))
	b.require("anonymous memory of the idle master, ten workers, metrics and page on and asked for once", "≤ 8 MiB",
		fmt.Sprintf("%s; with the pages of its program file (PSS) %s; when a reload has just ended %s; a Go program that "+
			"only waits: %s",
			mib(ours.own), mib(ours.pss), mib(reloaded.pss), mib(bare.pss)), ours.own <= 8<<20)
	b.show("descriptors and threads of the master, ten workers",
		fmt.Sprintf("%d and %d; a Go program that only waits: %d and %d",
			ours.fds, ours.threads, bare.fds, bare.threads))
}
