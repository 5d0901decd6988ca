package main

import (
	"context"
	"os"
	"time"
)

// slowNames redeploys two programs at once, of which one waits for a resolver, and looks at the other.
func (b *bench) slowNames(ctx context.Context, s *section) error {
	dir, err := os.MkdirTemp(b.dir, "lab")
	if err != nil {
		return err
	}
	cases, refused, err := lab{b.bin, dir, min(200, b.size.rate), b.size.slow, b.size.names}.run(ctx)
	if err != nil {
		return err
	}
	if refused != nil {
		s.say("Left out, slow names: it needs a network and a mount table of its own, and this machine permits none to this user (%v).", refused)
		return nil
	}
	var rows [][]string
	for _, c := range cases {
		own := "–"
		if len(c.Slow) > 0 {
			own = short(spread(c.Slow).at(0.5))
		}
		other := spread(c.Other)
		rows = append(rows, []string{c.Name, short(other.at(0.5)), short(other.at(1)), own, count(c.Requests), count(c.Failed), short(c.P99), short(c.Max)})
	}
	s.say("And with a resolver that takes %s for each answer (in a network of its own, with supervisord and the workers). One HUP redeploys two programs; "+
		"how long does the one without names take, and how are its own clients served meanwhile?", b.size.slow)
	s.table([]string{"beside it", "HUP to new generation (p50)", "longest", "of the slow one (p50)", "requests", "failed", "p99", "max"}, rows)
	s.say("**It means:** %s", meaningOfNames(cases, b.size.slow))
	return nil
}

func meaningOfNames(cases []labCase, slow time.Duration) string {
	failed, waited := 0, []string(nil)
	for _, c := range cases {
		failed += c.Failed
		if len(c.Other) > 0 && c.Other[len(c.Other)-1] >= slow {
			waited = append(waited, c.Name)
		}
	}
	text := verdict(failed, "the program beside") + " "
	if len(waited) == 0 {
		return text + "Nobody waits for another's resolver: not for a worker that does, not for a probe, not for a listener's address."
	}
	text += "A worker or a probe that waits for a resolver does so for itself. The redeploy of the program beside did wait, for a name that is not its own, in this case:"
	for _, name := range waited {
		text += " " + name + ";"
	}
	return text[:len(text)-1] + ". Its old generation serves meanwhile."
}
