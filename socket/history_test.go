package socket

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/supervisord/internal/lab/must"
)

// steeredHistory is a listener that changes in every way in which it can, and what its generations should have.
type steeredHistory struct {
	t       testing.TB
	table   *Table
	bad     Want // cannot be opened
	want    Want
	removed bool // the configuration does not have it
	held    []*heldLane
	serving *heldLane // what was steered to last; nil: its generation is gone
	members []uint64  // the inodes of the members after the last step
	closed  bool
	paused  bool
}

// heldLane is what one generation got.
type heldLane struct {
	lanes []*Lane
	fds   []int
	own   bool
	of    Resolved
}

func (h *steeredHistory) key() string { return h.want.Key() }

func (h *steeredHistory) Update(rt *rapid.T) {
	next := h.want
	next.Handover = rapid.SampledFrom([]Handover{Steer, Steer, Steer, Share}).Draw(rt, "handover")
	if next.Handover == Steer || h.want.Handover == Steer {
		next.NonBlock = rapid.Bool().Draw(rt, "nonblock")
	}
	next.PerSlot = next.Handover == Steer && rapid.Bool().Draw(rt, "per_slot")
	next.Backlog = rapid.IntRange(50, 60).Draw(rt, "backlog")
	next.Slots = rapid.IntRange(1, 3).Draw(rt, "slots")
	if rapid.IntRange(0, 3).Draw(rt, "fail") == 0 {
		if err := h.table.Update([]Want{next, h.bad}); err == nil {
			rt.Fatal("it did not fail")
		}
		return
	}
	must.Do(rt, h.table.Update([]Want{next}))
	h.want, h.removed = next, false
}

func (h *steeredHistory) Remove(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("it would be closed")
	}
	must.Do(rt, h.table.Update(nil))
	h.removed = true
}

func (h *steeredHistory) Hold(rt *rapid.T) {
	if len(h.held) > 4 || h.removed {
		rt.Skip("enough generations")
	}
	lanes, err := h.table.Hold([]Resolved{h.want.Resolved}, 0, nil)
	must.Do(rt, err)
	g := &heldLane{lanes: lanes, own: h.want.Handover == Steer, of: h.want.Resolved}
	for slot := range lanes[0].Sockets() {
		g.fds = append(g.fds, lanes[0].FD(slot))
	}
	if lanes[0].Own() != g.own {
		rt.Fatalf("own: %v", !g.own)
	}
	for _, o := range h.held {
		if g.own && slices.ContainsFunc(g.fds, func(fd int) bool { return slices.Contains(o.fds, fd) }) {
			rt.Fatalf("%v and %v have a socket together", g, o)
		}
	}
	h.held = append(h.held, g)
}

func (h *steeredHistory) Steer(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	g := rapid.SampledFrom(h.held).Draw(rt, "generation")
	must.Do(rt, serve(h.table, g.lanes))
	h.serving = g
}

func (h *steeredHistory) Probe(rt *rapid.T) {
	if len(h.held) == 0 || h.closed {
		rt.Skip("nothing to reach")
	}
	g := rapid.SampledFrom(h.held).Draw(rt, "generation")
	slot := rapid.IntRange(0, len(g.fds)-1).Draw(rt, "slot")
	p, err := g.lanes[0].Probe(slot)
	if h.table.listeners[h.key()].shared != nil {
		if err == nil {
			rt.Fatal("a shared listener was probed")
		}
		return
	}
	must.Do(rt, err)
	conn, err := p.Dial(h.t.Context())
	must.Do(rt, err)
	fds := h.table.FDs(h.key())
	if l := h.table.listeners[h.key()]; l.parking != nil {
		fds = slices.DeleteFunc(fds, func(fd int) bool { return fd == l.parking.fd })
	}
	if got := acceptor(h.t, fds); got != g.fds[slot] {
		rt.Fatalf("a probe reached %d instead of %d", got, g.fds[slot])
	}
	_ = conn.Close()
	p.End()
}

