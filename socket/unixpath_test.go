package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/unixpath"
)

// onDisk returns a Spec of a unix socket in a private directory of the test, and its path.
func onDisk(t testing.TB) (Spec, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // shorter than t.TempDir, whose path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
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

// stale leaves a socket without a listener at path.
func stale(t testing.TB, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func modeOf(t testing.TB, path string) os.FileMode {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode()
}

func TestUnixSocketHasExactlyItsMode(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o660, 0o666, 0o777, 0o222} {
		spec, path := onDisk(t)
		spec.Mode = mode
		opened(t, spec)
		if got := modeOf(t, path).Perm(); got != mode {
			t.Errorf("mode %#o instead of %#o", got, mode)
		}
	}
}

func TestUnixSocketWithoutModeHasTheUmasks(t *testing.T) {
	spec, path := onDisk(t)
	table, w, _ := opened(t, spec)
	if got := modeOf(t, path).Perm(); got != os.FileMode(0o777&^umask()) {
		t.Errorf("mode %#o", got)
	}
	w.Mode = 0o600
	apply(t, table, w)
	w.Mode = 0
	apply(t, table, w)
	if got := modeOf(t, path).Perm(); got != os.FileMode(0o777&^umask()) {
		t.Errorf("mode %#o after it was set and taken back", got)
	}
}

func TestUnixSocketBelongsToItsOwner(t *testing.T) {
	needRoot(t)
	spec, path := onDisk(t)
	spec.User, spec.Group, spec.Mode = "65534", "12", 0o660
	table, w, _ := opened(t, spec)
	owner := func() [2]uint32 {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		return [2]uint32{st.Uid, st.Gid}
	}
	if owner() != [2]uint32{65534, 12} || modeOf(t, path).Perm() != 0o660 {
		t.Errorf("owner %v, mode %v", owner(), modeOf(t, path))
	}
	spec.User, spec.Group = "", ""
	apply(t, table, want(t, spec))
	if owner() != [2]uint32{0, 0} || table.FD(w.Key(), 0) < 0 {
		t.Errorf("owner %v after it was taken back", owner())
	}
}

func TestOrdinaryUserCannotGiveASocketAway(t *testing.T) {
	spec, path := onDisk(t)
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	spec.User = "0"
	asOrdinaryUser(t, func() {
		refuses(t, NewTable(), want(t, spec), "cannot listen on unix "+path, "change owner: operation not permitted",
			"needs root")
	})
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left")
	}
}

func TestUnwritableDirectoryHasARemedy(t *testing.T) {
	spec, path := onDisk(t)
	if err := os.Chmod(filepath.Dir(path), 0o555); err != nil {
		t.Fatal(err)
	}
	asOrdinaryUser(t, func() {
		refuses(t, NewTable(), want(t, spec), "permission denied", "must be able to write in "+filepath.Dir(path))
	})
}

func TestMissingDirectoryHasARemedy(t *testing.T) {
	spec, path := onDisk(t)
	spec.Address = addr(spec.Address.String() + "/below/x")
	refuses(t, newTable(t), want(t, spec), "the directory "+path+"/below is missing: create it")
}

func TestStaleSocketIsReplaced(t *testing.T) {
	spec, path := onDisk(t)
	stale(t, path)
	_, _, fd := opened(t, spec)
	dial(t, "unix", path)
	accepted(t, fd)
}

func TestLiveSocketIsNotStolen(t *testing.T) {
	spec, path := onDisk(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = refuses(t, newTable(t), want(t, spec), "address already in use", "(process ")
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Error("the kernel's error is not wrapped")
	}
	dial(t, "unix", path)
}

func TestLiveSocketWithAFullQueueIsNotStolen(t *testing.T) {
	spec, path := onDisk(t)
	spec.Backlog = 1
	opened(t, spec)
	for full := false; !full; {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if full = errors.Is(err, unix.EAGAIN); err != nil && !full {
			t.Fatal(err)
		}
	}
	refuses(t, newTable(t), want(t, spec), "another process uses it")
	dialless(t, path)
}

// dialless checks that a socket exists at path, without connecting to it.
func dialless(t testing.TB, path string) {
	t.Helper()
	if modeOf(t, path)&os.ModeSocket == 0 {
		t.Error("the socket was removed")
	}
}

func TestLiveDatagramSocketIsNotStolen(t *testing.T) {
	spec, path := onDisk(t)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	refuses(t, newTable(t), want(t, spec), "another process uses it")
	dialless(t, path)
}

func TestSocketThatCannotBeAskedIsNotStolen(t *testing.T) {
	spec, path := onDisk(t)
	stale(t, path)
	if err := errors.Join(os.Chmod(path, 0), os.Chmod(filepath.Dir(path), 0o777)); err != nil {
		t.Fatal(err)
	}
	asOrdinaryUser(t, func() {
		if os.Geteuid() == 0 {
			t.Skip("cannot become an ordinary user")
		}
		refuses(t, NewTable(), want(t, spec), "cannot tell whether another process uses it: permission denied")
	})
	dialless(t, path)
}

