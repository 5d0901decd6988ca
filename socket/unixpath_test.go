package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
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
	"a server":       func(t testing.TB, path string) { must.Do(t, unix.Listen(bindsTo(t, path, unix.SOCK_STREAM), 5)) },
	"a busy server":  busy,
	"datagrams":      func(t testing.TB, path string) { bindsTo(t, path, unix.SOCK_DGRAM) },
	"a stale socket": stale,
	"a file":         func(t testing.TB, path string) { must.Do(t, os.WriteFile(path, []byte("precious"), 0o600)) },
	"a directory":    func(t testing.TB, path string) { must.Do(t, os.Mkdir(path, 0o700)) },
	"a link":         func(t testing.TB, path string) { must.Do(t, os.Symlink("nowhere", path)) },
	"a pipe":         func(t testing.TB, path string) { must.Do(t, unix.Mkfifo(path, 0o600)) },
}

// bindsTo binds a socket to a path, until the end of the test.
func bindsTo(t testing.TB, path string, kind int) (fd int) {
	t.Helper()
	fd = must.Get(unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must.Do(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	return fd
}

// busy leaves a server at path whose queue is full.
func busy(t testing.TB, path string) {
	t.Helper()
	must.Do(t, unix.Listen(bindsTo(t, path, unix.SOCK_STREAM), 0))
	dial(t, "unix", path)
}

// stale leaves a socket without a listener at path.
func stale(t testing.TB, path string) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func statOf(t testing.TB, path string) os.FileInfo {
	t.Helper()
	return must.Get(os.Lstat(path))(t)
}

func modeOf(t testing.TB, path string) os.FileMode { t.Helper(); return statOf(t, path).Mode() }

func TestAccessOfAUnixSocketChangesInPlace(t *testing.T) {
	spec, path := onDisk(t)
	table, w, fd := opened(t, spec)
	usual := modeOf(t, path).Perm() // by the umask
	for _, c := range []struct {
		Access
		mode os.FileMode
		uid  uint32
	}{
		{mode: usual}, {Access: Access{Mode: 0o222}, mode: 0o222},
		{Access: Access{User: "65534", Group: "12", Mode: 0o660}, mode: 0o660, uid: 65534}, {mode: usual},
	} {
		if c.User != "" && os.Geteuid() != 0 {
			continue
		}
		w.Access = c.Access
		apply(t, table, want(t, w.Spec))
		st := statOf(t, path).Sys().(*syscall.Stat_t)
		if st.Mode&0o777 != uint32(c.mode) || os.Geteuid() == 0 && c.uid != st.Uid || table.FD(w.Key(), 0) != fd {
			t.Errorf("%+v: mode %#o, owner %d:%d", c, st.Mode, st.Uid, st.Gid)
		}
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

// atPath plays the steps with a unix socket.
func atPath(t *testing.T, steps string) {
	t.Helper()
	spec, _ := onDisk(t)
	begin(t, spec).play(steps)
}

// TestSocketOfAnotherProcessIsNotStolen: not at the start, and not where it was put in place of ours.
func TestSocketOfAnotherProcessIsNotStolen(t *testing.T) {
	atPath(t, "rm; put a server; taken (process; end left")
	atPath(t, "rm; put a busy server; taken another process uses it; end left")
	atPath(t, "rm; put datagrams; taken another process uses it; end left")
}

// TestWhatIsAtThePathInsteadStaysUntilItIsGone: a socket that may be about to listen, and what is none.
func TestWhatIsAtThePathInsteadStaysUntilItIsGone(t *testing.T) {
	for _, what := range []string{"a stale socket", "a file"} {
		spec, _ := onDisk(t)
		s := begin(t, spec)
		s.play("hold a; rm; put " + what)
		if err := s.repair(); !errors.Is(err, unix.EADDRINUSE) || !os.SameFile(s.there, statOf(t, s.path())) {
			t.Errorf("%s is gone, or %v", what, err)
		}
		must.Do(t, os.Remove(s.path()))
		s.play("repair; come 1 a; rm; put a stale socket; end left")
	}
}

// TestSocketWithARemovedPathIsFoundAgain by Update, or by the next supervisord: the same one while a link is left.
func TestSocketWithARemovedPathIsFoundAgain(t *testing.T) {
	for _, what := range []string{"nothing", "a stale socket"} {
		atPath(t, "hold a; rm; put "+what+"; update; hold b; same b a; come 1 b; end")
		atPath(t, "hold a; rm; put "+what+"; restart; update; hold b; same b a; come 1 b; end")
	}
	atPath(t, "hold a; rm all; update; hold b; other b a; come 1 b; end")
	atPath(t, "hold a; rm all; restart 1; update; hold b; other b a; come 1 b; end")
}

func TestSocketWithARemovedPathIsReboundForTheNextGeneration(t *testing.T) {
	atPath(t, `hold a; rm all; stranded not; update; stranded; miss; hold b; stranded not; other b a; come 1 b
		release b; miss; hold c; release a; come 1 c; open 1; end`)
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
