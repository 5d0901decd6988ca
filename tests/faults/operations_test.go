//go:build amd64

package faults

import (
	"errors"
	"fmt"
	"net"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// reload reloads the program and waits until the old generation is gone, or, if that is kept, the one before it.
func (sc *scene) reload() error {
	end := "drained"
	if sc.keeps {
		end = "serves"
	}
	err := verdict(sc.client.Await(soon(), control.OfReload(control.ReloadBody{}), control.Until(end), patience, unseen))
	if err == nil && sc.keeps {
		err = until(patience, func() error { return sc.hasWorkers(1, 1) })
	}
	return err
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
		if _, err := sc.client.Ask(soon(), control.OfProgram("web", "scale", control.ScaleBody{Workers: n})); err != nil {
			return err
		}
		if err := until(patience, func() error { return sc.hasWorkers(n, 0) }); err != nil {
			return err
		}
	}
	return nil
}

// hasWorkers returns an error unless so many workers serve, so many are kept, and no others run.
func (sc *scene) hasWorkers(serving, kept int) error {
	st, err := sc.client.Status(soon(), "web", false)
	if err != nil {
		return err
	}
	have := map[program.WorkerState]int{}
	all := 0
	for _, g := range st.Programs[0].Generations {
		for _, w := range g.Workers {
			have[w.State]++
			all++
		}
	}
	if have[program.Ready] != serving || have[program.Kept] != kept || all != serving+kept {
		return fmt.Errorf("the workers are %v, instead of %d that serve and %d that are kept", have, serving, kept)
	}
	return nil
}

// canary reloads the program by way of a canary.
func (sc *scene) canary() error {
	ctx := soon()
	v, err := sc.client.Await(ctx, control.OfReload(control.ReloadBody{Canary: &control.Canary{Workers: 1}, Hold: true}),
		"held", patience, unseen)
	if err == nil && v.Outcome == program.Held {
		v, err = sc.client.Await(ctx, control.OfProgram("web", "promote", control.PromoteBody{}), "drained", patience, unseen)
	}
	err = verdict(v, err)
	if err != nil { // it may be held still
		abort := control.OfProgram("web", "abort", control.AbortBody{})
		sc.client.Ask(ctx, abort) //nolint:errcheck // or there is nothing to abort
	}
	return err
}

// rollback lets the generation that is kept serve again, and waits until the one that served is gone.
func (sc *scene) rollback() error {
	err := verdict(sc.client.Await(soon(), control.OfProgram("web", "rollback", nil), "serves", patience, unseen))
	if err == nil {
		err = until(patience, func() error { return sc.hasWorkers(1, 0) })
	}
	return err
}

// pause lets new connections wait, and ends that.
func (sc *scene) pause() error {
	_, err := sc.client.Ask(soon(), control.OfProgram("web", "pause", control.PauseBody{For: "1m"}))
	if err == nil {
		if err = sc.waits(); err == nil {
			_, err = sc.client.Ask(soon(), control.OfProgram("web", "resume", nil))
		}
	}
	if err != nil { // it may be paused still
		sc.client.Ask(soon(), control.OfProgram("web", "resume", nil)) //nolint:errcheck // or there is nothing to resume
	}
	return err
}

// waits returns an error if a new connection does not wait.
func (sc *scene) waits() error {
	for _, at := range []string{sc.address, sc.other} {
		if c, err := net.DialTimeout("tcp", at, 50*time.Millisecond); err == nil {
			c.Close()
			return fmt.Errorf("the client was told that new connections wait, but %s takes one", at)
		}
	}
	return nil
}

// request asks for this and that.
func (sc *scene) request() error {
	ctx := soon()
	_, err1 := sc.client.Status(ctx, "", true)
	err2 := sc.client.Logs(ctx, "web", 5, false, func(control.LogEntry) {})
	err3 := sc.client.Level(ctx, "debug")
	_, err4 := sc.client.Ask(ctx, control.OfProgram("web", "signal", control.SignalBody{Signal: "CONT"}))
	return errors.Join(err1, err2, err3, err4)
}
