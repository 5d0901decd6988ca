package socket

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resumed hands the sockets of a table over, after spoil, to another table with generations that have these claims.
func resumed(t *testing.T, before *Table, w Want, claims []string, spoil func()) (*Table, []error) {
	t.Helper()
	offers := handedOver(t, before)
	spoil()
	table := newTable(t)
	table.Offer(offers)
	return table, table.Resume([]Holding{{Resolved: w.Resolved, Claim: claims[0], Serves: true}})
}

func TestSocketWithARemovedPathIsKeptWhateverReplacedThePath(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"nothing":     func(string) error { return nil },
		"a file":      func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(what, func(t *testing.T) {
			spec, path := onDisk(t)
			before, w, fd := opened(t, spec)
			claims := claimed(t, before, []string{w.Key()})
			table, problems := resumed(t, before, w, claims, func() {
				if err := errors.Join(os.Remove(path), put(path)); err != nil {
					t.Fatal(err)
				}
			})
			if len(problems) > 0 || inodeOf(t, table.FD(claims[0], 0)) != inodeOf(t, fd) {
				t.Errorf("the generation has another socket: %v", problems)
			}
			if err := table.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(path); what != "nothing" && err != nil {
				t.Errorf("the file at the path is gone: %v", err)
			}
		})
	}
}

func TestOptionThatCannotBeSetDoesNotKeepAGenerationFromItsSocket(t *testing.T) {
	before := newTable(t)
	w := want(t, Spec{Address: addr(freePort(t))})
	apply(t, before, w)
	claims := claimed(t, before, []string{w.Key()})
	idle := w
	idle.KeepAlive = 40_000 * time.Second // the kernel takes 32,767 s at most
	table := newTable(t)
	table.Offer(handedOver(t, before))
	problems := table.Resume([]Holding{{Resolved: idle.Resolved, Claim: claims[0], Serves: true}})
	if len(problems) != 1 || inodeOf(t, table.FD(claims[0], 0)) != inodeOf(t, before.FD(claims[0], 0)) {
		t.Errorf("problems: %v", problems)
	}
}

func TestSlotWithoutASocketSharesTheSocketOfAnother(t *testing.T) {
	table, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	nowhere := want(t, Spec{Address: addr("192.0.2.77:80"), PerSlot: true, Handover: Steer})
	ln := newLane(nowhere.Resolved, []*sock{{fd: fd}})
	u := &update{table: table, resuming: true}
	u.refill(&listener{r: nowhere.Resolved}, ln, []int{0, 1, 2})
	if len(u.problems) != 2 || len(ln.slots) != 3 {
		t.Fatalf("%d sockets, problems %v", len(ln.slots), u.problems)
	}
	for _, s := range ln.slots {
		if inodeOf(t, s.fd) != inodeOf(t, fd) {
			t.Error("a slot has another socket")
		}
	}
}

func TestRehearseFindsASocketThatIsMissingAndTouchesNone(t *testing.T) {
	before := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr(freePort(t))})
	apply(t, before, w)
	claims := claimed(t, before, []string{w.Key()})
	generations := []Holding{{Resolved: w.Resolved, Claim: claims[0], Serves: true},
		{Resolved: w.Resolved, Claim: claims[0]}}
	table := NewTable()
	offers := handedOver(t, before)
	table.Offer(offers)
	if err := table.Rehearse(generations); err != nil {
		t.Error(err)
	}
	for _, o := range offers {
		unix.Close(o.FD)
	}
	if err := NewTable().Rehearse(generations); err == nil || !strings.Contains(err.Error(), `"web"`) {
		t.Errorf("without the socket: %v", err)
	}
}

func TestLanesSurviveAnUpgradeWithHolesInTheirPlaces(t *testing.T) {
	before, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer})
	w.Slots = 2
	apply(t, before, w)
	var claims [][]string
	var inodes [][]uint64
	for range 4 {
		c := claimed(t, before, []string{w.Key()})
		claims, inodes = append(claims, c), append(inodes,
			[]uint64{inodeOf(t, before.FD(c[0], 0)), inodeOf(t, before.FD(c[0], 1))})
	}
	mustServe(t, before, claims[2])
	before.Release(claims[0])
	for upgrade := range 3 {
		var holdings []Holding
		for i, c := range claims[1:] {
			holdings = append(holdings, Holding{Resolved: w.Resolved, Claim: c[0], Serves: i == 1})
		}
		offers := handedOver(t, before)
		rehearsal := NewTable()
		rehearsal.Offer(handedOver(t, before))
		if err := rehearsal.Rehearse(holdings); err != nil {
			t.Fatal(err)
		}
		_ = rehearsal.Close()
		table := newTable(t)
		table.Offer(offers)
		if err := errors.Join(table.Resume(holdings)...); err != nil {
			t.Fatal(err)
		}
		apply(t, table, w)
		if left := table.Unclaimed(); len(left) != 0 || len(table.Export()) != 8 {
			t.Errorf("upgrade %d: %d sockets, left over: %v", upgrade, len(table.Export()), left)
		}
		for i, c := range claims[1:] {
			for slot := range 2 {
				if inodeOf(t, table.FD(c[0], slot)) != inodes[i+1][slot] {
					t.Errorf("upgrade %d: slot %d of claim %q is on another socket", upgrade, slot, c[0])
				}
			}
		}
		if !table.Own(claims[1]) || len(table.Left(claims[1], nil)) != 1 {
			t.Errorf("upgrade %d: own %v, left %v", upgrade, table.Own(claims[1]), table.Left(claims[1], nil))
		}
		die(before)
		checkIndexes(t, table, w.Key())
		*before = *table
		*table = *NewTable()
	}
	next := claimed(t, before, []string{w.Key()})
	for slot := range 2 {
		if inodeOf(t, before.FD(next[0], slot)) != inodes[0][slot] {
			t.Errorf("slot %d of the next generation is not on the free socket", slot)
		}
	}
}

// TestUpgradeKeepsAModeThatWasChangedByWayOfSteering: the old generation accepts from the socket that all shared,
// the next ones share another.
func TestUpgradeKeepsAModeThatWasChangedByWayOfSteering(t *testing.T) {
	for _, mode := range []bool{false, true} {
		before, w, _ := opened(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Share, NonBlock: mode})
		old := serves(t, before, w)
		steered, next := w, w
		steered.Handover, next.NonBlock = Steer, !mode
		apply(t, before, steered)
		apply(t, before, next)
		had := inodeOf(t, before.FD(next.Key(), 0))
		table, problems := resumed(t, before, w, old, func() {})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		apply(t, table, next)
		claims := serves(t, table, next)
		if fd := table.FD(claims[0], 0); inodeOf(t, fd) != had || isNonBlock(t, fd) == mode ||
			isNonBlock(t, table.FD(old[0], 0)) != mode {
			t.Errorf("nonblock %v: the next generation has a socket with %v", !mode, isNonBlock(t, fd))
		}
	}
}
