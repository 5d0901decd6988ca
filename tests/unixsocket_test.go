package tests

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// onUnix is web on the unix socket "s".
var onUnix = strings.Replace(lab.Web, "127.0.0.1:0", "unix:{dir}/s", 1)

func TestUnixSocketServesAndIsRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	m.Finish() // checks that no socket is left
}

func TestUnixSocketIsKeptOverAReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	before, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	m.Reload()
	m.Gone(1)
	now, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	if !os.SameFile(before, now) {
		t.Error("the socket was replaced")
	}
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

// stale leaves a socket without a listener.
func stale(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	lab.Must(t, err)
	defer unix.Close(fd)
	lab.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
}

func TestStaleUnixSocketIsReplaced(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	stale(t, m.Path("s"))
	m.Start(onUnix)
	m.Serves(1)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

func TestFileThatIsNotASocketIsNeverDeleted(t *testing.T) {
	t.Parallel()
	for what, leave := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("precious"), 0o644) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a symlink":   func(path string) error { return os.Symlink("config.toml", path) },
	} {
		m := lab.Prepare(t)
		lab.Must(t, leave(m.Path("s")))
		before, err := os.Lstat(m.Path("s"))
		lab.Must(t, err)
		m.Write(onUnix)
		if out, code := m.Run("-c", m.Path("config.toml")); code != 1 || !strings.Contains(out, m.Path("s")) {
			t.Errorf("%s: exit code %d: %s", what, code, out)
		}
		now, err := os.Lstat(m.Path("s"))
		if err != nil || !os.SameFile(before, now) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSocketOfALiveServerIsNeverStolen(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	ln, err := net.Listen("unix", m.Path("s"))
	lab.Must(t, err)
	m.Write(onUnix)
	out, code := m.Run("-c", m.Path("config.toml"))
	if code != 1 || !strings.Contains(out, m.Path("s")) || !strings.Contains(out, "answers") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if c, err := net.Dial("unix", m.Path("s")); err != nil {
		t.Errorf("the server has lost its socket: %v", err)
	} else {
		c.Close()
	}
	ln.Close()
}

func TestForeignUnixSocketIsNotRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	elsewhere := filepath.Join(t.TempDir(), "theirs")
	lab.Must(t, os.WriteFile(elsewhere, nil, 0o644))
	lab.Must(t, os.Rename(elsewhere, m.Path("s")))
	m.Finish()
	if _, err := os.Stat(m.Path("s")); err != nil {
		t.Error(err)
	}
}

func TestUnixSocketHasTheConfiguredMode(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(onUnix, "/s\"", "/s\"\nmode = \"0612\"", 1))
	m.Serves(1)
	stat, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	if stat.Mode().Perm() != 0o612 {
		t.Errorf("its mode is %v", stat.Mode())
	}
}

func TestUnixSocketHasTheModeOfTheUmaskByDefault(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Via = []string{"sh", "-c", `umask 027 && exec "$@"`, "sh"}
	m.Start(onUnix)
	m.Serves(1)
	stat, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	if stat.Mode().Perm() != 0o750 {
		t.Errorf("its mode is %v", stat.Mode())
	}
}

func TestUnixSocketHasTheConfiguredOwner(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "give a file away")
	m := lab.Start(t, strings.Replace(onUnix, "/s\"", "/s\"\nuser = \"65534\"\ngroup = \"65533\"", 1))
	m.Serves(1)
	var stat unix.Stat_t
	lab.Must(t, unix.Stat(m.Path("s"), &stat))
	if stat.Uid != 65534 || stat.Gid != 65533 {
		t.Errorf("its owner is %d:%d", stat.Uid, stat.Gid)
	}
}

func TestAbstractSocketServes(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	name := "@" + filepath.Base(m.Dir)
	m.Start(strings.Replace(lab.Web, "127.0.0.1:0", "unix:"+name, 1))
	m.Serves(1)
	lab.Ask(t, "unix:"+name, "/")
}

func TestAbstractSocketInUseIsAnError(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	name := "@" + filepath.Base(m.Dir)
	ln, err := net.Listen("unix", name)
	lab.Must(t, err)
	defer ln.Close()
	m.Write(strings.Replace(lab.Web, "127.0.0.1:0", "unix:"+name, 1))
	if out, code := m.Run("-c", m.Path("config.toml")); code != 1 || !strings.Contains(out, name) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestFailedTrialLeavesTheSocketInItsPlace(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	m.Write(strings.Replace(onUnix, "{worker}", `"{dir}/nothing"`, 1))
	m.Reload()
	m.Await(lab.Says(lab.TrialFailed))
	m.Gone(2)
	if got := lab.Ask(t, "unix:"+m.Path("s"), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("the answer is %s", got)
	}
}

func TestUnixPathRefusesWhileItsProgramIsDown(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, (strings.Replace(onUnix, "[program.web.ready]", "when_down = \"refuse\"\n[program.web.ready]", 1)))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	m.CtlOK("stop", "web")
	if _, err := lab.Get("unix:"+m.Path("s"), "/"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while it is down: %v", err)
	}
	m.CtlOK("start", "web")
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	m.Reload()
	m.Serves(4)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

func TestSteeringOfAUnixSocketIsRefused(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"unix:{dir}/s", "unix:@s"} {
		m := lab.Prepare(t)
		m.Write(strings.Replace(lab.Web, "127.0.0.1:0\"", address+"\"\nhandover = \"steer\"", 1))
		const want = `handover: "steer" is impossible: the kernel cannot steer the connections of a unix socket: remove ` +
			`handover, or listen on a loopback port`
		if out, code := m.Run("check", "-c", m.Path("config.toml")); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s", address, code, out)
		}
	}
}
