package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
)

// onDisk returns a Spec of a unix socket in a private directory of the test, and its path.
func onDisk(t testing.TB) (Spec, string) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "s"))(t) // shorter than t.TempDir, whose path may be too long for a socket
	t.Cleanup(func() {
		left, _ := filepath.Glob(dir + "/.*.lock")
		if len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		_ = os.RemoveAll(dir)
	})
	path := filepath.Join(dir, "web.sock")
	return Spec{Address: addr("unix:" + path)}, path
}

// occupants are what may be at a path.
var occupants = map[string]func(t testing.TB, path string){
	"nothing":        func(testing.TB, string) {},
	"a server":       func(t testing.TB, path string) { listens(t, path) },
	"a busy server":  func(t testing.TB, path string) { listens(t, path); fill(t, path) },
	"datagrams":      bindDatagrams,
	"a stale socket": stale,
	"a file":         func(t testing.TB, path string) { must.Do(t, os.WriteFile(path, []byte("precious"), 0o600)) },
	"a directory":    func(t testing.TB, path string) { must.Do(t, os.Mkdir(path, 0o700)) },
	"a link":         func(t testing.TB, path string) { must.Do(t, os.Symlink("nowhere", path)) },
	"a pipe":         func(t testing.TB, path string) { must.Do(t, unix.Mkfifo(path, 0o600)) },
}

// stale leaves a socket without a listener at path.
func stale(t testing.TB, path string) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func listens(t testing.TB, path string) {
	t.Helper()
	l := must.Get(net.Listen("unix", path))(t)
	t.Cleanup(func() { _ = l.Close() })
}

func bindDatagrams(t testing.TB, path string) {
	t.Helper()
	l := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = l.Close() })
}

// fill connects to a unix socket until its queue is full.
func fill(t testing.TB, path string) {
	t.Helper()
	for full := false; !full; {
		fd := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0))(t)
		t.Cleanup(func() { _ = unix.Close(fd) })
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if full = errors.Is(err, unix.EAGAIN); !full {
			must.Do(t, err)
		}
	}
}

func statOf(t testing.TB, path string) os.FileInfo {
	t.Helper()
	st := must.Get(os.Lstat(path))(t)
	return st
}

func modeOf(t testing.TB, path string) os.FileMode { t.Helper(); return statOf(t, path).Mode() }

func TestUnixSocketHasTheAccessThatIsConfigured(t *testing.T) {
	spec, path := onDisk(t)
	table, w, fd := opened(t, spec)
	usual := os.FileMode(0o777 &^ umask())
	for _, c := range []struct {
		Access
		mode  os.FileMode
		owner [2]uint32
	}{
		{mode: usual},
		{Access: Access{Mode: 0o600}, mode: 0o600},
		{Access: Access{Mode: 0o222}, mode: 0o222},
		{Access: Access{User: "65534", Group: "12", Mode: 0o660}, mode: 0o660, owner: [2]uint32{65534, 12}},
		{mode: usual},
	} {
		if c.User != "" && os.Geteuid() != 0 {
			continue
		}
		spec.Access = c.Access
		apply(t, table, want(t, spec))
		fresh, at := onDisk(t)
		fresh.Access = c.Access
		opened(t, fresh)
		for _, path := range []string{path, at} {
			var st unix.Stat_t
			must.Do(t, unix.Lstat(path, &st))
			if got := modeOf(t, path).Perm(); got != c.mode || os.Geteuid() == 0 && c.owner != [2]uint32{st.Uid, st.Gid} {
				t.Errorf("%+v: mode %#o, owner %d:%d", c, got, st.Uid, st.Gid)
			}
		}
	}
	if table.FD(w.Key(), 0) != fd {
		t.Error("it is another socket")
	}
}

// TestDirectoryThatDoesNotAllowASocketHasARemedy asks as an ordinary user.
func TestDirectoryThatDoesNotAllowASocketHasARemedy(t *testing.T) {
	for _, c := range []struct {
		mode        os.FileMode // of the directory
		user, below string
		says        []string
	}{
		{0o777, "0", "", []string{"change owner: operation not permitted", "needs root"}},
		{0o555, "", "", []string{"permission denied", "must be able to write in "}},
		{0o777, "", "/below/x", []string{"the directory ", "web.sock/below is missing: create it"}},
	} {
		spec, path := onDisk(t)
		spec.User, spec.Address = c.user, addr(spec.Address.String()+c.below)
		must.Do(t, os.Chmod(filepath.Dir(path), c.mode))
		unit.AsOrdinaryUser(t, func() {
			refuses(t, NewTable(), want(t, spec), append(c.says, "cannot listen on unix "+path)...)
		})
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is left")
		}
	}
}

