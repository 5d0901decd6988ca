package supervisor

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/reach"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// programs are the runners by the names of their programs. What is asked of all of them is asked here.
type programs map[string]*runner

func (all programs) names() []string { return slices.Sorted(maps.Keys(all)) }

// all yields the runners in the order of their names. Runners may be added and removed meanwhile.
func (all programs) all() iter.Seq[*runner] {
	return func(yield func(*runner) bool) {
		for _, name := range all.names() {
			if p := all[name]; p != nil && !yield(p) {
				return
			}
		}
	}
}

// down reports whether nothing of any program lives.
func (all programs) down() bool {
	for _, p := range all {
		if p.core.State() != program.Down || p.core.Live() > 0 {
			return false
		}
	}
	return true
}

// tickets lists the generations that will answer a reload of these programs, or of all, which has just been applied.
func (all programs) tickets(names []string) []Ticket {
	if len(names) == 0 {
		names = all.names()
	}
	var tickets []Ticket
	for _, name := range names {
		if p := all[name]; p.core.Goal == program.Run && !p.removed {
			tickets = append(tickets, p.ticket())
		}
	}
	return tickets
}

// statusTexts returns the contents of the status files, by path, as the programs were after their last steps.
func (all programs) statusTexts() map[string]string {
	texts := map[string]string{}
	for _, p := range all {
		if path := p.core.Config.StatusFile; path != "" {
			texts[path] = p.lines
		}
	}
	return texts
}

// known lists the listeners of the configuration that is in force.
func (all programs) known() map[socket.Spec]socket.Resolved {
	known := map[socket.Spec]socket.Resolved{}
	for _, p := range all {
		for _, l := range p.listeners {
			known[l.Spec] = l
		}
	}
	return known
}

// endpoints lists the sockets that workers have, those of draining generations included, with the addresses that the
// kernel says.
func (all programs) endpoints() []reach.Endpoint {
	var open []reach.Endpoint
	for _, p := range all {
		for _, g := range p.generations {
			for _, ln := range g.lanes {
				l := ln.Listener
				bound, err := socket.ParseAddress(p.s.table.Address(l.Key()))
				switch {
				case l.Address.IsUnix():
					bound = l.Address
				case err != nil, l.Address.IsUDP():
					continue
				}
				open = append(open, reach.Endpoint{Program: p.core.Name, Name: l.Name, Address: bound})
			}
		}
	}
	return open
}

// wanted lists the listeners of every program, with another number of workers for one of the programs.
func (all programs) wanted(scaled *runner, workers int) []socket.Want {
	var want []socket.Want
	for p := range all.all() {
		if p.removed {
			continue
		}
		for _, l := range p.listeners {
			w := socket.Want{Resolved: l, Slots: p.core.Config.Workers}
			if p == scaled {
				w.Slots = workers
			}
			want = append(want, w)
		}
	}
	return want
}

// reopen opens every log file again.
func (all programs) reopen() {
	for _, p := range all {
		for _, f := range p.logFiles() {
			f.Reopen()
		}
	}
}

