package socket

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// flowTable returns a table with a UDP listener that keeps flows at their generations.
func flowTable(t *testing.T, address string) (*Table, Want) {
	t.Helper()
	spec := Spec{Address: addr(address), Handover: Flow, Flows: 4096}
	if wrong := spec.Unpermitted(); wrong != nil {
		t.Skip(wrong)
	}
	table, w, _ := opened(t, spec)
	return table, w
}

// peers are clients that each have a flow.
type peers []net.Conn

func (p *peers) join(t *testing.T, table *Table, w Want, n int) {
	t.Helper()
	for range n {
		conn, err := net.Dial("udp", table.Address(w.Key()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		*p = append(*p, conn)
	}
}

// send lets every client send its number, and returns which lane gets each.
func (p peers) send(t *testing.T, lanes ...*Lane) (at []int) {
	t.Helper()
	at = slices.Repeat([]int{-1}, len(p))
	for i, conn := range p {
		if _, err := fmt.Fprint(conn, i); err != nil {
			t.Fatal(err)
		}
	}
	for n, lane := range lanes {
		for _, text := range waiting(lane) {
			var i int
			if _, err := fmt.Sscan(text, &i); err != nil || at[i] >= 0 {
				t.Fatalf("lane %d gets %q: %v", n, text, err)
			}
			at[i] = n
		}
	}
	return at
}

// expect fails unless each client reaches this lane.
func (p peers) expect(t *testing.T, want []int, lanes ...*Lane) {
	t.Helper()
	if at := p.send(t, lanes...); !slices.Equal(at, want) {
		t.Fatalf("clients reach %v\ninstead of    %v", at, want)
	}
}

func times(n, lane int) []int { return slices.Repeat([]int{lane}, n) }

func TestFlowsReachTheGenerationWhereTheyBegan(t *testing.T) {
	for _, address := range []string{"udp:127.0.0.1:0", "udp:[::1]:0", "udp::0"} {
		t.Run(address, func(t *testing.T) {
			if strings.Contains(address, "[") {
				needIPv6(t)
			}
			table, w := flowTable(t, address)
			var clients peers
			first := serves(t, table, w)
			clients.join(t, table, w, 20)
			clients.expect(t, times(20, 0), first[0])
			for range 2 * lanesOfUDP { // each lane is used several times
				trial := held(t, table, w)
				clients.expect(t, times(20, 0), first[0], trial[0])
				mustServe(t, table, trial)
				late := append(peers{}, clients...)
				late.join(t, table, w, 10)
				late.expect(t, append(times(20, 0), times(10, 1)...), first[0], trial[0])
				table.Release(first)
				late.expect(t, times(30, 0), trial[0]) // those whose generation is gone begin anew
				first = trial
			}
		})
	}
}

func TestFlowsOfAFailedCanaryStayUntilItIsGone(t *testing.T) {
	table, w := flowTable(t, "udp:127.0.0.1:0")
	old, canary := held(t, table, w), held(t, table, w)
	err := table.Steer([]Part{{Lanes: old, Weight: 1}, {Lanes: canary, Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var clients peers
	clients.join(t, table, w, 60)
	at := clients.send(t, old[0], canary[0])
	if !slices.Contains(at, 0) || !slices.Contains(at, 1) || slices.Contains(at, -1) {
		t.Fatalf("clients reach %v", at)
	}
	mustServe(t, table, old)
	clients.expect(t, at, old[0], canary[0])
	table.Release(canary)
	clients.expect(t, times(60, 0), old[0])
}

func TestNextSupervisorKeepsFlows(t *testing.T) {
	table, w := flowTable(t, "udp:127.0.0.1:0")
	var clients peers
	old := serves(t, table, w)
	clients.join(t, table, w, 20)
	clients.expect(t, times(20, 0), old[0])
	next := serves(t, table, w)
	clients.join(t, table, w, 20)
	want := append(times(20, 0), times(20, 1)...)
	clients.expect(t, want, old[0], next[0])
	lanes := recorded(t, old[0], next[0])
	second := newTable(t)
	second.Offer(handedOver(t, table))
	if errs := second.Resume(lanes); len(errs) > 0 {
		t.Fatal(errs)
	}
	clients.expect(t, want, lanes...)
	mustServe(t, second, lanes[1:])
	apply(t, second, w)
	if left := second.Unclaimed(); len(left) > 0 {
		t.Errorf("nobody takes %v", left)
	}
	clients.expect(t, want, lanes...)
	third := held(t, second, w)
	mustServe(t, second, third)
	clients.join(t, second, w, 20)
	clients.expect(t, append(want, times(20, 2)...), append(lanes, third...)...)
}

func TestHandoverCanBecomeFlowAndBack(t *testing.T) {
	table, w := flowTable(t, "udp:127.0.0.1:0")
	var clients peers
	old := serves(t, table, w)
	clients.join(t, table, w, 20)
	clients.expect(t, times(20, 0), old[0])
	w.Handover = Steer
	apply(t, table, w)
	next := serves(t, table, w)
	clients.expect(t, times(20, 1), old[0], next[0])
	w.Handover = Flow
	apply(t, table, w)
	clients.expect(t, times(20, 1), old[0], next[0])
	third := serves(t, table, w)
	clients.expect(t, times(20, 1), old[0], next[0], third[0])
}

func TestSizeOfTheTableOfFlowsIsFixed(t *testing.T) {
	table, w := flowTable(t, "udp:127.0.0.1:0")
	serves(t, table, w)
	w.Flows = 8192
	refuses(t, table, w, "cannot change flows", "remove the listener for one reload")
}

// TestTableOfFlowsIsClosedWithItsListener counts the descriptors of programs and maps.
func TestTableOfFlowsIsClosedWithItsListener(t *testing.T) {
	count := func() (n int) {
		for _, what := range openFDs(t) {
			if strings.Contains(what, "bpf") {
				n++
			}
		}
		return n
	}
	before := count()
	table, _ := flowTable(t, "udp:127.0.0.1:0")
	if n := count() - before; n != 2 {
		t.Errorf("a table has %d descriptors instead of 2", n)
	}
	apply(t, table)
	if n := count() - before; n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
}

func TestOldGenerationIsQuietWhenItsFlowsAreSilent(t *testing.T) {
	table, w := flowTable(t, "udp:127.0.0.1:0")
	var clients peers
	old := serves(t, table, w)
	clients.join(t, table, w, 1)
	clients.expect(t, times(1, 0), old[0])
	serves(t, table, w)
	left := Left(old, nil)
	if len(left) != 1 || len(left[0].Silences) != 1 {
		t.Fatalf("there is left %+v", left)
	}
	silence := left[0].Silences[0]
	table.Release(old)
	apply(t, table) // it is closed, and the look continues
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	if s := silence(); s < 0 || int64(s) > now.Nano() {
		t.Errorf("it is silent for %v", s)
	}
}
