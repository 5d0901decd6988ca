package program

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// PastReload is what is left of a ReloadRecord after many more reloads.
type PastReload struct {
	Generation int           `json:"generation"`
	Replaced   int           `json:"replaced,omitempty"`
	Outcome    Outcome       `json:"outcome"`
	AskedBy    string        `json:"asked_by,omitempty"` // who asked for it, or what
	Decided    time.Time     `json:"decided"`
	Took       time.Duration `json:"took_ns"`
	Failure    string        `json:"failure,omitempty"` // step and reason
	RolledBack bool          `json:"rolled_back,omitempty"`
}

// The bounds of what is left: with 80 of them, and the reloads that are remembered whole, the last 100 reloads of a program are known.
const (
	keptPast = 80
	pastText = 100 // bytes of each text
)

// Summary returns what is left of r in the end.
func (r *ReloadRecord) Summary() PastReload {
	s := PastReload{Generation: r.Generation, Replaced: r.Replaced, Outcome: r.Outcome, AskedBy: shortened(cmp.Or(r.AskedBy, r.Reason)),
		Decided: r.Decided, Took: r.Took, RolledBack: !r.RolledBack.IsZero()}
	if f := r.Failure; f != nil {
		s.Failure = shortened(f.Step + ": " + f.Reason)
	}
	return s
}

func shortened(text string) string {
	if len(text) <= pastText {
		return text
	}
	return strings.ToValidUTF8(text[:pastText-len("…")], "") + "…"
}

// summarize keeps the summary of a reload whose record is forgotten, and forgets the oldest one. Readers may have the old list.
func (p *Program) summarize(r *ReloadRecord) {
	all := append(slices.Clone(p.Past), r.Summary())
	slices.SortFunc(all, func(a, b PastReload) int { return cmp.Compare(a.Generation, b.Generation) })
	p.Past = all[max(0, len(all)-keptPast):]
}
