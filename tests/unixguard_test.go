package tests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// onUnix is web on the unix socket "s".
var onUnix = lab.WebAt("unix:{dir}/s")

// stale leaves a socket without a listener.
func stale(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	lab.Must(t, err)
	defer unix.Close(fd)
	lab.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
}

// unpoliteToItsPath is a server that checks the name of its socket, as puma and libsystemd do, and does something to
// its path when it is told to stop, or, as "early-…", before it is ready.
const unpoliteToItsPath = `
import os, signal, socket, sys
s = socket.socket(fileno=3)
path, what = sys.argv[1], sys.argv[2]
if s.getsockname() != path:
    sys.exit('the socket is at ' + s.getsockname())
def act(what):
    if what == 'unlink': os.unlink(path)
    if what == 'rename': os.rename(path, path + '.old'); os.unlink(path + '.old')
    if what == 'chmod': os.chmod(path, 0o600)
    if what == 'link':
        folder, name = os.path.split(path)
        [os.unlink(os.path.join(folder, n)) for n in os.listdir(folder) if n.startswith('.' + name + '.')]
def term(*_):
    act(what)
    os._exit(0)
signal.signal(signal.SIGTERM, term)
act(what.removeprefix('early-'))  if what.startswith('early-') else None
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.connect(os.environ['NOTIFY_SOCKET'].replace('@', '\0'))
n.send(b'READY=1')
while True:
    c, _ = s.accept()
    c.recv(1000)
    who = b'generation=%s pid=%d ' % (os.environ['SUPERVISORD_GENERATION'].encode(), os.getpid())
    c.sendall(b'HTTP/1.0 200 OK\r\n\r\n' + who)
    c.close()
`

var pathRestored, pathTaken = lab.Says("the path of listener is put back"), lab.Says(
	"clients do not find the socket of listener")

// impolite starts a supervisord with such a server at the path "s".
func impolite(t *testing.T, what, more string) *lab.Supervisord {
	t.Helper()
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := lab.Prepare(t)
	m.File("server.py", unpoliteToItsPath)
	m.Start(strings.NewReplacer("{worker}", `"`+python+`", "{dir}/server.py", "{dir}/s", "`+what+`"`, `unix:{dir}/s"`,
		`unix:{dir}/s"`+"\n"+more).Replace(onUnix))
	m.Serves(1)
	return m
}

// fileAt waits until a path leads to something again, and returns what.
func fileAt(m *lab.Supervisord, path string) (st os.FileInfo) {
	m.Until(path+" is there", func() (is bool) {
		var err error
		st, err = os.Lstat(path)
		return err == nil
	})
	return st
}

func TestPathThatAWorkerRemovesIsPutBack(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *lab.Supervisord{
		"Go with SetUnlinkOnClose": func(t *testing.T) *lab.Supervisord {
			m := lab.Start(t, strings.Replace(onUnix, "{worker}", `{worker}, "unlink"`, 1))
			m.Serves(1)
			return m
		},
		"unlink at the end":   func(t *testing.T) *lab.Supervisord { return impolite(t, "unlink", "") },
		"rename at the end":   func(t *testing.T) *lab.Supervisord { return impolite(t, "rename", "") },
		"unlink at the start": func(t *testing.T) *lab.Supervisord { return impolite(t, "early-unlink", "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			before := fileAt(m, m.Path("s"))
			for n := 2; n <= 3; n++ {
				restored := m.Count(pathRestored)
				m.CtlOK("reload", "--drained")
				m.AwaitN(restored+1, pathRestored)
				if body := lab.Ask(t, "unix:"+m.Path("s"), "/"); !strings.Contains(body, fmt.Sprintf("generation=%d ", n)) {
					t.Errorf("after reload %d: %s", n, body)
				}
			}
			if !os.SameFile(before, fileAt(m, m.Path("s"))) {
				t.Error("another socket is there")
			}
			if out := m.CtlOK("status"); !strings.Contains(out, "its path was put back") ||
				!strings.Contains(out, "is suspected") {
				t.Errorf("status says %s", out)
			}
		})
	}
}

