package unixpath

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onEach runs a test on the file system of temporary files and on a tmpfs, with and without RENAME_EXCHANGE.
func onEach(t *testing.T, test func(t *testing.T, path string, publish publishing)) {
	for _, root := range []string{os.TempDir(), "/dev/shm"} {
		for kind, exchanges := range map[string]func(path, name string) error{
			"exchange": exchange,
			"link":     func(string, string) error { return unix.EINVAL },
		} {
			t.Run(filepath.Base(root)+" "+kind, func(t *testing.T) {
				dir, err := os.MkdirTemp(root, "s")
				if err != nil {
					t.Skip(err)
				}
				t.Cleanup(func() { os.RemoveAll(dir) })
				test(t, filepath.Join(dir, "web.sock"), func(path, name string, inode Inode, ours func(Inode) bool) (bool, error) {
					return publish(path, name, inode, ours, exchanges)
				})
				if left, _ := filepath.Glob(dir + "/.*.lock"); len(left) > 0 {
					t.Errorf("%v is left", left)
				}
				if left, _ := filepath.Glob(dir + "/.*~"); len(left) > 0 {
					t.Errorf("%v is left", left)
				}
			})
		}
	}
}

type publishing func(path, name string, inode Inode, ours func(Inode) bool) (bool, error)

// bound is a listening socket.
type bound struct {
	t     *testing.T
	fd    int
	at    string
	inode Inode
}

func listening(t *testing.T, bind func(fd int) (string, Inode, error)) *bound {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	at, inode, err := bind(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		t.Fatal(err)
	}
	return &bound{t, fd, at, inode}
}

func atPath(t *testing.T, path string) *bound {
	return listening(t, func(fd int) (string, Inode, error) {
		inode, err := Bind(fd, path, 0, -1, -1)
		return path, inode, err
	})
}

func none(string) bool { return false }

func atHidden(t *testing.T, path string, taken func(string) bool) *bound {
	return listening(t, func(fd int) (string, Inode, error) {
		return BindHidden(fd, path, Access{Mode: 0o640, UID: -1, GID: -1}, taken)
	})
}

// accepted counts what waits in the queue, and takes it.
func (b *bound) accepted() (n int) {
	for {
		fd, _, err := unix.Accept4(b.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return n
		}
		unix.Close(fd)
		n++
	}
}

func connectTo(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestPublishExchangesAndExchangesBack(t *testing.T) {
	onEach(t, func(t *testing.T, path string, publish publishing) {
		old := atPath(t, path)
		next := atHidden(t, path, none)
		ours := func(i Inode) bool { return i == old.inode || i == next.inode }
		if filepath.Base(next.at) != ".web.sock.1" {
			t.Errorf("bound at %s", next.at)
		}
		connectTo(t, path)
		if swapped, err := publish(path, next.at, next.inode, ours); err != nil || !swapped {
			t.Fatal(swapped, err)
		}
		connectTo(t, path)
		if n, m := old.accepted(), next.accepted(); n != 1 || m != 1 {
			t.Errorf("%d and %d connections", n, m)
		}
		if st, _ := os.Lstat(path); st.Mode().Perm() != 0o640 {
			t.Errorf("mode %v", st.Mode())
		}
		connectTo(t, next.at) // where the old one is now
		if swapped, err := publish(path, next.at, old.inode, ours); err != nil || !swapped {
			t.Fatal(swapped, err)
		}
		connectTo(t, path)
		if n, m := old.accepted(), next.accepted(); n != 2 || m != 0 {
			t.Errorf("%d and %d connections after the way back", n, m)
		}
	})
}

func TestPublishNeverLeavesThePathWithoutASocket(t *testing.T) {
	onEach(t, func(t *testing.T, path string, publish publishing) {
		all := []*bound{atPath(t, path), atHidden(t, path, none)}
		hidden := all[1].at
		ours := func(i Inode) bool { return i == all[0].inode || i == all[1].inode }
		var over atomic.Bool
		var clients sync.WaitGroup
		var connected atomic.Int64
		for range 2 {
			clients.Go(func() {
				for !over.Load() {
					fd, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
					if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil && !errors.Is(err, unix.EAGAIN) {
						t.Error(err)
					}
					unix.Close(fd)
					connected.Add(1)
					time.Sleep(100 * time.Microsecond) // leaves the machine to what is tested
				}
			})
		}
		for flips := 0; flips < 100 || connected.Load() < 50; flips++ {
			if _, err := publish(path, hidden, all[(flips+1)%2].inode, ours); err != nil {
				t.Fatal(err)
			}
			all[0].accepted()
			all[1].accepted()
		}
		over.Store(true)
		clients.Wait()
	})
}

func TestPublishWhereThePathWasRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, path string, publish publishing) {
		next := atHidden(t, path, none)
		swapped, err := publish(path, next.at, next.inode, func(i Inode) bool { return i == next.inode })
		if err != nil || swapped || exists(next.at) {
			t.Fatal(swapped, err)
		}
		connectTo(t, path)
	})
}

