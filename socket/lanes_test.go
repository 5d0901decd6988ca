package socket

import (
	"net"
	"testing"
)

// TestLanesShowConnectionsThatNobodyAccepts has a generation that ends while a connection waits in its lane.
func TestLanesShowConnectionsThatNobodyAccepts(t *testing.T) {
	spec := Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer}
	table, w, _ := opened(t, spec)
	hold := func() []*Lane {
		t.Helper()
		lanes, err := table.Hold([]Resolved{w.Resolved}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return lanes
	}
	steer := func(lanes []*Lane) {
		t.Helper()
		if err := table.Steer([]Part{{Lanes: lanes, Weight: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	old, next := hold(), hold()
	steer(old)
	c, err := net.Dial("tcp", table.Address(w.Key()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only this side has it
	steer(next)
	if lanes := table.Lanes(w.Key()); len(lanes) != 2 || lanes[0].Queued != 1 || lanes[0].Lane != old[0] ||
		lanes[1].Share != 1 {
		t.Errorf("%+v", lanes)
	}
	table.Release(old)
	if lanes := table.Lanes(w.Key()); len(lanes) != 2 || lanes[0].Queued != 1 || lanes[0].Lane != nil ||
		lanes[0].Share != 0 || lanes[1].Lane != next[0] {
		t.Errorf("the old generation is gone: %+v", lanes)
	}
	table.Release(next)
}
