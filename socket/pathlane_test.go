package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
)

// steeredPath opens a path whose generations have sockets of their own.
func steeredPath(t testing.TB) (*Table, Want, string) {
	t.Helper()
	spec, path := onDisk(t)
	table, w := steered(t, spec)
	return table, w, path
}

// servesPath holds the listener, and steers to it.
func servesPath(t testing.TB, table *Table, w Want) []string {
	t.Helper()
	claims := claimed(t, table, []string{w.Key()})
	if table.FD(claims[0], 0) < 0 { // for its worker
		t.Fatal("no socket")
	}
	mustServe(t, table, claims)
	return claims
}

// reachesPath checks that a client that connects to the path reaches the socket of these claims.
func reachesPath(t testing.TB, table *Table, path string, claims []string) {
	t.Helper()
	dial(t, "unix", path)
	if !readable(t, table.FD(claims[0], 0), 0) {
		t.Errorf("the connection did not arrive at %q", claims)
		return
	}
	_ = unix.Close(accepted(t, table.FD(claims[0], 0)))
}

// files lists what is in the directory of a path, less its common beginning.
func files(t testing.TB, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestGenerationsOfAPathHaveSocketsOfTheirOwn(t *testing.T) {
	table, w, path := steeredPath(t)
	old := servesPath(t, table, w)
	reachesPath(t, table, path, old)
	if got := files(t, path); !slices.Equal(got, []string{"web.sock"}) {
		t.Errorf("files %v", got)
	}
	for range 4 {
		next := claimed(t, table, []string{w.Key()})
		if !table.Own(next) || table.FD(old[0], 0) == table.FD(next[0], 0) || table.Address(next[0]) != path {
			t.Fatalf("own %v, address %s", table.Own(next), table.Address(next[0]))
		}
		reachesPath(t, table, path, old)
		waits := dial(t, "unix", path)
		mustServe(t, table, next)
		reachesPath(t, table, path, next)
		left := table.Left(old, nil)
		if len(left) != 1 || left[0].Port != 0 || !slices.Equal(left[0].Queues, []uint64{inodeOf(t, table.FD(old[0], 0))}) || len(table.Left(next, nil)) != 0 {
			t.Errorf("left: %v", left)
		}
		_ = unix.Close(accepted(t, table.FD(old[0], 0))) // what had queued before the flip
		_ = waits.Close()
		quiet(t, left)
		mustServe(t, table, old) // and back
		reachesPath(t, table, path, old)
		mustServe(t, table, next)
		reachesPath(t, table, path, next)
		table.Release(old)
		if got := files(t, path); !slices.Equal(got, []string{"web.sock"}) || len(table.FDs(w.Key())) != 1 {
			t.Errorf("files %v, sockets %v", got, table.FDs(w.Key()))
		}
		old = next
	}
	_ = table.Close()
	if got := files(t, path); len(got) != 0 {
		t.Errorf("%v is left", got)
	}
}

func TestTrialThatFailedLeavesNothingBesideThePath(t *testing.T) {
	table, w, path := steeredPath(t)
	old := servesPath(t, table, w)
	trial := claimed(t, table, []string{w.Key()})
	if len(files(t, path)) != 2 {
		t.Error(files(t, path))
	}
	table.Release(trial)
	reachesPath(t, table, path, old)
	if len(files(t, path)) != 1 {
		t.Error(files(t, path))
	}
}

func TestConnectionsAtAPathWaitForTheNextGeneration(t *testing.T) {
	table, w, path := steeredPath(t)
	old := servesPath(t, table, w)
	table.Release(old)
	dial(t, "unix", path)
	next := claimed(t, table, []string{w.Key()})
	_ = unix.Close(accepted(t, table.FD(next[0], 0)))
	mustServe(t, table, next)
	reachesPath(t, table, path, next)
}

func TestLanesOfAPathHaveItsModeAndOwner(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o620
	if os.Geteuid() == 0 {
		spec.User, spec.Group = "65534", "12"
	}
	table, w := steered(t, spec)
	check := func(mode os.FileMode) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		if got := modeOf(t, path).Perm(); got != mode || os.Geteuid() == 0 && (st.Uid != 65534 || st.Gid != 12) {
			t.Errorf("mode %#o, owner %d:%d", got, st.Uid, st.Gid)
		}
	}
	old := servesPath(t, table, w)
	check(0o620)
	next := servesPath(t, table, w)
	check(0o620)
	w.Mode = 0o600
	apply(t, table, w)
	check(0o600)
	third := servesPath(t, table, w)
	check(0o600)
	mustServe(t, table, old)
	check(0o600)
	for _, claims := range [][]string{old, next, third} {
		table.Release(claims)
	}
}

