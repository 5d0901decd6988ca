//go:build amd64

package faults

import (
	"errors"
	"fmt"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// reload reloads the program and waits until the old generation is gone.
func (sc *scene) reload() error {
	return verdict(sc.client.AwaitReload(soon(), control.ReloadBody{Drained: true}, patience, unseen))
}

// verdict returns why what a client has waited for has failed, as the client was told.
func verdict(v *control.Verdict, err error) error {
	switch {
	case err != nil:
		return err
	case v.Outcome == program.Serves:
		return nil
	}
	p := v.Programs[0]
	if p.Reload != nil && p.Reload.Failure != nil {
		return fmt.Errorf("%s: %s: %s", v.Outcome, p.Reload.Failure.Step, p.Reload.Failure.Reason)
	}
	return fmt.Errorf("%s: %s", v.Outcome, p.Reason)
}

func unseen(control.WaitLine) {}

// upgrade replaces supervisord in place.
func (sc *scene) upgrade() error {
	before, err := sc.client.Status(soon(), "", false)
	if err == nil {
		err = sc.client.Upgrade(soon())
	}
	if err == nil {
		_, err = sc.client.AwaitImage(soon(), before)
	}
	return err
}

// adopt kills supervisord, and starts another one, which adopts the orphans.
func (sc *scene) adopt() error {
	sc.m.Die()
	sc.orphaned = true
	return sc.launch()
}

// scale starts a second worker, and stops one.
func (sc *scene) scale() error {
	for _, n := range []int{2, 1} {
		if _, err := sc.client.Program(soon(), "web", "scale", control.ScaleBody{Workers: n}); err != nil {
			return err
		}
		if err := until(patience, func() error { return sc.hasWorkers(n) }); err != nil {
			return err
		}
	}
	return nil
}

// hasWorkers returns an error unless so many workers serve and no others run.
func (sc *scene) hasWorkers(n int) error {
	st, err := sc.client.Status(soon(), "web", false)
	if err != nil {
		return err
	}
	ready, all := 0, 0
	for _, g := range st.Programs[0].Generations {
		for _, w := range g.Workers {
			all++
			if w.State == program.Ready {
				ready++
			}
		}
	}
	if ready != n || all != n {
		return fmt.Errorf("%d workers are there, and %d are ready, instead of %d", all, ready, n)
	}
	return nil
}

// canary reloads the program by way of a canary.
func (sc *scene) canary() error {
	ctx := soon()
	v, err := sc.client.AwaitReload(ctx, control.ReloadBody{Canary: &control.Canary{Workers: 1}, Hold: true}, patience, unseen)
	if err == nil && v.Outcome == program.Held {
		v, err = sc.client.Await(ctx, "drained", patience, sc.client.Happen("web", "promote", control.PromoteBody{}), unseen)
	}
	err = verdict(v, err)
	if err != nil { // it may be held still
		sc.client.Program(ctx, "web", "abort", control.AbortBody{}) //nolint:errcheck // or there is nothing to abort
	}
	return err
}

// request asks for this and that.
func (sc *scene) request() error {
	ctx := soon()
	_, err1 := sc.client.Status(ctx, "", true)
	_, err2 := sc.client.Receipts(ctx, "web")
	err3 := sc.client.Logs(ctx, "web", 5, false, func(control.LogEntry) {})
	err4 := sc.client.Level(ctx, "debug")
	_, err5 := sc.client.Program(ctx, "web", "signal", control.SignalBody{Signal: "CONT"})
	return errors.Join(err1, err2, err3, err4, err5)
}
