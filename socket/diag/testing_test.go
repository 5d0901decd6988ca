package diag

import (
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// lane is a listening socket with a tag, on a port that others may share.
type lane struct {
	net.Listener
	fd    int
	inode uint64
	port  uint16
	tag   int
}

// fdOf returns the descriptor of a listener or connection, which keeps owning it.
func fdOf(t testing.TB, l any) int {
	t.Helper()
	raw := must.Get(l.(syscall.Conn).SyscallConn())(t)
	fd := -1
	must.Do(t, raw.Control(func(n uintptr) { fd = int(n) }))
	return fd
}

func inodeOf(t testing.TB, fd int) uint64 {
	t.Helper()
	var stat unix.Stat_t
	must.Do(t, unix.Fstat(fd, &stat))
	return stat.Ino
}

// families are networks with an address of the loopback device, and that of every family.
var families = []string{"tcp4 127.0.0.1:0", "tcp6 [::1]:0", "tcp :0"}

// open listens at a network and an address.
func open(t testing.TB, at string, tag int) *lane {
	t.Helper()
	network, address, _ := strings.Cut(at, " ")
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if network == "unix" {
			return nil
		}
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	lc.SetMultipathTCP(false) // lanes cannot have it
	l := must.Get(lc.Listen(context.Background(), network, address))(t)
	t.Cleanup(func() { l.Close() })
	n := &lane{Listener: l, fd: fdOf(t, l), tag: tag}
	n.inode = inodeOf(t, n.fd)
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		n.port = uint16(a.Port)
		must.Do(t, SetTag(n.fd, tag))
	}
	return n
}

// silence is that of the watches.
const silence = 200 * time.Millisecond

// openTCP opens a lane on a new port of a loopback address, "" for 127.0.0.1.
func openTCP(t testing.TB, tag int) *lane { return open(t, families[0], tag) }

func (n *lane) target() Target {
	return Target{Port: n.port, Tags: 1 << n.tag, Queues: []uint64{n.inode}}
}

func (n *lane) watch() *Watch { return NewWatch([]Target{n.target()}, silence) }

// patient is a watch for what must not be silent yet, however busy the machine is.
func (n *lane) patient() *Watch { return NewWatch([]Target{n.target()}, time.Hour) }

// dial connects, and does not wait for the other side to accept.
func (n *lane) dial(t testing.TB) net.Conn {
	t.Helper()
	c := must.Get(net.Dial(n.Addr().Network(), n.Addr().String()))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func (n *lane) accept(t testing.TB) net.Conn {
	t.Helper()
	c := must.Get(n.Accept())(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// pair returns both sides of a connection.
func (n *lane) pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	client = n.dial(t)
	return client, n.accept(t)
}

func write(t testing.TB, c net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(c, what); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

// exchange is a request and its answer, read by both sides.
func exchange(t testing.TB, client, server net.Conn) {
	t.Helper()
	write(t, client, "request")
	read(t, server, "request")
	write(t, server, "answer")
	read(t, client, "answer")
}

func look(t testing.TB, w *Watch) InHand {
	t.Helper()
	l := must.Get(w.Look())(t)
	l.Took, l.Silent = 0, 0
	return l
}

// becomes waits until a Watch sees want.
func becomes(t testing.TB, w *Watch, what string, want InHand) {
	t.Helper()
	var l InHand
	defer func() {
		if l != want {
			t.Logf("%s: %+v, want %+v", what, l, want)
		}
	}()
	must.Become(t, what, func() bool { l = look(t, w); return l == want })
}