func TestPathThatWasRemovedIsBoundAgainByTheNextGeneration(t *testing.T) {
	table, w, path := steeredPath(t)
	old := servesPath(t, table, w)
	if table.Stranded(w.Key()) {
		t.Error("stranded although the path is there")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !table.Stranded(w.Key()) {
		t.Error("not stranded although the path is gone")
	}
	apply(t, table, w)
	next := servesPath(t, table, w)
	reachesPath(t, table, path, next)
	if table.Stranded(w.Key()) {
		t.Error("still stranded")
	}
	table.Release(old)
	reachesPath(t, table, path, next)
	if got := files(t, path); len(got) != 1 {
		t.Errorf("files %v", got)
	}
}

func TestPathThatAnotherProcessHasTakenIsNotTakenBack(t *testing.T) {
	table, w, path := steeredPath(t)
	old := servesPath(t, table, w)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	theirs, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Update([]Want{w}); !errors.Is(err, unixpath.ErrInUse) {
		t.Errorf("the update ended with %v", err)
	}
	next := claimed(t, table, []string{w.Key()})
	if err := serve(table, next); !errors.Is(err, unixpath.ErrInUse) {
		t.Errorf("the steering ended with %v", err)
	}
	_ = theirs.Close()
	stale(t, path)
	apply(t, table, w)
	mustServe(t, table, next)
	reachesPath(t, table, path, next)
	table.Release(old)
}

func TestPathIsClosedAndOpenedAgain(t *testing.T) {
	table, w, path := steeredPath(t)
	old := servesPath(t, table, w)
	servesPath(t, table, w)
	next := servesPath(t, table, w)
	dial(t, "unix", path) // it is queued, and its worker continues
	setOpen(t, table, w.Key(), false)
	if !table.Closed(w.Key()) {
		t.Error("not closed")
	}
	refusesClients(t, "unix", path)
	_ = unix.Close(accepted(t, table.FD(next[0], 0)))
	table.Release(next)
	refusesClients(t, "unix", path)
	table.Release(old)
	third := claimed(t, table, []string{w.Key()})
	setOpen(t, table, w.Key(), true)
	reachesPath(t, table, path, third)
	mustServe(t, table, third)
	reachesPath(t, table, path, third)
}

func TestGenerationThatHasNoWorkerYetGetsThePathThatIsOpenedForIt(t *testing.T) {
	table, w, path := steeredPath(t)
	first := claimed(t, table, []string{w.Key()})
	setOpen(t, table, w.Key(), false)
	refusesClients(t, "unix", path)
	setOpen(t, table, w.Key(), true)
	reachesPath(t, table, path, first)
	mustServe(t, table, first)
	setOpen(t, table, w.Key(), false) // its workers died
	setOpen(t, table, w.Key(), true)  // one is started again
	reachesPath(t, table, path, first)
	second := servesPath(t, table, w)
	reachesPath(t, table, path, second)
	table.Release(first)
	table.Release(second)
	if got := files(t, path); len(got) != 1 || len(table.FDs(w.Key())) != 1 {
		t.Errorf("files %v", got)
	}
}

func TestClosingAPathWithoutWorkersResetsItsQueue(t *testing.T) {
	table, w, path := steeredPath(t)
	table.Release(servesPath(t, table, w))
	client := dial(t, "unix", path)
	setOpen(t, table, w.Key(), false)
	if _, err := client.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Error(err)
	}
	if len(table.FDs(w.Key())) != 1 {
		t.Errorf("sockets %v", table.FDs(w.Key()))
	}
}

