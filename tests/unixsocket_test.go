package tests

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onUnix is web on a unix socket called s.
var onUnix = strings.Replace(web, "127.0.0.1:0", "unix:{dir}/s", 1)

func TestAUnixSocketServesAndIsRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := start(t, onUnix)
	m.serves(1)
	ask(t, "unix:"+m.path("s"), "/")
	m.finish() // sees that no socket is left
}

func TestAUnixSocketIsKeptOverAReload(t *testing.T) {
	t.Parallel()
	m := start(t, onUnix)
	m.serves(1)
	before, err := os.Stat(m.path("s"))
	must(t, err)
	m.reload()
	m.gone(1)
	now, err := os.Stat(m.path("s"))
	must(t, err)
	if !os.SameFile(before, now) {
		t.Error("it is another one")
	}
	ask(t, "unix:"+m.path("s"), "/")
}

// stale leaves a socket on which nobody listens.
func stale(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
}

func TestAStaleUnixSocketIsReplaced(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	stale(t, m.path("s"))
	m.start(onUnix)
	m.serves(1)
	ask(t, "unix:"+m.path("s"), "/")
}

func TestWhatIsNoSocketIsNeverDeleted(t *testing.T) {
	t.Parallel()
	for what, leave := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("precious"), 0o644) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a symlink":   func(path string) error { return os.Symlink("config.toml", path) },
	} {
		m := prepare(t)
		must(t, leave(m.path("s")))
		before, err := os.Lstat(m.path("s"))
		must(t, err)
		m.write(onUnix)
		if out, code := m.run("-c", m.path("config.toml")); code != 1 || !strings.Contains(out, m.path("s")) {
			t.Errorf("%s: exit code %d: %s", what, code, out)
		}
		now, err := os.Lstat(m.path("s"))
		if err != nil || !os.SameFile(before, now) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTheSocketOfALiveServerIsNeverStolen(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	ln, err := net.Listen("unix", m.path("s"))
	must(t, err)
	m.write(onUnix)
	out, code := m.run("-c", m.path("config.toml"))
	if code != 1 || !strings.Contains(out, m.path("s")) || !strings.Contains(out, "answers") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if c, err := net.Dial("unix", m.path("s")); err != nil {
		t.Errorf("the server has lost its socket: %v", err)
	} else {
		c.Close()
	}
	ln.Close()
}

func TestAUnixSocketOfSomebodyElseIsNotRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := start(t, onUnix)
	m.serves(1)
	must(t, os.Remove(m.path("s")))
	elsewhere := filepath.Join(t.TempDir(), "theirs")
	must(t, os.WriteFile(elsewhere, nil, 0o644))
	must(t, os.Link(elsewhere, m.path("s")))
	m.finish()
	if _, err := os.Stat(m.path("s")); err != nil {
		t.Error(err)
	}
}

func TestAUnixSocketHasTheModeThatIsConfigured(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(onUnix, "/s\"", "/s\"\nmode = \"0612\"", 1))
	m.serves(1)
	stat, err := os.Stat(m.path("s"))
	must(t, err)
	if stat.Mode().Perm() != 0o612 {
		t.Errorf("its mode is %v", stat.Mode())
	}
}

func TestAUnixSocketHasTheModeOfTheUmaskOtherwise(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.via = []string{"sh", "-c", `umask 027 && exec "$@"`, "sh"}
	m.start(onUnix)
	m.serves(1)
	stat, err := os.Stat(m.path("s"))
	must(t, err)
	if stat.Mode().Perm() != 0o750 {
		t.Errorf("its mode is %v", stat.Mode())
	}
}

func TestAUnixSocketHasTheOwnerThatIsConfigured(t *testing.T) {
	t.Parallel()
	asRoot(t, "give a file away")
	m := start(t, strings.Replace(onUnix, "/s\"", "/s\"\nuser = \"65534\"\ngroup = \"65533\"", 1))
	m.serves(1)
	var stat unix.Stat_t
	must(t, unix.Stat(m.path("s"), &stat))
	if stat.Uid != 65534 || stat.Gid != 65533 {
		t.Errorf("its owner is %d:%d", stat.Uid, stat.Gid)
	}
}

func TestAnAbstractSocketServes(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	name := "@" + filepath.Base(m.dir)
	m.start(strings.Replace(web, "127.0.0.1:0", "unix:"+name, 1))
	m.serves(1)
	ask(t, "unix:"+name, "/")
}

func TestAnAbstractSocketInUseIsAnError(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	name := "@" + filepath.Base(m.dir)
	ln, err := net.Listen("unix", name)
	must(t, err)
	defer ln.Close()
	m.write(strings.Replace(web, "127.0.0.1:0", "unix:"+name, 1))
	if out, code := m.run("-c", m.path("config.toml")); code != 1 || !strings.Contains(out, name) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestAFailedTrialLeavesTheSocketInItsPlace(t *testing.T) {
	t.Parallel()
	m := start(t, onUnix)
	m.serves(1)
	m.write(strings.Replace(onUnix, "{worker}", `"{dir}/nothing"`, 1))
	m.reload()
	m.await(says(trialFailed))
	m.gone(2)
	if got := ask(t, "unix:"+m.path("s"), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("there answers %s", got)
	}
}
