package systemd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// memfd opens a new memfd.
func memfd(t *testing.T) int {
	t.Helper()
	fd := must.Get(unix.MemfdCreate("test", unix.MFD_CLOEXEC))(t)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestStoreFDSendsTheDescriptorUnderItsName(t *testing.T) {
	s := newServer(t)
	fd := memfd(t)
	must.Do(t, s.open().StoreFD("listener web", fd))
	got := s.read()
	if got.text != "FDSTORE=1\nFDNAME=listener web\nFDPOLL=0" {
		t.Errorf("systemd got %q", got.text)
	}
	if len(got.fds) != 1 || !sameFile(t, got.fds[0], fd) {
		t.Errorf("the descriptors are %v, want the sent one, %d", got.fds, fd)
	}
}

func TestDescriptorThatDoesNotFitIsRefusedUntilSystemdReads(t *testing.T) {
	s, n, filled := full(t)
	fd := memfd(t)
	before := descriptors(t)
	if err := errors.Join(n.StoreFD("a", fd)); !errors.Is(err, ErrBusy) {
		t.Errorf("storing returns %v", err)
	}
	if err := n.RemoveFD("b"); !errors.Is(err, ErrBusy) {
		t.Errorf("removing returns %v", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, want %d", after, before)
	}
	select {
	case <-n.Writable():
		t.Fatal("the socket is writable, but its messages were not read")
	case <-time.After(20 * time.Millisecond):
	}
	s.drain(filled)
	s.quiet() // nothing was queued
	<-n.Writable()
	if err := n.StoreFD("a", fd); err != nil {
		t.Error(err)
	}
	s.expect("FDSTORE=1\nFDNAME=a\nFDPOLL=0")
}

func TestEverythingReachesASystemdThatReadsSlowly(t *testing.T) {
	s, n, _ := full(t)
	fd := memfd(t)
	const all = 500
	go func() {
		for i := 0; i < all; {
			if err := n.StoreFD(fmt.Sprint(i), fd); err == nil {
				i++
			} else if errors.Is(err, ErrBusy) {
				<-n.Writable()
			} else {
				t.Error(err)
				return
			}
		}
	}()
	for i := 0; i < all; {
		if name, found := strings.CutPrefix(s.read().text, "FDSTORE=1\nFDNAME="); found {
			if name != fmt.Sprintf("%d\nFDPOLL=0", i) {
				t.Fatalf("%d comes as %q", i, name)
			}
			i++
		}
	}
}

func TestNamesThatSystemdWouldReplaceAreRefused(t *testing.T) {
	s := newServer(t)
	n := s.open()
	for _, name := range []string{"", "a:b", "a\nb", "ü", "\x7f", strings.Repeat("x", 256)} {
		if err := errors.Join(checkFDName(name)); err == nil {
			t.Errorf("%q is a name", name)
		}
		if n.StoreFD(name, 0) == nil || n.RemoveFD(name) == nil {
			t.Errorf("%q is stored or removed", name)
		}
	}
	if err := checkFDName(strings.Repeat("x", 255)); err != nil {
		t.Error(err)
	}
	s.quiet()
}
