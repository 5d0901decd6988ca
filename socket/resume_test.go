package socket

import (
	"errors"
	"os"
	"strings"
	"testing"

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
	slots := w
	slots.PerSlot = true // which the socket cannot have
	offers := handedOver(t, before)
	table := newTable(t)
	table.Offer(offers)
	if err := unix.SetsockoptInt(offers[0].FD, unix.SOL_SOCKET, unix.SO_REUSEPORT, 0); err != nil {
		t.Fatal(err)
	}
	problems := table.Resume([]Holding{{Resolved: slots.Resolved, Claim: claims[0], Serves: true}})
	if len(problems) != 1 || inodeOf(t, table.FD(claims[0], 0)) != inodeOf(t, before.FD(claims[0], 0)) {
		t.Errorf("problems: %v", problems)
	}
}

func TestSlotWithoutASocketSharesTheSocketOfAnother(t *testing.T) {
	table, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	nowhere := want(t, Spec{Address: addr("192.0.2.77:80"), PerSlot: true})
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
	generations := []Holding{{Resolved: w.Resolved, Claim: claims[0], Serves: true}, {Resolved: w.Resolved, Claim: claims[0]}}
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