func TestPublishLeavesWhatBelongsToOthers(t *testing.T) {
	onEach(t, func(t *testing.T, path string, publish publishing) {
		next := atHidden(t, path, none)
		ours := func(i Inode) bool { return i == next.inode }
		theirs := atPath(t, path)
		if _, err := publish(path, next.at, next.inode, ours); !errors.Is(err, ErrInUse) || !theirs.inode.IsAt(path) || !next.inode.IsAt(next.at) {
			t.Errorf("a socket that is used: %v", err)
		}
		unix.Close(theirs.fd)
		theirs.fd = -1
		if _, err := publish(path, next.at, next.inode, ours); err != nil || !next.inode.IsAt(path) {
			t.Errorf("a stale socket: %v", err)
		}
		os.Remove(path)
		another := atHidden(t, path, none)
		if err := os.WriteFile(path, []byte("dear"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := publish(path, another.at, another.inode, ours); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a file: %v", err)
		}
		if text, _ := os.ReadFile(path); string(text) != "dear" {
			t.Errorf("the file has %q", text)
		}
	})
}

func TestPublishOfASocketThatWasRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, path string, publish publishing) {
		old, next := atPath(t, path), atHidden(t, path, none)
		os.Remove(next.at)
		if _, err := publish(path, next.at, next.inode, func(Inode) bool { return true }); !errors.Is(err, unix.ESTALE) || !old.inode.IsAt(path) {
			t.Error(err)
		}
	})
}

func TestHiddenNamesThatAreUsedAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.sock")
	first := atHidden(t, path, none)
	mine := atHidden(t, path, func(name string) bool { return strings.HasSuffix(name, ".2") })
	if filepath.Base(mine.at) != ".web.sock.3" || first.accepted() == 0 {
		t.Errorf("the third is at %s", mine.at)
	}
	for _, other := range []string{".web.sock.x", ".web.sock.100", ".web.sock.04", ".web.socks.4", "web.sock.4"} {
		stale := atPath(t, filepath.Join(dir, other))
		unix.Close(stale.fd)
		stale.fd = -1
	}
	stale := atHidden(t, path, func(name string) bool { return strings.HasSuffix(name, ".2") || name == mine.at })
	unix.Close(stale.fd)
	stale.fd = -1
	silent := atHidden(t, path, func(name string) bool { return !strings.HasSuffix(name, ".7") })
	unix.Shutdown(silent.fd, unix.SHUT_RD)
	RemoveHidden(path, func(name string) bool { return name == silent.at })
	if !exists(first.at) || !exists(mine.at) || exists(stale.at) || !exists(silent.at) {
		t.Error("the wrong ones were removed")
	}
	if left, _ := os.ReadDir(dir); len(left) != 8 {
		t.Errorf("%v", left)
	}
}

func TestLongestPathWithHiddenNames(t *testing.T) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, strings.Repeat("x", Longest-len(dir)-1))
	last := atHidden(t, path, func(name string) bool { return !strings.HasSuffix(name, ".99") })
	if len(last.at) != 107 {
		t.Errorf("%d bytes", len(last.at))
	}
	if _, _, err := BindHidden(-1, path+"x", Access{}, none); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Error(err)
	}
}
