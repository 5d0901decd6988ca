package unixpath

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

func TestOpenOwnDoesNotReplaceAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	must.Do(t, os.WriteFile(path, []byte("dear"), 0o600))
	if _, err := OpenOwn(path, 0o600, -1); err == nil {
		t.Error("it was replaced")
	}
	if text, _ := os.ReadFile(path); string(text) != "dear" {
		t.Errorf("the file has %q", text)
	}
}

func TestCloseOfOwnDoesNotRemoveAForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := must.Get(OpenOwn(path, 0o600, -1))(t)
	os.Remove(path)
	must.Do(t, os.WriteFile(path, nil, 0o600))
	s.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the new file was removed: %v", err)
	}
}

// TestOpenOwnGivesAPathToOneOfMany: each finds the socket of a dead process, and must not remove one that another has
// just created.
func TestOpenOwnGivesAPathToOneOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 200 {
		stale := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
		must.Do(t, unix.Bind(stale, &unix.SockaddrUnix{Name: path}))
		unix.Close(stale)
		var starting sync.WaitGroup
		opened := make(chan *Own, 8)
		for range cap(opened) {
			starting.Go(func() {
				s, err := OpenOwn(path, 0o600, -1)
				if err == nil {
					opened <- s
				} else if !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
			})
		}
		starting.Wait()
		close(opened)
		if len(opened) != 1 {
			t.Fatalf("%d have it", len(opened))
		}
		for s := range opened {
			if c, err := net.Dial("unix", path); err != nil {
				t.Error(err)
			} else {
				c.Close()
			}
			s.Close()
		}
	}
}

func TestInheritOwnClosesOtherDescriptors(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	f := must.Get(l.(*net.TCPListener).File())(t)
	defer f.Close()
	fd := must.Get(unix.Dup(int(f.Fd())))(t)
	if _, err := InheritOwn(fd); err == nil {
		t.Error("a TCP socket counts as a unix socket")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("it stays open: %v", err)
	}
	if _, err := InheritOwn(-1); err == nil {
		t.Error("an invalid descriptor counts as a unix socket")
	}
}

// TestSocketWhoseQueueIsFullIsInherited: clients that came while one image replaced another wait for an answer.
func TestSocketWhoseQueueIsFullIsInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	before := must.Get(OpenOwn(path, 0o600, -1))(t)
	must.Do(t, unix.Listen(before.FD(), 0))
	client := must.Get(net.Dial("unix", path))(t)
	defer client.Close()
	if _, err := connect(path); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("the queue has room: %v", err)
	}
	s := must.Get(InheritOwn(before.FD()))(t)
	defer s.Close()
	if !s.Reachable() {
		t.Error("it is given up, with the client that waits")
	}
}
