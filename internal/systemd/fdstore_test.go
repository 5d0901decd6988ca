package systemd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// files opens so many different files.
func files(t *testing.T, count int) []int {
	t.Helper()
	var fds []int
	for range count {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	t.Cleanup(func() { closeAll(fds) })
	return fds
}

func TestStoreFDSendsTheDescriptorUnderItsName(t *testing.T) {
	s := newServer(t)
	fds := files(t, 2)
	if err := s.open().StoreFD("listener web", fds...); err != nil {
		t.Fatal(err)
	}
	got := s.read()
	if got.text != "FDSTORE=1\nFDNAME=listener web\nFDPOLL=0" {
		t.Errorf("systemd got %q", got.text)
	}
	if len(got.fds) != 2 || !sameFile(t, got.fds[0], fds[0]) || !sameFile(t, got.fds[1], fds[1]) {
		t.Errorf("the descriptors %v are not those that were sent, %v", got.fds, fds)
	}
}

func TestStoreFDSplitsWhatIsTooMuchForOneMessage(t *testing.T) {
	s := newServer(t)
	fds := files(t, maxRights+1)
	if err := s.open().StoreFD("many", fds...); err != nil {
		t.Fatal(err)
	}
	first, second := s.read(), s.read()
	if len(first.fds) != maxRights || len(second.fds) != 1 {
		t.Fatalf("the messages have %d and %d descriptors", len(first.fds), len(second.fds))
	}
	if first.text != second.text || !sameFile(t, second.fds[0], fds[maxRights]) {
		t.Errorf("the second one is %q with the wrong descriptor", second.text)
	}
}

func TestADescriptorThatWaitsMayBeClosed(t *testing.T) {
	s := newServer(t)
	n := s.open()
	filled := s.fill(n)
	var inodes []uint64
	for i := range 300 {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := errors.Join(unix.Fstat(fd, &stat), n.StoreFD(fmt.Sprintf("w%d", i), fd), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, stat.Ino)
	}
	for range filled {
		s.read()
	}
	for i, inode := range inodes {
		got := s.read()
		var stat unix.Stat_t
		if len(got.fds) != 1 || unix.Fstat(got.fds[0], &stat) != nil || stat.Ino != inode {
			t.Fatalf("message %d has the descriptors %v, want the one with inode %d", i, got.fds, inode)
		}
	}
	if err := n.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatIsSentIsNotKeptOpen(t *testing.T) {
	s := newServer(t)
	n := s.open()
	fd := files(t, 1)[0]
	filled := s.fill(n)
	before := descriptors(t)
	for range 10 {
		if err := n.StoreFD("x", fd); err != nil {
			t.Fatal(err)
		}
	}
	for range filled {
		s.read()
	}
	for range 10 {
		closeAll(s.read().fds)
	}
	if err := n.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, want %d", after, before)
	}
}

func TestNamesThatSystemdWouldReplaceAreRefused(t *testing.T) {
	s := newServer(t)
	n := s.open()
	for _, name := range []string{"", "a:b", "a\nb", "ü", "\x7f", strings.Repeat("x", 256)} {
		if err := errors.Join(CheckFDName(name)); err == nil {
			t.Errorf("%q is a name", name)
		}
		if n.StoreFD(name, 0) == nil || n.RemoveFD(name) == nil {
			t.Errorf("%q is stored or removed", name)
		}
	}
	if err := CheckFDName(strings.Repeat("x", 255)); err != nil {
		t.Error(err)
	}
	s.quiet()
}

func TestBarrierEndsWhenSystemdClosesThePipe(t *testing.T) {
	s := newServer(t)
	n := s.open()
	if err := n.Ready(); err != nil {
		t.Fatal(err)
	}
	passed := make(chan error)
	go func() { passed <- n.Barrier(t.Context()) }()
	s.expect("READY=1")
	got := s.read()
	if got.text != "BARRIER=1" || len(got.fds) != 1 {
		t.Fatalf("systemd got %q with %d descriptors, want BARRIER=1 with one", got.text, len(got.fds))
	}
	select {
	case err := <-passed:
		t.Fatalf("it ended before the pipe was closed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	closeAll(got.fds)
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func TestBarrierGivesUpWithItsContext(t *testing.T) {
	s := newServer(t)
	n := s.open()
	before := descriptors(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, os.ErrProcessDone)
	defer cancel()
	if err := n.Barrier(ctx); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the error is %v", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, want %d", after, before)
	}
}

func TestAStoreWhoseNamesWouldNotFitIsRefused(t *testing.T) {
	s := newServer(t)
	go func() { // takes everything
		for {
			if _, err := s.conn.Read(make([]byte, maxPayload)); err != nil {
				return
			}
		}
	}()
	fd := files(t, 1)[0]
	inherited := "a:" + strings.Repeat("b", 253)
	n, err := Open(variables{"NOTIFY_SOCKET": s.path, "LISTEN_FDNAMES": inherited}.get, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	all := inherited
	name := func(i int) string { return fmt.Sprintf("%0255d", i) }
	for i := 0; ; i++ {
		if err = n.StoreFD(name(i), fd); err != nil {
			break
		}
		all += ":" + name(i)
	}
	if size := len("LISTEN_FDNAMES="+all) + 1; !errors.Is(err, ErrNamesFull) || size > 131072 || size+256 <= 131072 {
		t.Errorf("after %d bytes: %v", size, err)
	}
	if err := errors.Join(n.StoreFD(name(0), fd), n.RemoveFD(name(0)), n.StoreFD(name(9999), fd)); err != nil {
		t.Errorf("one again, one out, one in: %v", err)
	}
	if err := n.StoreFD(name(10000), fd); !errors.Is(err, ErrNamesFull) {
		t.Errorf("one more: %v", err)
	}
}

func TestFreezeTellsWhatTheSocketHasTaken(t *testing.T) {
	s := newServer(t)
	n := s.open()
	fd := files(t, 1)[0]
	if err := errors.Join(n.StoreFD("taken", fd), n.StoreFD("removed", fd), n.RemoveFD("removed"), n.StoreFD("going", fd)); err != nil {
		t.Fatal(err)
	}
	filled := s.fill(n)
	if err := errors.Join(n.StoreFD("waits", fd), n.RemoveFD("going")); err != nil {
		t.Fatal(err)
	}
	got := n.Freeze()
	n.Thaw()
	if want := (map[string]int{"taken": 1, "going": 1}); !maps.Equal(got, want) {
		t.Errorf("systemd has %v, want %v", got, want)
	}
	if got := slices.Sorted(slices.Values(n.Stored())); !slices.Equal(got, []string{"taken", "waits"}) {
		t.Errorf("systemd will have %v", got)
	}
	for range filled + 6 {
		closeAll(s.read().fds)
	}
	if err := n.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = n.Freeze()
	n.Thaw()
	if want := (map[string]int{"taken": 1, "waits": 1}); !maps.Equal(got, want) {
		t.Errorf("at last systemd has %v, want %v", got, want)
	}
}

func TestNothingIsSentBetweenFreezeAndThaw(t *testing.T) {
	s := newServer(t)
	n := s.open()
	filled := s.fill(n)
	if err := n.StoreFD("x", files(t, 1)[0]); err != nil {
		t.Fatal(err)
	}
	frozen := n.Freeze()
	for range filled - 1 { // the last one waits
		s.read()
	}
	s.quiet()
	n.Thaw()
	s.expect("X_FILL=1")
	s.expect("FDSTORE=1\nFDNAME=x\nFDPOLL=0")
	if len(frozen) != 0 {
		t.Errorf("systemd has %v", frozen)
	}
}

func TestTheNextImageGoesOnWithTheNamesThatSystemdHas(t *testing.T) {
	s := newServer(t)
	full := map[string]int{}
	for i := range maxNames/256 - 1 {
		full[fmt.Sprintf("%0255d", i)] = 1
	}
	n, err := Open(variables{"NOTIFY_SOCKET": s.path}.get, full, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	fd := files(t, 1)[0]
	if err := n.StoreFD(strings.Repeat("x", 255), fd); err != nil {
		t.Errorf("the last one that fits: %v", err)
	}
	if err := n.StoreFD(strings.Repeat("y", 255), fd); !errors.Is(err, ErrNamesFull) || !errors.Is(err, ErrStoreFull) {
		t.Errorf("one more: %v", err)
	}
}

func TestAStoreThatHasAsMuchAsTheUnitAllowsIsFull(t *testing.T) {
	s := newServer(t)
	n, err := Open(variables{"NOTIFY_SOCKET": s.path, "FDSTORE": "2", "LISTEN_FDNAMES": "a"}.get, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	fd := files(t, 1)[0]
	if err := errors.Join(n.StoreFD("a", fd), n.StoreFD("b", fd)); err != nil {
		t.Error(err)
	}
	if err := n.StoreFD("c", fd); !errors.Is(err, ErrStoreFull) || errors.Is(err, ErrNamesFull) {
		t.Errorf("one more: %v", err)
	}
	if err := errors.Join(n.RemoveFD("a"), n.StoreFD("c", fd)); err != nil {
		t.Errorf("one out, one in: %v", err)
	}
}

func TestWhatCannotBeSentIsNotInTheStore(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.conn.Close()
	if err := n.StoreFD("x", files(t, 1)[0]); err == nil {
		t.Fatal("it could be sent")
	}
	if got := n.Stored(); len(got) != 0 {
		t.Errorf("systemd will have %v", got)
	}
}
