package socket

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestWorkersOfASteeredListenerAreSpreadOverSockets(t *testing.T) {
	for _, c := range []struct {
		spec           Spec
		workers, wants int
	}{
		{Spec{Address: addr("127.0.0.1:0")}, 1, 1},
		{Spec{Address: addr("127.0.0.1:0")}, SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0")}, SlotsOfSocket + 1, 2},
		{Spec{Address: addr("127.0.0.1:0")}, 10 * SlotsOfSocket, 10},
		{Spec{Address: addr("127.0.0.1:0"), Single: true}, 10 * SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer}, 40, 40},
		{Spec{Address: addr("unix:" + t.TempDir() + "/s")}, 10 * SlotsOfSocket, 1},
	} {
		table, w := steered(t, c.spec)
		lanes, err := table.Hold([]Resolved{w.Resolved}, c.workers)
		if err != nil {
			t.Fatal(err)
		}
		if got := lanes[0].Sockets(); got != c.wants {
			t.Errorf("%d workers of %+v have %d sockets, want %d", c.workers, c.spec, got, c.wants)
		}
		for slot := range c.workers + 5 {
			fd := lanes[0].FD(slot)
			if want := lanes[0].FD(slot % c.wants); fd != want && !(c.spec.PerSlot && slot >= c.workers) || fd < 0 &&
				slot < c.workers {
				t.Errorf("of %d sockets, slot %d has %d, want %d", c.wants, slot, fd, want)
			}
		}
		_ = table.Close()
	}
}

func TestSharedListenerKeepsOneSocketForManyWorkers(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	w.Slots = 10 * SlotsOfSocket
	apply(t, table, w)
	lanes, err := table.Hold([]Resolved{w.Resolved}, w.Slots)
	if err != nil || lanes[0].Sockets() != 1 || len(table.FDs(w.Key())) != 1 {
		t.Errorf("it has %d sockets (%v)", len(table.FDs(w.Key())), err)
	}
}

func TestFewDescriptorsMeanFewSockets(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	r := resolved(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer})
	for limit, want := range map[uint64]int{32: 1, 256: 4, 640: 10} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		if got := r.sockets(10 * SlotsOfSocket); got != want {
			t.Errorf("with room for %d descriptors there are %d sockets, want %d", limit, got, want)
		}
	}
}

func TestConnectionsGoToTheSocketsOfTheChosenSlots(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
	lanes, err := table.Hold([]Resolved{w.Resolved}, 3*SlotsOfSocket)
	if err != nil {
		t.Fatal(err)
	}
	fds := []int{lanes[0].FD(0), lanes[0].FD(1), lanes[0].FD(2)}
	for _, c := range []struct {
		slots []int
		want  []bool
	}{
		{nil, []bool{true, true, true}},
		{[]int{0, 4, 33}, []bool{true, true, false}},
		{[]int{95}, []bool{false, false, true}},
	} {
		if err := table.Steer([]Part{{Lanes: lanes, Slots: c.slots, Weight: 1}}); err != nil {
			t.Fatal(err)
		}
		got := arrivals(t, table.Address(w.Key()), 100, fds...)
		for i, fd := range fds {
			if got[fd] > 0 != c.want[i] {
				t.Errorf("slots %v: socket %d got %d of 100 connections", c.slots, i, got[fd])
			}
		}
		if left := Left(lanes, []int{94, 95}); len(left) > 0 != (c.slots != nil) {
			t.Errorf("slots %v: slots 94 and 95 are left with %v", c.slots, left)
		}
	}
}