// handing is a handover of a path with two generations, of which the one at the path is the newer.
type handing struct {
	before, table *Table
	w             Want
	path          string
	old, next     []string
	claims        []Holding
}

func handingOver(t *testing.T) *handing {
	t.Helper()
	h := &handing{}
	h.before, h.w, h.path = steeredPath(t)
	h.old, h.next = servesPath(t, h.before, h.w), servesPath(t, h.before, h.w)
	h.table = newTable(t)
	h.claims = []Holding{{Resolved: h.w.Resolved, Claim: h.old[0]}, {Resolved: h.w.Resolved, Claim: h.next[0], Serves: true}}
	return h
}

// check checks that each generation has its socket, and that the newer one serves.
func (h *handing) check(t *testing.T) {
	t.Helper()
	for _, claims := range [][]string{h.old, h.next} {
		if inodeOf(t, h.table.FD(claims[0], 0)) != inodeOf(t, h.before.FD(claims[0], 0)) {
			t.Errorf("the generation with %q has another socket", claims)
		}
	}
	reachesPath(t, h.table, h.path, h.next)
	mustServe(t, h.table, h.old)
	reachesPath(t, h.table, h.path, h.old)
	mustServe(t, h.table, h.next)
	h.table.Release(h.old)
	reachesPath(t, h.table, h.path, h.next)
	if got := files(t, h.path); len(got) != 1 {
		t.Errorf("files %v", got)
	}
}