func TestModeThatIsChangedIsPutBack(t *testing.T) {
	t.Parallel()
	m := impolite(t, "early-chmod", `mode = "0666"`)
	path := m.Path("s")
	m.Await(pathRestored, lab.Contains("its mode was changed from 0666 to 0600"))
	change := func(what, says string, err error) {
		t.Helper()
		if err != nil {
			t.Logf("%s cannot be changed here: %v", what, err)
			return
		}
		m.Await(pathRestored, lab.Contains(says))
		m.Until(what+" is as before", func() bool {
			var st unix.Stat_t
			n, _ := unix.Getxattr(path, "system.posix_acl_access", nil)
			return unix.Stat(path, &st) == nil && st.Mode&0o777 == 0o666 && int(st.Uid) == os.Geteuid() && n <= 0
		})
	}
	change("the mode", "its mode was changed from 0666 to 0640", os.Chmod(path, 0o640))
	change("the owner", "its owner was changed", os.Chown(path, 65534, 65534))
	acl := []byte("\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x06\x00\x01\x00\x00\x00" +
		// user:1:rw-, acl(5)
		"\x04\x00\x06\x00\xff\xff\xff\xff" + "\x10\x00\x06\x00\xff\xff\xff\xff" + "\x20\x00\x06\x00\xff\xff\xff\xff")
	change("the ACL", "its ACL was changed", unix.Setxattr(path, "system.posix_acl_access", acl, 0))
}

func TestPathThatAStrangerRemovesIsPutBack(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(t *testing.T, m *lab.Supervisord, path string){
		"removed": func(t *testing.T, _ *lab.Supervisord, path string) { lab.Must(t, os.Remove(path)) },
		"renamed": func(t *testing.T, m *lab.Supervisord, path string) { lab.Must(t, os.Rename(path, m.Path("old"))) },
		"replaced by an old socket": func(t *testing.T, m *lab.Supervisord, path string) {
			stale(t, m.Path("old"))
			lab.Must(t, os.Rename(m.Path("old"), path))
		},
		"a folder is renamed and comes back": func(t *testing.T, m *lab.Supervisord, path string) {
			lab.Must(t, os.Rename(m.Path("d"), m.Path("e")))
			m.Await(pathTaken)
			lab.Must(t, os.Remove(m.Path("e/s")))
			lab.Must(t, os.Rename(m.Path("e"), m.Path("d")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := lab.Prepare(t)
			lab.Must(t, os.Mkdir(m.Path("d"), 0o755))
			m.Start(strings.Replace(onUnix, "{dir}/s", "{dir}/d/s", 1))
			m.Serves(1)
			path := m.Path("d/s")
			before := fileAt(m, path)
			spoil(t, m, path)
			m.Await(pathRestored)
			if st := fileAt(m, path); !os.SameFile(st, before) {
				t.Error("another socket is there")
			}
			lab.Ask(t, "unix:"+path, "/")
			m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
			os.Remove(m.Path("old"))
		})
	}
}

// TestFolderThatIsMadeAgainGetsAnotherSocket: systemd's RuntimeDirectory= and systemd-tmpfiles remove folders with all
// that is in them.
func TestFolderThatIsMadeAgainGetsAnotherSocket(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("d"), 0o755))
	m.Start(strings.Replace(onUnix, "{dir}/s", "{dir}/d/s", 1))
	m.Serves(1)
	lab.Must(t, os.Rename(m.Path("d"), m.Path("e"))) // RemoveAll would race with what is put back
	lab.Must(t, os.RemoveAll(m.Path("e")))
	m.Await(pathTaken, lab.Contains("is missing: create it"))
	lab.Must(t, os.Mkdir(m.Path("d"), 0o755))
	m.Serves(2)
	m.Gone(1)
	lab.Ask(t, "unix:"+m.Path("d/s"), "/")
	for os.RemoveAll(m.Path("d")) != nil { // what is put back meanwhile keeps the folder
	}
	lab.Must(t, os.Mkdir(m.Path("d"), 0o755))
	m.Until("clients are answered", func() bool {
		_, err := lab.Get("unix:"+m.Path("d/s"), "/")
		return err == nil
	})
}

func TestPathWithARemovedHiddenLinkIsStillPutBack(t *testing.T) {
	t.Parallel()
	m := impolite(t, "link", "")
	before := fileAt(m, m.Path("s"))
	m.CtlOK("reload", "--drained")
	m.Until("the hidden link is there again", func() bool {
		names, _ := filepath.Glob(m.Path(".s.*"))
		return len(names) == 1
	})
	lab.Must(t, os.Remove(m.Path("s")))
	m.Await(pathRestored)
	if !os.SameFile(before, fileAt(m, m.Path("s"))) {
		t.Error("another socket is there")
	}
}

