package tests

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// helloWith is hello with two workers and these listener keys, at a fixed address.
func helloWith(address string, keys ...string) string {
	return strings.Replace(lab.Hello, "address = \"127.0.0.1:0\"", "address = \""+address+"\"\n"+strings.Join(keys, "\n"),
		1)
}

// socketsAt returns the sockets that supervisord holds at an address.
func socketsAt(m *lab.Supervisord, address string) (found []string) {
	m.T.Helper()
	listening := lab.Listening(m.T)
	for _, to := range lab.Descriptors(m.T, m.PID()) {
		if listening[to] == address && !slices.Contains(found, to) {
			found = append(found, to)
		}
	}
	slices.Sort(found)
	return found
}

// TestUpgradeBetweenTwoSockets upgrades while the old and the new generation have different sockets of one address.
func TestUpgradeBetweenTwoSockets(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, helloWith("127.0.0.1:0"))
	m.Serves(1)
	address, worker := m.Address(), m.WorkerPID(1)
	lab.Must(t, syscall.Kill(worker, syscall.SIGSTOP)) // the old worker keeps draining
	m.Write(helloWith("127.0.0.1:0", "nonblock = true"))
	m.CtlOK("reload")
	m.Await(lab.Says(lab.WorkerTold), lab.Gen(1))
	before := socketsAt(m, address)
	load := lab.Press(t, address, 6, 2*time.Millisecond)
	m.Upgrade(lab.Upgraded)
	m.Signal(syscall.SIGHUP)
	m.Serves(3)
	m.Gone(2)
	lab.Must(t, syscall.Kill(worker, syscall.SIGCONT))
	m.Gone(1)
	m.Reload()
	m.Gone(3)
	load.Lossless(t)
	// three generations lived at a time; their sockets stay, so that none gets another number in the kernel's group
	now := socketsAt(m, address)
	if len(before) != 2 || len(now) != 3 || !slices.Contains(now, before[0]) || !slices.Contains(now, before[1]) {
		t.Errorf("the sockets are %v and were %v", now, before)
	}
}

// join listens at an address with SO_REUSEPORT, as another process of supervisord's user may, and resets every
// connection.
func join(t *testing.T, address string) net.Listener {
	t.Helper()
	c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		control := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(control, err)
	}}
	c.SetMultipathTCP(false)
	ln, err := c.Listen(t.Context(), "tcp", address)
	lab.Must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	return ln
}

func TestProcessThatJoinsThePortGetsNothingFromTheNextDeployOn(t *testing.T) {
	const says = "another process listens at the same address with SO_REUSEPORT: it gets connections until new ones " +
		"are steered again; end it"
	for strangers := 1; strangers <= 2; strangers++ {
		t.Run(strconv.Itoa(strangers), func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.Web)
			m.Serves(1)
			var joined []net.Listener
			for range strangers {
				joined = append(joined, join(t, m.Address()))
			}
			m.CtlOK("reload")
			reaches(t, m, 2)
			m.AwaitN(strangers, lab.Says(says))
			m.CtlOK("reload")
			reaches(t, m, 3)
			for _, ln := range joined {
				ln.Close()
			}
			m.CtlOK("reload")
			reaches(t, m, 4)
		})
	}
}

func TestProcessAtAMoreExactAddressIsNamed(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.WebAt(address))
			m.Serves(1)
			_, port, err := net.SplitHostPort(m.Address())
			lab.Must(t, err)
			join(t, "127.0.0.1:"+port)
			m.CtlOK("reload")
			e := m.Await(lab.Says("another process listens at a more exact address of the port, and gets every connection to " +
				"it: end it"))
			if !strings.Contains(e.Text, "127.0.0.1") || !strings.Contains(e.Text, strconv.Itoa(os.Getpid())) {
				t.Errorf("the log says %s", e.Text)
			}
		})
	}
}

// TestGenerationFindsItsSocketAsTheFirstOneFoundIt has the first generation set options on its socket, which the third
// one gets.
func TestGenerationFindsItsSocketAsTheFirstOneFoundIt(t *testing.T) {
	for what, spoil := range map[string]string{
		"queue": "s.listen(1); s.setsockopt(6, socket.TCP_DEFER_ACCEPT, 9)",
		"options": "s.setsockopt(1, socket.SO_LINGER, struct.pack('ii', 1, 9)); s.setsockopt(1, socket.SO_RCVTIMEO, " +
			"struct.pack('ll', 7, 0))",
		"mode": "s.setblocking(False); fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, crude(t, `
import fcntl, struct
def found():
    options = [(1, socket.SO_LINGER, 4), (1, socket.SO_RCVTIMEO, 16), (6, socket.TCP_DEFER_ACCEPT, 4)]
    backlog = s.getsockopt(6, socket.TCP_INFO, 104)[28:32]
    return repr(([s.getsockopt(*o) for o in options], backlog, fcntl.fcntl(s, fcntl.F_GETFL))).encode()
first = found()
if os.environ["SUPERVISORD_GENERATION"] == "1": `+spoil+`
assert os.environ["SUPERVISORD_GENERATION"] != "1" or found() != first
while True:
    try: c = s.accept()[0]
    except BlockingIOError: continue
    c.setblocking(True)
    c.recv(1000)
    c.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n" + first)
    c.close()
`, `silence = "0s"`))
			m.Serves(1)
			want := lab.Ask(t, m.Address(), "/")
			for range 3 {
				m.CtlOK("reload", "--drained")
				if got := lab.Ask(t, m.Address(), "/"); got != want {
					t.Errorf("a generation finds %s, the first one found %s", got, want)
				}
			}
		})
	}
}
