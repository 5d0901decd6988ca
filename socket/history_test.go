package socket

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"example.org/supervisord/socket/inherit"
)

// history is a table and its expected sockets: the number for each listener name.
type history struct {
	t      testing.TB
	table  *Table
	specs  map[string]Spec
	bad    Want // cannot be opened
	before int  // sockets that were open at the start
	wanted map[string]int
	held   []hold
	fds    map[string][]int // as they were after the last step
}

type hold struct {
	lanes []*Lane
	knew  map[string]int
}

func (h *history) Update(rt *rapid.T) {
	next := map[string]int{}
	var wants []Want
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(h.names()), rapid.ID).Draw(rt, "names") {
		w := Want{Resolved: resolved(h.t, h.specs[name]), Slots: rapid.IntRange(1, 4).Draw(rt, "slots")}
		if !w.at.isUDP() {
			w.Backlog = rapid.IntRange(1, 9).Draw(rt, "backlog")
		}
		next[name] = 1
		wants = append(wants, w)
	}
	if rapid.IntRange(0, 3).Draw(rt, "fail") == 0 {
		if err := h.table.Update(append(wants, h.bad)); err == nil {
			rt.Fatal("it did not fail")
		}
		return
	}
	if err := h.table.Update(wants); err != nil {
		rt.Fatal(err)
	}
	h.wanted = next
}

func (h *history) Hold(*rapid.T) {
	var wants []Want
	for name := range h.wanted {
		wants = append(wants, Want{Resolved: resolved(h.t, h.specs[name])})
	}
	h.held = append(h.held, hold{lanes: held(h.t, h.table, wants...), knew: maps.Clone(h.wanted)})
}

func (h *history) Serve(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	if err := serve(h.table, rapid.SampledFrom(h.held).Draw(rt, "generation").lanes); err != nil {
		rt.Fatal(err)
	}
}

func (h *history) Release(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(rt, "generation")
	h.table.Release(h.held[i].lanes)
	h.held = slices.Delete(h.held, i, i+1)
}

// Check runs after every step: exactly the needed sockets are open, and they are the same as before.
func (h *history) Check(rt *rapid.T) {
	total := 0
	for _, name := range h.names() {
		n := h.needed(name)
		total += n
		var now []int
		for slot := range n {
			now = append(now, h.table.FD(h.key(name), slot))
		}
		kept := min(len(h.fds[name]), n)
		if !slices.Equal(h.fds[name][:kept], now[:kept]) ||
			slices.ContainsFunc(now, func(fd int) bool { return !isOpen(fd) }) {
			rt.Fatalf("%s had %v and has %v", name, h.fds[name], now)
		}
		h.fds[name] = now
	}
	if open := countSockets(h.t) - h.before; open != total {
		rt.Fatalf("%d sockets are open, %d are needed", open, total)
	}
}

func (h *history) names() []string        { return slices.Sorted(maps.Keys(h.specs)) }
func (h *history) key(name string) string { return resolved(h.t, h.specs[name]).Key() }

func (h *history) needed(name string) int {
	n := h.wanted[name]
	for _, g := range h.held {
		n = max(n, g.knew[name])
	}
	return n
}

func TestEveryHistoryKeepsExactlyTheNeededSockets(t *testing.T) {
	path, _ := onDisk(t)
	path.Name = "path"
	specs := map[string]Spec{
		"tcp":   {Name: "tcp", Address: addr("127.0.0.1:0")},
		"udp":   {Name: "udp", Address: addr("udp:127.0.0.1:0")},
		"group": {Name: "group", Address: addr("127.0.0.1:0"), ReusePort: true},
		"path":  path,
	}
	bad := want(t, Spec{Address: addr("192.0.2.77:80")})
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: t, table: NewTable(), specs: specs, bad: bad, before: countSockets(t), wanted: map[string]int{},
			fds: map[string][]int{}}
		defer func() { _ = h.table.Close() }()
		rt.Repeat(rapid.StateMachineActions(h))
	})
}

// countSockets counts listening sockets only, because a resolver may have a connected one open for a moment.
func countSockets(t testing.TB) int {
	n := 0
	for fd := range openFDs(t) {
		number, err := strconv.Atoi(fd)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, listens := inherit.Describe(number); listens {
			n++
		}
	}
	return n
}
