package program

import (
	"fmt"
	"strings"
)

// Lost is what the kernel says was lost, in connections; each counts once. docs/reliability.md says what is exact, and what is a bound.
type Lost struct {
	Queued     int `json:"queued"`     // no worker accepted them: they were reset
	Unread     int `json:"unread"`     // reset with a request that the worker had not read
	Unanswered int `json:"unanswered"` // closed by the worker, or its end, after a request that it had read
	Unsent     int `json:"unsent"`     // an answer was under way when the worker was killed or died
}

// Total returns the sum of all classes.
func (l Lost) Total() int { return l.Queued + l.Unread + l.Unanswered + l.Unsent }

// Plus returns the sum of both.
func (l Lost) Plus(m Lost) Lost {
	return Lost{l.Queued + m.Queued, l.Unread + m.Unread, l.Unanswered + m.Unanswered, l.Unsent + m.Unsent}
}

// String says it in words: "2 not accepted, 1 with an answer under way".
func (l Lost) String() string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{l.Queued, "not accepted"}, {l.Unread, "with an unread request"}, {l.Unanswered, "with an unanswered request"}, {l.Unsent, "with an answer under way"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}

// recordLoss records what was lost: in the reload because of which the generation goes, or in the stop of the program, or else with the generation.
func (p *Program) recordLoss(e LossKnown) {
	if e.Lost == (Lost{}) {
		return
	}
	told := Report{Kind: GenerationLost, Generation: e.Generation, Serving: p.ServingNumber(), Lost: &e.Lost, Reason: "connections: " + e.String()}
	w, g := p.Find(e.Worker)
	if w != nil {
		told = told.about(g, w)
	}
	killed := ""
	if r := p.sends(e.Generation); r != nil {
		p.touchReload(r)
		r.Lost = r.Lost.plus(e.Lost)
		told.Reload = r.Copy()
		for _, k := range r.Kills {
			if k.Worker == e.Worker {
				killed = k.Reason
			}
		}
	} else if s := p.LastStop; s != nil && s.Ended.IsZero() && p.Goal == Halt {
		s.Lost = s.Lost.plus(e.Lost)
	} else if g := p.Generation(e.Generation); g != nil {
		p.touchGeneration(g)
		g.Lost = g.Lost.plus(e.Lost)
	}
	if killed != "" {
		told.Reason += "; its worker was killed: " + killed
	}
	p.report(told)
}

func (l *Lost) plus(m Lost) *Lost {
	if l != nil {
		m = m.Plus(*l)
	}
	return &m
}