// TestSocketOfAnotherProcessIsNotStolen: not at the start, and not where it was put in place of ours.
func TestSocketOfAnotherProcessIsNotStolen(t *testing.T) {
	for what, says := range map[string]string{"a server": "(process ", "a busy server": "another process uses it",
		"datagrams": "another process uses it"} {
		spec, path := onDisk(t)
		table, w, fd := opened(t, spec)
		inode := inodeOf(t, fd)
		spoil(t, path, false)
		occupants[what](t, path)
		there := statOf(t, path)
		if damage, err := table.Repair(w.Key()); damage == "" || !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: found %q, %v", what, damage, err)
		}
		for _, table := range []*Table{table, newTable(t)} {
			if err := refuses(t, table, w, "address already in use", says); !errors.Is(err, unix.EADDRINUSE) {
				t.Error("the kernel's error is not wrapped")
			}
		}
		if inodeOf(t, table.FD(w.Key(), 0)) != inode {
			t.Errorf("%s: the table is not as it was", what)
		}
		if err := table.Close(); err != nil || !os.SameFile(there, statOf(t, path)) {
			t.Errorf("%s: it is gone: %v", what, err)
		}
	}
}

// TestWhatIsAtThePathInsteadStaysUntilItIsGone: a socket that may be about to listen, and what is none.
func TestWhatIsAtThePathInsteadStaysUntilItIsGone(t *testing.T) {
	for _, what := range []string{"a stale socket", "a file"} {
		spec, path := onDisk(t)
		table, w, _ := opened(t, spec)
		spoil(t, path, false)
		occupants[what](t, path)
		there := statOf(t, path)
		if damage, err := table.Repair(w.Key()); damage == "" || !errors.Is(err, unix.EADDRINUSE) ||
			!os.SameFile(there, statOf(t, path)) {
			t.Errorf("%s: found %q, %v", what, damage, err)
		}
		_ = os.Remove(path)
		if damage, err := table.Repair(w.Key()); damage == "" || err != nil {
			t.Errorf("%s is gone: found %q, %v", what, damage, err)
		}
		dial(t, "unix", path)
		_ = os.Remove(path)
		stale(t, path)
		if _ = table.Close(); modeOf(t, path)&os.ModeSocket == 0 {
			t.Error("the socket of another was removed at the end")
		}
	}
}

// TestSocketWithARemovedPathIsFoundAgain by Update, or by the next supervisord: the same one while a link is left.
func TestSocketWithARemovedPathIsFoundAgain(t *testing.T) {
	for _, c := range []struct {
		restart, alsoLink bool
		instead           string
	}{
		{false, false, "nothing"}, {false, false, "a stale socket"}, {false, true, "nothing"},
		{true, false, "nothing"}, {true, false, "a stale socket"}, {true, true, "nothing"},
	} {
		spec, path := onDisk(t)
		table, w, fd := opened(t, spec)
		before := inodeOf(t, fd)
		var offers []inherit.Socket
		if c.restart {
			offers = handedOver(t, table)
		}
		spoil(t, path, c.alsoLink)
		occupants[c.instead](t, path)
		if c.restart {
			die(table)
			table = newTable(t)
			table.Offer(offers)
			apply(t, table, w)
		}
		apply(t, table, w)
		if left := unclaimed(table); (left > 0) != (c.restart && c.alsoLink) {
			t.Errorf("%+v: %d sockets are left over", c, left)
		}
		if fd = table.FD(w.Key(), 0); (inodeOf(t, fd) != before) != c.alsoLink {
			t.Errorf("%+v: it is still the old socket, or another one", c)
		}
		dial(t, "unix", path)
		accepted(t, fd)
		_ = table.Close()
		if left, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(left) > 0 {
			t.Errorf("%+v: %v is left", c, left)
		}
	}
}

