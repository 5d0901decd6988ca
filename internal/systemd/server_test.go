package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// server is a fake PID 1: on request it reads datagrams with their descriptors.
type server struct {
	t    *testing.T
	path string
	conn *net.UnixConn
}

// received is one datagram.
type received struct {
	text string
	fds  []int
}

func listen(t *testing.T, path string) *server {
	t.Helper()
	conn := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { conn.Close() })
	return &server{t: t, path: path, conn: conn}
}

// newServer listens in a directory with a path short enough for a socket.
func newServer(t *testing.T) *server {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "n"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return listen(t, filepath.Join(dir, "s"))
}

// environment returns the environment of a service of this server.
func (s *server) environment(name string) string {
	if name == "NOTIFY_SOCKET" {
		return s.path
	}
	return ""
}

// read returns the next datagram. The descriptors are closed at the end of the test, or by the caller.
func (s *server) read() received {
	s.t.Helper()
	s.conn.SetReadDeadline(time.Now().Add(time.Minute))
	data, rights := make([]byte, 1<<20), make([]byte, unix.CmsgSpace(4*253))
	n, rn, _, _, err := s.conn.ReadMsgUnix(data, rights)
	if err != nil {
		s.t.Fatalf("nothing came: %v", err)
	}
	got := received{text: string(data[:n])}
	messages := must.Get(unix.ParseSocketControlMessage(rights[:rn]))(s.t)
	for _, message := range messages {
		fds := must.Get(unix.ParseUnixRights(&message))(s.t)
		got.fds = append(got.fds, fds...)
	}
	s.t.Cleanup(func() { closeAll(got.fds) })
	return got
}

// quiet checks that no further datagram has arrived.
func (s *server) quiet() {
	s.t.Helper()
	s.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	data := make([]byte, 4096)
	if n, err := s.conn.Read(data); !errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Errorf("one more message came: %q (%v)", data[:n], err)
	}
}

// open connects a Notify that must not report a failure.
func (s *server) open() *Notify {
	s.t.Helper()
	n := must.Get(Open(s.environment, func(err error) { s.t.Errorf("a message failed: %v", err) }))(s.t)
	s.t.Cleanup(func() { n.Close() })
	return n
}

// full is a server with a Notify whose queue is full of so many messages.
func full(t *testing.T) (s *server, n *Notify, filled int) {
	t.Helper()
	s = newServer(t)
	n = s.open()
	return s, n, s.fill(n)
}

// drain reads what fill has sent.
func (s *server) drain(filled int) {
	s.t.Helper()
	for range filled {
		s.expect("X_FILL=1")
	}
}

// fill fills the queue of the socket and returns the number of messages.
func (s *server) fill(n *Notify) int {
	s.t.Helper()
	for count := range 100_000 {
		must.Do(s.t, n.send("X_FILL", "1"))
		n.sender.mu.Lock()
		full := len(n.sender.waiting) > 0
		n.sender.mu.Unlock()
		if full {
			return count + 1
		}
	}
	s.t.Fatal("the queue never fills")
	return 0
}

func (s *server) expect(want string) {
	s.t.Helper()
	if got := s.read(); got.text != want {
		s.t.Errorf("systemd got %q, want %q", got.text, want)
	}
}

// sameFile reports whether two descriptors refer to the same open file.
func sameFile(t *testing.T, a, b int) bool {
	t.Helper()
	var first, second unix.Stat_t
	must.Do(t, errors.Join(unix.Fstat(a, &first), unix.Fstat(b, &second)))
	return first.Dev == second.Dev && first.Ino == second.Ino
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	found := must.Get(os.ReadDir("/proc/self/fd"))(t)
	return len(found)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
