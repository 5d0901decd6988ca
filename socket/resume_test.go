package socket

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resumed hands the sockets of a table over, after spoil, to another table with a generation that has this lane.
func resumed(t *testing.T, before *Table, ln *Lane, spoil func()) (*Table, *Lane, []error) {
	t.Helper()
	offers := handedOver(t, before)
	spoil()
	table := newTable(t)
	table.Offer(offers)
	lanes := recorded(t, ln)
	return table, lanes[0], table.Resume(lanes)
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
			lanes := held(t, before, w)
			table, ln, problems := resumed(t, before, lanes[0], func() {
				if err := errors.Join(os.Remove(path), put(path)); err != nil {
					t.Fatal(err)
				}
			})
			if len(problems) > 0 || inodeOf(t, ln.FD(0)) != inodeOf(t, fd) {
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
	had := held(t, before, w)
	idle := w
	idle.KeepAlive = 40_000 * time.Second // the kernel takes 32,767 s at most
	table := newTable(t)
	table.Offer(handedOver(t, before))
	lanes := recorded(t, had...)
	lanes[0].Listener = idle.Resolved
	problems := table.Resume(lanes)
	if len(problems) != 1 || inodeOf(t, lanes[0].FD(0)) != inodeOf(t, had[0].FD(0)) {
		t.Errorf("problems: %v", problems)
	}
}

func TestSlotWithoutASocketSharesTheSocketOfAnother(t *testing.T) {
	table, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	nowhere := want(t, Spec{Address: addr("192.0.2.77:80"), PerSlot: true, Handover: Steer})
	u := &update{table: table, resuming: true}
	slots := u.refill(&listener{r: nowhere.Resolved, members: []*sock{{fd: fd}}}, nowhere.Resolved, []int{0, 1, 2})
	if len(u.problems) != 2 || len(slots) != 3 {
		t.Fatalf("%d sockets, problems %v", len(slots), u.problems)
	}
	for _, s := range slots {
		if inodeOf(t, s.fd) != inodeOf(t, fd) {
			t.Error("a slot has another socket")
		}
	}
}

func TestRehearseFindsASocketThatIsMissingAndTouchesNone(t *testing.T) {
	before := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr(freePort(t))})
	apply(t, before, w)
	lanes := held(t, before, w)
	generations := []*Lane{lanes[0], lanes[0]}
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
	var all [][]*Lane
	var inodes [][]uint64
	for range 4 {
		c := held(t, before, w)
		all, inodes = append(all, c), append(inodes,
			[]uint64{inodeOf(t, c[0].FD(0)), inodeOf(t, c[0].FD(1))})
	}
	mustServe(t, before, all[2])
	before.Release(all[0])
	for upgrade := range 3 {
		lanes := recorded(t, all[2][0], all[1][0], all[3][0])
		all[2], all[1], all[3] = lanes[:1], lanes[1:2], lanes[2:]
		offers := handedOver(t, before)
		rehearsal := NewTable()
		rehearsal.Offer(handedOver(t, before))
		if err := rehearsal.Rehearse(lanes); err != nil {
			t.Fatal(err)
		}
		_ = rehearsal.Close()
		table := newTable(t)
		table.Offer(offers)
		if err := errors.Join(table.Resume(lanes)...); err != nil {
			t.Fatal(err)
		}
		apply(t, table, w)
		if left := table.Unclaimed(); len(left) != 0 || len(table.Export()) != 8 {
			t.Errorf("upgrade %d: %d sockets, left over: %v", upgrade, len(table.Export()), left)
		}
		for i, c := range all[1:] {
			for slot := range 2 {
				if inodeOf(t, c[0].FD(slot)) != inodes[i+1][slot] {
					t.Errorf("upgrade %d: slot %d of lane %v is on another socket", upgrade, slot, c[0].Members)
				}
			}
		}
		if !all[1][0].Own() || len(Left(all[1], nil)) != 1 {
			t.Errorf("upgrade %d: own %v, left %v", upgrade, all[1][0].Own(), Left(all[1], nil))
		}
		die(before)
		checkIndexes(t, table, w.Key())
		before = table
	}
	next := held(t, before, w)
	for slot := range 2 {
		if inodeOf(t, next[0].FD(slot)) != inodes[0][slot] {
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
		table, again, problems := resumed(t, before, old[0], func() {})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		apply(t, table, next)
		lanes := serves(t, table, next)
		if fd := lanes[0].FD(0); inodeOf(t, fd) != had || isNonBlock(t, fd) == mode ||
			isNonBlock(t, again.FD(0)) != mode {
			t.Errorf("nonblock %v: the next generation has a socket with %v", !mode, isNonBlock(t, fd))
		}
	}
}