func TestFileThatIsNotASocketIsNeverDeleted(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("nowhere", path) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		spec, path := onDisk(t)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		before := modeOf(t, path)
		refuses(t, newTable(t), want(t, spec), "is not a socket: move it away")
		if modeOf(t, path) != before {
			t.Errorf("the %s is gone", what)
		}
	}
}

func TestOneOfManyStartersWins(t *testing.T) {
	for range 30 {
		spec, path := onDisk(t)
		stale(t, path)
		w := want(t, spec)
		tables := make([]*Table, 8)
		errs := make([]error, len(tables))
		var all sync.WaitGroup
		for i := range tables {
			tables[i] = NewTable()
			all.Go(func() { errs[i] = tables[i].Update([]Want{w}) })
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatal("two have the path")
			case err == nil:
				winner = i
			case !errors.Is(err, unix.EADDRINUSE):
				t.Fatal(err)
			}
		}
		if winner < 0 {
			t.Fatal("the path was not given to any of them")
		}
		for i, table := range tables {
			if i != winner {
				_ = table.Close()
			}
		}
		dial(t, "unix", path)
		accepted(t, tables[winner].FD(w.Key(), 0))
		_ = tables[winner].Close()
	}
}

func TestLockThatAnotherProcessHoldsIsRespected(t *testing.T) {
	spec, path := onDisk(t)
	unlock, err := unixpath.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, newTable(t), want(t, spec), "address already in use", "about to listen there")
	unlock()
	opened(t, spec)
}

func TestLockLeftByADeadProcessIsTakenOver(t *testing.T) {
	spec, path := onDisk(t)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), ".web.sock.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opened(t, spec)
}

func TestUnixSocketIsRemovedAtTheEnd(t *testing.T) {
	spec, path := onDisk(t)
	table, _, _ := opened(t, spec)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is left")
	}
}

func TestSocketOfAnotherIsNotRemovedAtTheEnd(t *testing.T) {
	spec, path := onDisk(t)
	table, _, _ := opened(t, spec)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	stale(t, path)
	_ = table.Close()
	dialless(t, path)
}

// spoil removes a path, and with alsoLink the hidden link beside it.
func spoil(t testing.TB, path string, alsoLink bool) {
	t.Helper()
	names := []string{path}
	if links, _ := filepath.Glob(filepath.Dir(path) + "/.web.sock.????????????????"); alsoLink {
		names = append(names, links...)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemovedPathIsPutBack(t *testing.T) {
	spec, path := onDisk(t)
	for what, c := range map[string]struct {
		put            func()
		alsoLink, same bool
	}{
		"removed":               {func() {}, false, true},
		"replaced":              {func() { stale(t, path) }, false, true},
		"removed with its link": {func() {}, true, false},
	} {
		table, w, fd := opened(t, spec)
		before := inodeOf(t, fd)
		spoil(t, path, c.alsoLink)
		c.put()
		apply(t, table, w)
		fd = table.FD(w.Key(), 0)
		if inodeOf(t, fd) == before != c.same {
			t.Errorf("%s: it is still the old socket, or another one", what)
		}
		dial(t, "unix", path)
		accepted(t, fd)
		_ = table.Close()
		if left, _ := filepath.Glob(filepath.Dir(path) + "/.*"); len(left) > 0 {
			t.Errorf("%s: %v is left", what, left)
		}
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

// TestWhatSomebodyElseHasPutAtThePathStays: only a socket on which nothing answers is replaced, and not at once.
func TestWhatSomebodyElseHasPutAtThePathStays(t *testing.T) {
	spec, path := onDisk(t)
	for what, put := range map[string]func(){
		"a socket on which somebody answers": func() {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		},
		"a socket that is about to listen": func() { stale(t, path) },
		"a file":                           func() { _ = os.WriteFile(path, []byte("x"), 0o600) },
	} {
		table, w, _ := opened(t, spec)
		spoil(t, path, false)
		put()
		there := statOf(t, path)
		if damage, err := table.Repair(w.Key()); damage == "" || !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: found %q, %v", what, damage, err)
		}
		if !os.SameFile(there, statOf(t, path)) {
			t.Errorf("%s was replaced", what)
		}
		_ = os.Remove(path)
		if damage, err := table.Repair(w.Key()); damage == "" || err != nil {
			t.Errorf("%s is gone: found %q, %v", what, damage, err)
		}
		dial(t, "unix", path)
		_ = table.Close()
	}
}

func statOf(t testing.TB, path string) os.FileInfo {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestPathTakenByALiveServerFailsTheUpdate(t *testing.T) {
	spec, path := onDisk(t)
	table, w, fd := opened(t, spec)
	before := inodeOf(t, fd)
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	refuses(t, table, w, "(process ")
	if inodeOf(t, table.FD(w.Key(), 0)) != before {
		t.Error("the table is not as it was")
	}
}

func TestModeOfAReplacedSocketIsNotChanged(t *testing.T) {
	spec, path := onDisk(t)
	table, w, _ := opened(t, spec)
	_ = os.Remove(path)
	if err := os.Symlink("/etc/hostname", path); err != nil {
		t.Fatal(err)
	}
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