func TestLanesOfAPathAreHandedOver(t *testing.T) {
	h := handingOver(t)
	h.table.Offer(handedOver(t, h.before))
	if problems := h.table.Resume(h.claims); len(problems) > 0 {
		t.Error(problems)
	}
	apply(t, h.table, h.w)
	if left := h.table.Unclaimed(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	h.check(t)
}

func TestFlipThatWasRecordedAndNotDoneIsDoneByTheNextSupervisor(t *testing.T) {
	h := handingOver(t)
	mustServe(t, h.before, h.old)
	h.table.Offer(handedOver(t, h.before))
	h.table.Resume(h.claims)
	h.check(t)
}

func TestPathStaysWhereItIsWhenNothingServes(t *testing.T) {
	h := handingOver(t)
	h.claims[1].Serves = false
	h.table.Offer(handedOver(t, h.before))
	h.table.Resume(h.claims)
	apply(t, h.table, h.w)
	reachesPath(t, h.table, h.path, h.next)
	h.claims[1].Serves = true
	h.check(t)
}

func TestPathThatOnlyClientsHaveIsHandedOver(t *testing.T) {
	h := handingOver(t)
	h.before.Release(h.next)
	dial(t, "unix", h.path)
	h.table.Offer(handedOver(t, h.before))
	h.table.Resume(h.claims[:1])
	apply(t, h.table, h.w)
	next := claimed(t, h.table, []string{h.w.Key()})
	_ = unix.Close(accepted(t, h.table.FD(next[0], 0)))
	mustServe(t, h.table, next)
	reachesPath(t, h.table, h.path, next)
}

// TestPathIsFoundByItsInode: without a record and without names, only the sockets that workers have are left.
func TestPathIsFoundByItsInode(t *testing.T) {
	for what, steer := range map[string]func(h *handing) []string{
		"the newer serves": func(h *handing) []string { return h.next },
		"rolled back":      func(h *handing) []string { mustServe(t, h.before, h.old); return h.old },
	} {
		t.Run(what, func(t *testing.T) {
			h := handingOver(t)
			serving := steer(h)
			inode := inodeOf(t, h.before.FD(serving[0], 0))
			for _, fd := range h.before.FDs(h.w.Key()) {
				dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				s, err := inherit.Examine(dup, "orphan")
				if err != nil {
					t.Fatal(err)
				}
				s.Ours, s.InUse = true, true
				h.table.Offer([]inherit.Socket{s})
			}
			apply(t, h.table, h.w)
			if got := inodeOf(t, h.table.FD(h.w.Key(), 0)); got != inode {
				t.Errorf("the socket %d was taken, want %d", got, inode)
			}
			for _, l := range h.table.Unclaimed() {
				_ = unix.Close(l.FD)
			}
			first := claimed(t, h.table, []string{h.w.Key()})
			if inodeOf(t, h.table.FD(first[0], 0)) == inode {
				t.Error("the generation shares the socket with the orphans")
			}
			reachesPath(t, h.table, h.path, []string{h.w.Key()}) // the orphans serve
			if left := h.table.LeftOf([]uint64{inode}); len(left) != 0 {
				t.Errorf("left of the orphans, which serve: %v", left)
			}
			mustServe(t, h.table, first)
			reachesPath(t, h.table, h.path, first)
			if left := h.table.LeftOf([]uint64{inode}); len(left) != 1 || left[0].Port != 0 || !slices.Equal(left[0].Queues, []uint64{inode}) {
				t.Errorf("left of the orphans: %v", left)
			}
			h.table.OrphansGone()
			reachesPath(t, h.table, h.path, first)
			if got := h.table.FDs(h.w.Key()); len(got) != 1 {
				t.Errorf("sockets %v", got)
			}
			second := servesPath(t, h.table, h.w)
			reachesPath(t, h.table, h.path, second)
		})
	}
}

func TestPathBetweenShareAndSteer(t *testing.T) {
	table, w, path := steeredPath(t)
	first := servesPath(t, table, w)
	second := servesPath(t, table, w)
	w.Handover = Share
	apply(t, table, w)
	third := claimed(t, table, []string{w.Key()})
	if table.Own(third) || table.FD(third[0], 0) != table.FD(second[0], 0) {
		t.Error("the third generation does not share the socket of the second")
	}
	mustServe(t, table, third)
	table.Release(first)
	reachesPath(t, table, path, third)
	w.Handover = Steer
	apply(t, table, w)
	fourth := servesPath(t, table, w)
	if !table.Own(fourth) {
		t.Error("the fourth generation has no socket of its own")
	}
	reachesPath(t, table, path, fourth)
	table.Release(second)
	table.Release(third)
	reachesPath(t, table, path, fourth)
	if got := files(t, path); len(got) != 1 {
		t.Errorf("files %v", got)
	}
}

func TestCanaryOfSomeWorkersSharesThePath(t *testing.T) {
	table, w, _ := steeredPath(t)
	old := servesPath(t, table, w)
	canary, err := table.Hold([]string{w.Key()}, Need{Shared: true})
	if err != nil || table.Own(canary) || table.FD(canary[0], 0) != table.FD(old[0], 0) {
		t.Errorf("%v, own %v", err, table.Own(canary))
	}
	table.Release(canary)
	if !table.Own(old) {
		t.Error("the canary is gone, and the serving generation does not own its lane")
	}
}

func TestPathThatCannotBeSteeredIsShared(t *testing.T) {
	spec, path := onDisk(t)
	long := spec
	long.Address = addr("unix:" + filepath.Dir(path) + "/" + strings.Repeat("x", unixpath.Longest-len(filepath.Dir(path))))
	table, w := steered(t, long)
	if why := table.Shared(w.Key()); !strings.Contains(why, "at most 103") {
		t.Errorf("shared because %q", why)
	}
	unit := newTable(t)
	unit.Offer([]inherit.Socket{unitSocket(t, "unix", path, "web")})
	s := want(t, spec)
	s.Name, s.Handover = "web", Steer
	apply(t, unit, s)
	if why := unit.Shared(s.Key()); !strings.Contains(why, "socket unit") {
		t.Errorf("shared because %q", why)
	}
	a, b := claimed(t, unit, []string{s.Key()}), claimed(t, unit, []string{s.Key()})
	if unit.FD(a[0], 0) != unit.FD(b[0], 0) || unit.Own(b) {
		t.Error("the generations do not share the socket of the unit")
	}
}

func TestProbeOfAPathReachesItsGenerationWhereverItsSocketIs(t *testing.T) {
	table, w, path := steeredPath(t)
	old, next := servesPath(t, table, w), claimed(t, table, []string{w.Key()})
	probe, err := table.Probe(next[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.End()
	for _, serving := range [][]string{old, next, old} {
		mustServe(t, table, serving)
		c, err := probe.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(accepted(t, table.FD(next[0], 0)))
		_ = c.Close()
		reachesPath(t, table, path, serving)
	}
}
