package program

import "strings"

// order is what a first start waits for.
type order struct {
	Unstarted bool `json:",omitempty"` // the program was told to start, and no generation has begun since

	// Awaits are the programs of Config.After that are to run and do not serve. It is set before each Step.
	Awaits []string `json:"-"`
}

// AwaitsOthers reports whether the first start waits until other programs serve. It is the reload that is due meanwhile
// (Again). A reload does not end the wait: it comes while a machine boots, too.
func (p *Program) AwaitsOthers() bool {
	return p.Goal == Run && p.Unstarted && p.Serving == nil && p.Trial == nil && len(p.Awaits) > 0
}

// list names several for people: "db, cache and queue".
func list(names []string) string {
	if last := len(names) - 1; last > 0 {
		names = []string{strings.Join(names[:last], ", "), names[last]}
	}
	return strings.Join(names, " and ")
}
