package socket

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
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
	claims []string
	knew   map[string]int
}

func (h *history) Update(rt *rapid.T) {
	next := map[string]int{}
	var wants []Want
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(h.names()), rapid.ID).Draw(rt, "names") {
		w := Want{Resolved: resolved(h.t, h.specs[name]), Slots: rapid.IntRange(1, 4).Draw(rt, "slots")}
		if !w.at.isUDP() {
			w.Backlog = rapid.IntRange(1, 9).Draw(rt, "backlog")
		}
		next[name] = w.sockets()
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
	var keys []string
	for name := range h.wanted {
		keys = append(keys, h.key(name))
	}
	h.held = append(h.held, hold{claims: claimed(h.t, h.table, keys), knew: maps.Clone(h.wanted)})
}

func (h *history) Serve(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	if err := serve(h.table, rapid.SampledFrom(h.held).Draw(rt, "generation").claims); err != nil {
		rt.Fatal(err)
	}
}

func (h *history) Release(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(rt, "generation")
	h.table.Release(h.held[i].claims)
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
		if !slices.Equal(h.fds[name][:kept], now[:kept]) || slices.ContainsFunc(now, func(fd int) bool { return !isOpen(fd) }) {
			rt.Fatalf("%s had %v and has %v", name, h.fds[name], now)
		}
		if l := h.table.listeners[h.key(name)]; n > 0 && (l.lanes[0].active < 1 || l.lanes[0].active > n || len(l.lanes[0].slots) != n) {
			rt.Fatalf("%s: %d of %d sockets are active", name, l.lanes[0].active, n)
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
		"slots": {Name: "slots", Address: addr("127.0.0.1:0"), PerSlot: true},
		"path":  path,
	}
	bad := want(t, Spec{Address: addr("192.0.2.77:80")})
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: t, table: NewTable(), specs: specs, bad: bad, before: countSockets(t), wanted: map[string]int{}, fds: map[string][]int{}}
		defer func() { _ = h.table.Close() }()
		rt.Repeat(rapid.StateMachineActions(h))
	})
}

// laneHistory is a listener whose nonblock changes, which is closed and reopened, and the sockets that its generations should have.
type laneHistory struct {
	t       testing.TB
	table   *Table
	bad     Want // cannot be opened
	want    Want
	held    []string
	block   map[string]bool // by claim: whether its socket blocks
	serving string          // the claim that served last; "": its generation is gone
	closed  bool
}

func (h *laneHistory) Update(rt *rapid.T) {
	next := h.want
	next.NonBlock = rapid.Bool().Draw(rt, "nonblock")
	next.Backlog = rapid.IntRange(50, 60).Draw(rt, "backlog")
	if rapid.IntRange(0, 3).Draw(rt, "fail") == 0 {
		if err := h.table.Update([]Want{next, h.bad}); err == nil {
			rt.Fatal("it did not fail")
		}
		return
	}
	if err := h.table.Update([]Want{next}); err != nil {
		rt.Fatal(err)
	}
	h.want = next
}

func (h *laneHistory) Hold(rt *rapid.T) {
	claims := claimed(h.t, h.table, []string{h.want.Key()})
	h.held = append(h.held, claims...)
	h.block[claims[0]] = !h.want.NonBlock
}

func (h *laneHistory) Serve(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	h.serving = rapid.SampledFrom(h.held).Draw(rt, "generation")
	if err := serve(h.table, []string{h.serving}); err != nil {
		rt.Fatal(err)
	}
}

func (h *laneHistory) Release(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip("no generation")
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(rt, "generation")
	h.table.Release(h.held[i : i+1])
	h.held = slices.Delete(h.held, i, i+1)
	if !slices.Contains(h.held, h.serving) {
		h.serving = ""
	}
}

func (h *laneHistory) SetOpen(rt *rapid.T) {
	h.closed = rapid.Bool().Draw(rt, "closed")
	if _, err := h.table.SetOpen(h.want.Key(), !h.closed); err != nil {
		rt.Fatal(err)
	}
}

// Check runs after every step: every generation has its socket, and a client reaches the serving generation.
func (h *laneHistory) Check(rt *rapid.T) {
	var fds []int
	for _, claim := range append(slices.Clone(h.held), h.want.Key()) {
		fd := h.table.FD(claim, 0)
		if fd < 0 || claim != h.want.Key() && isNonBlock(h.t, fd) == h.block[claim] {
			rt.Fatalf("claim %q has the socket %d", claim, fd)
		}
		fds = append(fds, fd)
	}
	slices.Sort(fds)
	if fds = slices.Compact(fds); len(h.table.Export()) != len(fds) {
		rt.Fatalf("%d sockets are open, %v are needed", len(h.table.Export()), fds)
	}
	if h.closed {
		refusesClients(h.t, "tcp", h.table.Address(h.want.Key()))
		return
	}
	client, err := net.Dial("tcp", h.table.Address(h.want.Key()))
	if err != nil {
		rt.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, fd := range fds {
		if !readable(h.t, fd, 0) {
			continue
		}
		if h.serving != "" && h.table.FD(h.serving, 0) != fd {
			rt.Fatalf("a client reached %d, but %d serves", fd, h.table.FD(h.serving, 0))
		}
		conn, _, err := unix.Accept(fd)
		if err != nil {
			rt.Fatal(err)
		}
		_ = unix.Close(conn)
		return
	}
	rt.Fatal("the client reached no socket")
}

func TestEveryHistoryOfLanesServesWhoServes(t *testing.T) {
	bad := want(t, Spec{Address: addr("192.0.2.77:80")})
	rapid.Check(t, func(rt *rapid.T) {
		h := &laneHistory{t: t, table: NewTable(), bad: bad, want: together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")}), block: map[string]bool{}}
		defer func() { _ = h.table.Close() }()
		apply(t, h.table, h.want)
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