// restLogs waits until the log files contain everything that was read, so that an execve loses nothing. No worker may
// write meanwhile: see Launcher.Freeze.
func (all programs) restLogs() error {
	ctx, cancel := within(context.Background(), logFlushTimeout)
	defer cancel()
	for _, p := range all {
		for _, f := range p.logFiles() {
			if err := f.Rest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepOrder starts the programs that have waited until others serve, and stops those that have waited until others have
// stopped. Any event of another program can cause either. With after = ["db"] in the program web:
//
//	start   web waits in its core (Awaits) until db serves; then a Tick begins its first generation
//	stop    db waits here (ending) until web is down; then it gets its Stop
//
// Reloads wait for nobody: what web needs of db serves all the time.
func (s *Supervisor) keepOrder() {
	again := false
	for _, p := range s.programs {
		again = again || p.ending != nil
		if len(p.core.Lent) > 0 && !maps.Equal(p.lentTexts(), p.core.Lent) {
			p.step(program.Tick{})
		}
		if p.core.AwaitsOthers() && !slices.Equal(p.awaits(), p.core.Awaits) {
			p.step(program.Tick{})
		}
	}
	for again { // a program without workers has stopped at once
		again = false
		for p := range s.programs.all() {
			if p.ending != nil && !p.needed() {
				e := *p.ending
				e.Handed = p.isReplaced()
				p.ending, again = nil, true
				p.step(e)
			}
		}
	}
}

// awaits returns the programs that must serve before p starts and do not yet serve. A program whose orphans serve does
// not wait: its start is a reload.
func (p *runner) awaits() (names []string) {
	if len(p.core.Config.After) == 0 || p.s.Orphans.Serve(p.core.Name) {
		return nil
	}
	for _, name := range p.core.Config.After {
		if other := p.s.programs[name]; other != nil && other.awaited() {
			names = append(names, name)
		}
	}
	return names
}

// awaited reports whether other programs have to wait for p: p is to serve, and does not. Nobody waits for a program
// that was stopped, or whose workers have all ended for good, because only a person starts it again; nor for one whose
// orphans serve.
func (p *runner) awaited() bool {
	return p.core.Goal == program.Run && !p.core.Serves() && p.core.State() != program.Down &&
		!p.s.Orphans.Serve(p.core.Name)
}

// end stops p as soon as every program has stopped that comes after it and stops, too.
func (p *runner) end(e program.Stop) { p.ending = &e }

// needed reports whether a program lives that comes after p, and stops, or one is to serve that replaces p.
func (p *runner) needed() bool { return len(p.users()) > 0 || len(p.successors()) > 0 }

// A program that is not configured any more may have a listener that another program has now: it has got another name,
// or gives way to another server. It serves, and gets the connections, until the other one serves there. Then it is
// told to stop, and its workers finish what they have in hand as after a reload.

// successors returns the programs that replace p, and do not serve at its listeners yet.
func (p *runner) successors() (names []string) {
	for other := range p.s.programs.all() {
		starts := other.core.Goal == program.Run && other.core.State() != program.Down && other.ending == nil
		if other.succeeds(p) && starts && !other.servesFor(p) {
			names = append(names, other.core.Name)
		}
	}
	return names
}

// succeeds reports whether p is to have a listener of another program that serves until then.
func (p *runner) succeeds(other *runner) bool { return !p.removed && p.meets(other) && other.staysOn() }

// meets reports whether p has a listener of another program.
func (p *runner) meets(other *runner) bool {
	return slices.ContainsFunc(other.listeners, func(l socket.Resolved) bool { return p.listenerOf(l.Key()) != nil })
}

// staysOn reports whether p is not configured any more, and serves, or will: as soon as a crashed worker is replaced,
// or its first workers are ready.
func (p *runner) staysOn() bool {
	c := p.core
	return p.removed && c.Goal == program.Run && (c.Serving != nil || c.Trial != nil && c.Failures == 0)
}

// servesFor reports whether the generation of p that serves gets the connections of a listener of another program. A
// program that was removed and is back may have the listener, and another one its connections.
func (p *runner) servesFor(other *runner) bool {
	g := p.core.Serving
	return g != nil && p.core.Serves() && p.generations[g.Number] != nil &&
		slices.ContainsFunc(p.generations[g.Number].lanes, func(ln *socket.Lane) bool {
			return other.listenerOf(ln.Listener.Key()) != nil && ln.Serves()
		})
}

// hasGiven reports whether another program has a version that began to serve at this listener after that of p: it gets
// the connections. Both serve while p, which was removed, waits for more programs to serve, or is back and its next
// version does not serve yet.
func (p *runner) hasGiven(key string) bool {
	for _, other := range p.s.programs {
		g := other.core.Serving
		if other == p || g == nil || other.core.Goal != program.Run || other.generations[g.Number] == nil {
			continue
		}
		later := p.core.Serving == nil || g.Served.After(p.core.Serving.Served)
		if later && slices.Contains(other.generations[g.Number].keys(), key) {
			return true
		}
	}
	return false
}

// replaces reports whether a program serves, or will, at a listener of p, which p replaces, or has begun to replace
// before p was removed, too.
func (p *runner) replaces() bool {
	for _, other := range p.s.programs {
		if other != p && other.ending != nil && p.meets(other) && other.staysOn() {
			return true
		}
	}
	return false
}

// isReplaced reports whether a program serves that replaces p.
func (p *runner) isReplaced() bool {
	for _, other := range p.s.programs {
		if other.succeeds(p) && other.servesFor(p) {
			return true
		}
	}
	return false
}

// A listener can move from one program to another, or come back to one, while both stay. The version that served there
// keeps serving, there alone, until the next one does: it is lent.

// lent returns the lanes at which a version of p keeps serving, by their generation.
func (p *runner) lent() map[int][]*socket.Lane {
	if p.removed || p.core.Goal != program.Run || p.core.Serving == nil {
		return nil
	}
	lent, seen := map[int][]*socket.Lane{}, map[string]bool{}
	for _, cg := range append([]*program.Generation{p.core.Serving}, p.kept()...) {
		g := p.generations[cg.Number]
		if g == nil {
			continue
		}
		for _, ln := range g.lanes {
			key := ln.Listener.Key()
			own := cg == p.core.Serving && p.listenerOf(key) != nil
			if !own && !seen[key] && p.s.programs.awaitedAt(key) != nil {
				lent[cg.Number] = append(lent[cg.Number], ln)
			}
			seen[key] = true
		}
	}
	return lent
}

// kept lists the generations of p with workers that stand by, the newest first.
func (p *runner) kept() (all []*program.Generation) {
	for _, cg := range slices.Backward(p.core.Draining) {
		if p.core.Role(cg) == program.RoleKept {
			all = append(all, cg)
		}
	}
	return all
}

// lentTexts is program.Lent.
func (p *runner) lentTexts() map[int]string {
	texts := map[int]string{}
	for number, lanes := range p.lent() {
		for _, ln := range lanes {
			other := p.s.programs.awaitedAt(ln.Listener.Key())
			texts[number] = strings.TrimPrefix(texts[number]+", "+ln.Listener.Address.String()+" until "+other.core.Name+
				" serves there", ", ")
		}
	}
	return texts
}

// awaitedAt returns the program that is to serve at a listener and does not yet; nil: none is, or it does.
func (all programs) awaitedAt(key string) *runner {
	for _, p := range all {
		if p.removed || p.core.Goal != program.Run || p.core.State() == program.Down || p.listenerOf(key) == nil {
			continue
		}
		g := p.core.Serving
		if g == nil || p.generations[g.Number] == nil || !slices.Contains(p.generations[g.Number].keys(), key) {
			return p
		}
	}
	return nil
}

// lends reports whether another program has lent a listener of p.
func (p *runner) lends() bool {
	for _, other := range p.s.programs {
		for _, lanes := range other.lent() {
			if slices.ContainsFunc(lanes, func(ln *socket.Lane) bool { return p.listenerOf(ln.Listener.Key()) != nil }) {
				return true
			}
		}
	}
	return false
}

// users returns the programs that come after p, stop, and still live.
func (p *runner) users() (names []string) {
	for other := range p.s.programs.all() {
		stops := other.ending != nil || other.core.Goal == program.Halt && other.core.Live() > 0
		if stops && slices.Contains(other.core.Config.After, p.core.Name) {
			names = append(names, other.core.Name)
		}
	}
	return names
}