func TestSocketThatCannotBeAskedIsNotStolen(t *testing.T) {
	spec, path := onDisk(t)
	stale(t, path)
	must.Do(t, errors.Join(os.Chmod(path, 0), os.Chmod(filepath.Dir(path), 0o777)))
	unit.AsOrdinaryUser(t, func() {
		if os.Geteuid() == 0 {
			t.Skip("cannot become an ordinary user")
		}
		refuses(t, NewTable(), want(t, spec), "cannot tell whether another process uses it: permission denied")
	})
	if modeOf(t, path)&os.ModeSocket == 0 {
		t.Error("the socket was removed")
	}
}

func TestFileThatIsNotASocketIsNeverDeleted(t *testing.T) {
	for _, what := range []string{"a file", "a directory", "a link", "a pipe"} {
		spec, path := onDisk(t)
		occupants[what](t, path)
		before := statOf(t, path)
		refuses(t, newTable(t), want(t, spec), "is not a socket: move it away")
		if !os.SameFile(before, statOf(t, path)) {
			t.Errorf("%s is gone", what)
		}
	}
}

func TestLockThatAnotherProcessHoldsIsRespected(t *testing.T) {
	spec, path := onDisk(t)
	unlock := must.Get(unixpath.Lock(path))(t)
	refuses(t, newTable(t), want(t, spec), "address already in use", "about to listen there")
	unlock() // and one that a dead process has left protects nothing
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".web.sock.lock"), nil, 0o600))
	opened(t, spec)
}

// spoil removes a path, and with alsoLink the hidden link beside it.
func spoil(t testing.TB, path string, alsoLink bool) {
	t.Helper()
	names := []string{path}
	if links, _ := filepath.Glob(filepath.Dir(path) + "/.web.sock.????????????????"); alsoLink {
		names = append(names, links...)
	}
	for _, name := range names {
		must.Do(t, os.Remove(name))
	}
}

func TestAccessIsPutBack(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o660
	table, w, _ := opened(t, spec)
	for _, c := range []struct {
		change func() error
		says   string
	}{
		{func() error { return os.Chmod(path, 0o600) }, "its mode was changed from 0660 to 0600"},
		{func() error { return os.Chown(path, 1, 1) }, "its owner was changed"},
		{func() error { return unix.Setxattr(path, "system.posix_acl_access", someACL, 0) }, "its ACL was changed"},
	} {
		if err := c.change(); err != nil {
			t.Logf("cannot be tried here: %v", err) // not root, or no ACLs
			continue
		}
		if damage, err := table.Repair(w.Key()); err != nil || !strings.Contains(damage, c.says) {
			t.Errorf("found %q, %v, want %q", damage, err, c.says)
		}
		var st unix.Stat_t
		_ = unix.Stat(path, &st)
		if n, _ := unix.Getxattr(path, "system.posix_acl_access", nil); st.Mode&0o777 != 0o660 ||
			int(st.Uid) != os.Geteuid() || n > 0 {
			t.Errorf("%s: it has mode %o, owner %d, and an ACL of %d bytes", c.says, st.Mode, st.Uid, n)
		}
		if damage, err := table.Repair(w.Key()); damage != "" || err != nil {
			t.Errorf("again: found %q, %v", damage, err)
		}
	}
}

// someACL is user::rw-, user:1:rw-, group::rw-, mask::rw-, other::---, acl(5).
var someACL = []byte("\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x06\x00\x01\x00\x00\x00" +
	"\x04\x00\x06\x00\xff\xff\xff\xff" + "\x10\x00\x06\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff")

func TestModeOfAReplacedSocketIsNotChanged(t *testing.T) {
	spec, path := onDisk(t)
	table, w, _ := opened(t, spec)
	_ = os.Remove(path)
	must.Do(t, os.Symlink("/etc/hostname", path))
	before := statOf(t, "/etc/hostname").Mode()
	w.Mode = 0o612
	if err := setAccess(table.listeners[w.Key()].members[0], w.Resolved); err != nil {
		t.Error(err)
	}
	if now := statOf(t, "/etc/hostname").Mode(); now != before {
		t.Errorf("the mode of another file is %v", now)
	}
}

func TestAbstractSocketLeavesNothing(t *testing.T) {
	spec := Spec{Address: addr("unix:@supervisord-test-" + filepath.Base(t.TempDir()))}
	table, w, fd := opened(t, spec)
	dial(t, "unix", spec.Address.Path)
	accepted(t, fd)
	refuses(t, newTable(t), w, "address already in use", "ss -xlp")
	_ = table.Close()
	apply(t, newTable(t), w)
}