func (h *steeredHistory) Release(rt *rapid.T) {
	if len(h.held) == 0 || h.removed && len(h.held) == 1 {
		rt.Skip("no generation")
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(rt, "generation")
	h.table.Release(h.held[i].lanes)
	if h.serving == h.held[i] {
		h.serving = nil
	}
	h.held = slices.Delete(h.held, i, i+1)
}

func (h *steeredHistory) Vacate(*rapid.T) { vacated(h.table) }

// Upgrade lets another supervisor continue.
func (h *steeredHistory) Upgrade(rt *rapid.T) {
	if h.removed || h.serving == nil || !slices.Contains(h.held, h.serving) {
		rt.Skip("nothing serves")
	}
	var before, after []uint64
	lanes := recorded(h.t, h.serving.lanes...)
	for _, g := range h.held {
		before = append(before, h.inodes(g)...)
		if g == h.serving {
			g.lanes = lanes[:1]
			continue
		}
		g.lanes = recorded(h.t, g.lanes...)
		lanes = append(lanes, g.lanes...)
	}
	table := NewTable()
	offers := handedOver(h.t, h.table)
	rand.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	table.Offer(offers)
	die(h.table)
	h.table = table
	must.Do(rt, errors.Join(h.table.Resume(lanes, nil, nil)...))
	must.Do(rt, h.table.Update([]Want{h.want}))
	unclaimed(h.table)
	must.Do(rt, h.table.Pause([]string{h.key()}, h.paused))
	for _, g := range h.held {
		for slot := range g.fds {
			g.fds[slot] = g.lanes[0].FD(slot)
		}
		after = append(after, h.inodes(g)...)
	}
	if !slices.Equal(before, after) {
		rt.Fatalf("generations had the sockets %v and have %v", before, after)
	}
}

func (h *steeredHistory) inodes(g *heldLane) (inodes []uint64) {
	for _, fd := range g.fds {
		inodes = append(inodes, inodeOf(h.t, fd))
	}
	return inodes
}

func (h *steeredHistory) SetOpen(rt *rapid.T) {
	h.closed = rapid.Bool().Draw(rt, "closed")
	if _, err := h.table.SetOpen(h.key(), !h.closed); err != nil {
		rt.Fatal(err)
	}
}

func (h *steeredHistory) Pause(rt *rapid.T) {
	h.paused = rapid.Bool().Draw(rt, "paused")
	must.Do(rt, h.table.Pause([]string{h.key()}, h.paused))
}

// Check runs after every step: every generation has its sockets, members stay where they are, and a client reaches
// the serving generation.
func (h *steeredHistory) Check(rt *rapid.T) {
	l := h.table.listeners[h.key()]
	for _, g := range h.held {
		for slot, fd := range g.fds {
			if now := g.lanes[0].FD(slot); now != fd || !isOpen(fd) {
				rt.Fatalf("lane %v has the socket %d in slot %d, and had %d", g.lanes[0].Members, now, slot, fd)
			}
		}
	}
	var members []uint64
	for _, m := range l.members {
		members = append(members, inodeOf(h.t, m.fd))
	}
	if stay := min(len(h.members), len(members)); l.shared == nil &&
		(len(members) < len(h.members) || !slices.Equal(members[:stay], h.members[:stay])) {
		rt.Fatalf("members were %v and are %v", h.members, members)
	}
	h.members = members
	for i, m := range l.members {
		if n := m.queued(); n > 0 {
			rt.Fatalf("a connection of nobody waits in member %d, at %d: parking %v", m.number, i, l.parking != nil)
		}
	}
	switch {
	case h.closed:
		refusesClients(h.t, "tcp", h.table.Address(h.key()))
	case h.paused:
		h.checkPaused(rt, l)
	default:
		h.checkClient(rt, l)
	}
}

func (h *steeredHistory) checkPaused(rt *rapid.T, l *listener) {
	if conn, err := net.DialTimeout("tcp", h.table.Address(h.key()), 10*time.Millisecond); err == nil {
		_ = conn.Close()
		rt.Fatal("a client connected to a paused listener")
	}
	for _, g := range h.held {
		if slices.Contains(g.fds, l.parking.fd) {
			rt.Fatalf("%v has the socket that is full", g)
		}
	}
}

func (h *steeredHistory) checkClient(rt *rapid.T, l *listener) {
	client, err := net.Dial("tcp", h.table.Address(h.key()))
	must.Do(rt, err)
	defer func() { _ = client.Close() }()
	fds := h.table.FDs(h.key())
	got := acceptor(h.t, fds)
	if h.serving != nil && !slices.Contains(h.serving.fds, got) {
		rt.Fatalf("a client reached %d, but %v serves", got, h.serving.fds)
	}
	for _, m := range l.members {
		if m.fd == got && !l.serves(m) {
			rt.Fatalf("a client reached %d, which does not serve", got)
		}
	}
}

func TestEveryHistoryOfSteeredLanesServesWhoServes(t *testing.T) {
	bad := want(t, Spec{Address: addr("192.0.2.77:80")})
	rapid.Check(t, func(rt *rapid.T) {
		w := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer})
		h := &steeredHistory{t: t, table: NewTable(), bad: bad, want: w}
		defer func() { _ = h.table.Close() }()
		apply(t, h.table, h.want)
		rt.Repeat(rapid.StateMachineActions(h))
	})
}
