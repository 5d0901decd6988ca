package socket

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOverlappingListenersAreRefused(t *testing.T) {
	table, address := newTable(t), freePort(t)
	for _, two := range [][2]string{
		{address, address}, {"127.0.0.1:0", "127.0.0.1:0"}, {address, "0.0.0.0" + address[9:]},
	} {
		a, b := want(t, Spec{Name: "a", Address: addr(two[0])}), want(t, Spec{Name: "a", Address: addr(two[1])})
		if err := table.Update([]Want{a, b}); !errors.Is(err, unix.EADDRINUSE) || len(table.Export()) != 0 {
			t.Errorf("%s: %v, and %d sockets", two, err, len(table.Export()))
		}
	}
}

func TestFailedUpdateLeavesTheTableAsItWas(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o600
	table := newTable(t)
	kept := want(t, Spec{Name: "kept", Address: addr("127.0.0.1:0"), Backlog: 9,
		Sockopts: Sockopts{KeepAlive: 9 * time.Second, FastOpen: 9}})
	slots := Want{Resolved: resolved(t, Spec{Name: "slots", Address: addr("127.0.0.1:0"), PerSlot: true,
		Handover: Steer}), Slots: 2}
	onPath := want(t, spec)
	apply(t, table, kept, slots, onPath)
	before, sockets, options := table.Export(), openFDs(t), settings(t, table.FD(kept.Key(), 0), kept.at)

	other, otherPath := onDisk(t)
	changed := kept
	changed.Backlog, changed.KeepAlive, changed.FastOpen, changed.DeferAccept = 5, 0, 0, 5*time.Second
	onPath.Mode = 0o666
	grown := slots
	grown.Slots = 4
	err := table.Update([]Want{changed, grown, onPath, want(t, other), want(t, Spec{Address: addr("192.0.2.77:80")})})
	if !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Fatalf("got %v", err)
	}
	if !slices.Equal(before, table.Export()) || len(openFDs(t)) != len(sockets) {
		t.Errorf("sockets are %v, not %v", table.Export(), before)
	}
	differences(t, options, settings(t, table.FD(kept.Key(), 0), kept.at))
	if mode := modeOf(t, path).Perm(); mode != 0o600 {
		t.Errorf("the mode has become %o", mode)
	}
	if _, err := os.Lstat(otherPath); err == nil {
		t.Error("the new unix socket is left")
	}
}

func TestRemovedListenerClosesWhenTheLastGenerationIsReleased(t *testing.T) {
	path, at := onDisk(t)
	for _, s := range []Spec{path, {Address: addr("127.0.0.1:0")}, {Address: addr("udp:127.0.0.1:0")},
		{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{ReusePort: true}}} {
		table, w, fd := opened(t, s)
		first, second := held(t, table, w), held(t, table, w)
		apply(t, table)
		for _, lanes := range [][]*Lane{first, second} {
			if !isOpen(fd) || lanes[0].FD(3) != fd || table.FD(w.Key(), 3) != fd || len(table.Export()) != 1 {
				t.Fatalf("%s is closed although a generation holds it", s.Address)
			}
			table.Release(lanes)
		}
		if isOpen(fd) || table.FD(w.Key(), 0) != -1 {
			t.Errorf("%s is open", s.Address)
		}
	}
	if _, err := os.Lstat(at); err == nil {
		t.Error("its path is left")
	}
}

func TestLaneOfAListenerThatIsNotOpenIsHarmless(t *testing.T) {
	table, w, _ := opened(t, Spec{Address: addr("127.0.0.1:0")})
	lanes := held(t, table, want(t, Spec{Address: addr("127.0.0.1:1")}))
	if ln := lanes[0]; ln.Sockets() != 0 || ln.FD(0) >= 0 || ln.Address() != "" || ln.Own() || ln.BesideUnit() {
		t.Errorf("it has something of a listener that is not open: %+v", ln)
	}
	if _, err := lanes[0].Probe(0); err == nil {
		t.Error("it is probed")
	}
	table.Release(lanes)
	if err := serve(table, lanes); err != nil || len(Left(lanes, nil)) > 0 || len(Accepted(lanes)) > 0 {
		t.Error(err)
	}
	if table.FD("tcp 127.0.0.1:1", 0) != -1 || table.FD(w.Key(), -1) != -1 || table.FD(w.Key(), 99) < 0 ||
		table.Address("x") != "" {
		t.Error("an unknown key has a descriptor")
	}
}
