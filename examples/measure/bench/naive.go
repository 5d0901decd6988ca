package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/supervisor/program"
)

// The keys of a listener with one socket for all generations, and with one for each.
const (
	shared  = `handover = "share"`
	steered = `handover = "steer"`
)

// measureNaive measures what is lost of a worker that calls http.Server.Shutdown on TERM and nothing else, by way to
// hand over.
func (b *bench) measureNaive(ctx context.Context) error {
	var errs []error
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond} {
		for _, way := range []struct{ name, listener string }{{"one shared socket, as every supervisor", shared},
			{"steered", steered}} {
			if err := b.measureShutdown(ctx, way.name, way.listener, every); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", way.name, err))
			}
		}
	}
	return errors.Join(append(errs, b.measureShutdownUnderStartServer(ctx))...)
}

func shutdownRow(supervisor string, every time.Duration) string {
	return fmt.Sprintf("failed requests, Go `Shutdown`: %s, new connections, 1,000 clients, a HUP every %s", supervisor,
		every)
}

func (b *bench) measureShutdown(ctx context.Context, name, listener string, every time.Duration) error {
	s, err := b.side.serve(ctx, b.naive, "1", "", listener)
	if err != nil {
		return err
	}
	defer s.Abandon()
	t, sent, err := b.pressed(ctx, s.Addresses[0], every, s.HUP)
	if err != nil {
		return err
	}
	reloads, killed, failed := s.Count(program.GenerationServes)-1, s.Count(program.WorkerKilled), s.Count(
		program.TrialFailed)
	text := fmt.Sprintf("%s, %s/s; %d HUPs, %d reloads", &t, t.PerSecond(), sent, reloads)
	if listener == shared {
		b.show(shutdownRow("supervisord, "+name, every), text)
		return nil
	}
	b.require(shutdownRow("supervisord, "+name, every), "0", text, t.Failed == 0 && reloads > 0 && killed+failed == 0)
	return nil
}

// measureShutdownUnderStartServer has a HUP each second only: start_server considers a worker ready after a second.
func (b *bench) measureShutdownUnderStartServer(ctx context.Context) error {
	path, err := exec.LookPath("start_server")
	if err != nil {
		b.show(shutdownRow("start_server", time.Second), "not installed")
		return nil
	}
	address := kit.FreeAddress()
	var s *process.Child
	if s, err = kit.Alone(ctx, address,
		exec.Command(path, "--port", address, "--backlog", "4096", "--", b.naive)); err != nil {
		return err
	}
	defer s.Stop(kit.Patience)
	t, sent, err := b.pressed(ctx, address, time.Second, func() error { return s.Cmd.Process.Signal(unix.SIGHUP) })
	if err == nil {
		b.show(shutdownRow("start_server", time.Second), fmt.Sprintf("%s, %s/s; %d HUPs", &t, t.PerSecond(), sent))
	}
	return err
}

// pressed sends requests on new connections while HUPs come, and more of them until three HUPs have come.
func (b *bench) pressed(ctx context.Context, address string, every time.Duration, hup func() error) (t kit.Totals,
	sent int, err error) {
	err = kit.During(ctx, every, func() error { sent++; return hup() }, func() (err error) {
		for began := time.Now(); err == nil && (t.Requests == 0 || time.Since(began) < 3*every+every/2); {
			err = hammer(ctx, &t, address, b.less(100_000, 10_000), false)
		}
		return err
	})
	return t, sent, err
}