func TestPathThatALiveServerHasTakenIsLeftUntilItEnds(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	lab.Must(t, os.Rename(m.Path("s"), m.Path("old")))
	ln, err := net.Listen("unix", m.Path("theirs"))
	lab.Must(t, err)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	m.Await(pathRestored)
	lab.Must(t, os.Rename(m.Path("theirs"), m.Path("s")))
	m.Await(pathTaken, lab.Contains(fmt.Sprintf("(process %d) answers there", os.Getpid())))
	if out := m.CtlOK("status"); !strings.Contains(out, "clients do not find the socket") {
		t.Errorf("status says %s", out)
	}
	c, err := net.Dial("unix", m.Path("s"))
	lab.Must(t, err)
	c.Close()
	m.CtlFails(78, []string{"answers there"}, "reload")
	ln.Close() // its path stays
	m.AwaitN(2, pathRestored)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	if out := m.CtlOK("status"); strings.Contains(out, "clients do not find the socket") {
		t.Errorf("status says %s", out)
	}
	os.Remove(m.Path("old"))
}

// TestWorkerThatBindsThePathItselfIsToldSo: clients reach that worker, so nothing is taken from it.
func TestWorkerThatBindsThePathItselfIsToldSo(t *testing.T) {
	t.Parallel()
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := lab.Prepare(t)
	m.File("server.py", `
import os, signal, socket, sys
def term(*_):
    os.unlink('{dir}/s')
    os._exit(0)
signal.signal(signal.SIGTERM, term)
os.unlink('{dir}/s')
s = socket.socket(socket.AF_UNIX)
s.bind('{dir}/t')
s.listen()
os.rename('{dir}/t', '{dir}/s')
while True:
    c, _ = s.accept()
    try:
        c.recv(1000)
        c.sendall(b'HTTP/1.0 200 OK\r\n\r\nown')
    except OSError: pass # supervisord looks who answers
    c.close()
`)
	m.Start(strings.Replace(strings.Replace(onUnix, "{worker}", `"`+python+`", "{dir}/server.py"`, 1), `method = "notify"`,
		`method = "delay"`, 1))
	m.Await(pathTaken, lab.Contains("of this program listens there with a socket of its own"))
	if body := lab.Ask(t, "unix:"+m.Path("s"), "/"); body != "own" {
		t.Errorf("a client gets %s", body)
	}
}

func TestPathThatWasRemovedWhileNoSupervisordLivedIsPutBack(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	before := fileAt(m, m.Path("s"))
	m.Die()
	lab.Must(t, os.Remove(m.Path("s")))
	m.Launch("-c", m.Path("config.toml"))
	m.Serves(1)
	if !os.SameFile(before, fileAt(m, m.Path("s"))) {
		t.Error("another socket is there")
	}
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	m.Upgrade(lab.Upgraded)
	restored := m.Count(pathRestored)
	lab.Must(t, os.Remove(m.Path("s")))
	m.AwaitN(restored+1, pathRestored)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

func TestPathThatIsRemovedWithoutEndIsPutBackSlowly(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	const often = 100
	for m.Count(pathRestored) < often {
		n := m.Count(pathRestored)
		if err := os.Remove(m.Path("s")); err == nil {
			m.AwaitN(n+1, pathRestored)
		}
	}
	began := time.Now()
	for m.Count(pathRestored) < often+2 {
		n := m.Count(pathRestored)
		if err := os.Remove(m.Path("s")); err == nil {
			m.AwaitN(n+1, pathRestored)
		}
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("the path was put back twice within %s", took)
	}
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

// TestFilesBesideAUnixSocketWakeNobody: what happens in the folder of a socket is not supervisord's business.
func TestFilesBesideAUnixSocketWakeNobody(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	m.Settle()
	before := lab.Switches(t, m.PID())
	for range 1000 {
		lab.Must(t, os.WriteFile(m.Path("upload"), nil, 0o600))
		lab.Must(t, os.Remove(m.Path("upload")))
	}
	if n := lab.Switches(t, m.PID()) - before; n > 200 {
		t.Errorf("supervisord woke %d times for 1000 files", n)
	}
}
