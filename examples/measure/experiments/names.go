package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/load"
)

type namesSize struct {
	Rate, Redeploys int           // requests a second; redeploys of each case
	Slow            time.Duration // what the resolver takes
}

// slowNames redeploys two programs at once, of which one waits for a resolver, and watches the other.
func (r *rig) slowNames(ctx context.Context, c *chapter) error {
	dir, err := os.MkdirTemp(r.dir, "sealed")
	if err != nil {
		return err
	}
	cases, refused, err := sealed{r.binaries, r.names, dir}.run(ctx)
	if err != nil {
		return err
	}
	if refused != nil {
		c.say("Left out, slow names: it needs a network and a mount table of its own, and this machine permits none to this user (%v).", refused)
		return nil
	}
	var rows [][]string
	lost, waited := 0, []string(nil)
	for _, one := range cases {
		own, other := "–", load.Sort(slices.Values(one.Other))
		if len(one.Slow) > 0 {
			own = load.Short(load.Sort(slices.Values(one.Slow)).Quantile(0.5))
		}
		rows = append(rows, []string{one.Name, load.Short(other.Quantile(0.5)), load.Short(other.Quantile(1)), own,
			count(one.Requests), count(one.Failed), load.Short(one.P99), load.Short(one.Max)})
		lost += one.Failed
		if other.Quantile(1) >= r.names.Slow {
			waited = append(waited, one.Name)
		}
	}
	c.say("And with a resolver that takes %s for each answer (in a network of its own, with supervisord and the workers). One HUP redeploys two programs; "+
		"how long does the one without names take, and how are its own clients served meanwhile?", r.names.Slow)
	c.table([]string{"beside it", "HUP to new generation (p50)", "longest", "of the slow one (p50)", "requests", "failed", "p99", "max"}, rows)
	meaning := "No program waits for the resolver of another one: not for a worker that does, not for a probe, not for a listener's address."
	if len(waited) > 0 {
		meaning = "A worker or a probe that waits for a resolver holds up only itself. The redeploy of the program beside did wait, for a name that is not its own, in this case: " +
			strings.Join(waited, "; ") + ". Its old generation serves meanwhile."
	}
	c.say("**It means:** %s %s", verdict(lost, "the program beside"), meaning)
	return nil
}
