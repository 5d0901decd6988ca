package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/observe/usage"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// fake is a supervisor that answers at once.
type fake struct {
	mu        sync.Mutex
	asked     []any
	err       error // of the next requests, except subscriptions
	status    supervisor.Status
	tickets   []supervisor.Ticket // of a reload
	ticket    supervisor.Ticket   // of an action
	followers map[<-chan *supervisor.Update]chan *supervisor.Update
	buffer    int
	sooner    []*supervisor.Update // come before a subscriber has a status
	followed  chan struct{}
}

func newFake() *fake {
	return &fake{
		followers: map[<-chan *supervisor.Update]chan *supervisor.Update{}, buffer: 16, followed: make(chan struct{}, 100),
		status: supervisor.Status{PID: 1,
			Programs: []supervisor.ProgramStatus{{Name: "web", State: program.Up, Awaited: 2}}},
		tickets: []supervisor.Ticket{{Program: "web", Generation: 2}},
		ticket:  supervisor.Ticket{Program: "web", Generation: 2},
	}
}

// The recorded requests, except those with options of the supervisor.
type (
	acted struct {
		Program string
		Event   program.Event
	}
	leveled  struct{ Level, AskedBy string }
	upgraded struct{ AskedBy string }
)

// ask records a request.
func (f *fake) ask(what any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
	return f.err
}

func (f *fake) Reload(_ context.Context, o supervisor.ReloadOptions) ([]supervisor.Ticket, error) {
	return f.tickets, f.ask(o)
}

func (f *fake) Act(_ context.Context, name string, e program.Event) (supervisor.Ticket, error) {
	return f.ticket, f.ask(acted{name, e})
}

func (f *fake) Signal(_ context.Context, o supervisor.SignalOptions) error { return f.ask(o) }

func (f *fake) SetLevel(_ context.Context, level, askedBy string) error {
	return f.ask(leveled{level, askedBy})
}

func (f *fake) Upgrade(_ context.Context, askedBy string) error { return f.ask(upgraded{askedBy}) }

func (f *fake) Status(context.Context) (*supervisor.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.status
	return &st, f.err
}

func (f *fake) Logs(context.Context, string) (*output.Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return nil, cmp.Or(f.err, supervisor.ErrState)
}

func (f *fake) Subscribe(context.Context) (<-chan *supervisor.Update, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan *supervisor.Update, f.buffer)
	f.followers[c] = c
	for _, u := range f.sooner {
		c <- u
	}
	f.followed <- struct{}{}
	return c, nil
}

func (f *fake) Unsubscribe(updates <-chan *supervisor.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.followers[updates]; c != nil {
		close(c)
		delete(f.followers, updates)
	}
}

// publish sends an update like the loop, which never waits for a subscriber.
func (f *fake) publish(reports ...program.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range reports {
		for key, c := range f.followers {
			select {
			case c <- &supervisor.Update{Time: time.Now(), Program: "web", Report: r}:
			default:
				close(c)
				delete(f.followers, key)
			}
		}
	}
}

func (f *fake) following() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.followers)
}

func (f *fake) last() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		return nil
	}
	return f.asked[len(f.asked)-1]
}

// serve serves a fake until the test ends, and checks that nothing is left.
func serve(t testing.TB, f *fake, change ...func(*API)) *API {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "ctl"))(t)
	os.Chmod(dir, 0o755)
	s := &API{Path: filepath.Join(dir, "s"), Mode: 0o666, Inherited: -1, Loop: f, Log: zap.NewNop(),
		Gauge: new(usage.Gauge)}
	for _, c := range change {
		c(s)
	}
	must.Do(t, s.Serve())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(s.Path); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
		if n := f.following(); n > 0 {
			t.Errorf("%d streams are still followed", n)
		}
		os.RemoveAll(dir)
	})
	return s
}

// dial connects to a server until the end of the test.
func dial(t testing.TB, s *API) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("unix", s.Path))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// dialAs connects as another user. On Linux a user ID belongs to a thread; this thread ends with the call.
func dialAs(t testing.TB, s *API, uid, gid int, groups ...uint32) net.Conn {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can change its user")
	}
	var fd int
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends
		fd, err = connectAs(s.Path, uid, gid, groups)
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	c := must.Get(net.FileConn(f))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// talk sends a request over a connection and returns the status and the body.
func talk(t testing.TB, c net.Conn, method, path, body string) (int, string) {
	t.Helper()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path,
		len(body), body)
	return answer(t, c)
}

func answer(t testing.TB, c net.Conn) (int, string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	raw, err := io.ReadAll(c)
	if err != nil && len(raw) == 0 {
		t.Fatal(err)
	}
	code := 0
	fmt.Sscanf(string(raw), "HTTP/1.1 %d", &code)
	_, text, _ := strings.Cut(string(raw), "\r\n\r\n")
	return code, text
}

// refuses fails unless the answer has this status and a JSON error with a remedy.
func refuses(t *testing.T, c net.Conn, code int, method, path, body string) APIError {
	t.Helper()
	got, text := talk(t, c, method, path, body)
	var p APIError
	if err := json.Unmarshal([]byte(text), &p); err != nil || got != code || p.What == "" || p.Code == "" {
		t.Errorf("%s %s %.40q: %d %s, want %d", method, path, body, got, text, code)
	}
	return p
}

// connectAs must run in a separate thread.
func connectAs(path string, uid, gid int, groups []uint32) (int, error) {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), pointer(groups), 0); errno != 0 {
		return -1, errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return -1, errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return -1, errno
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

func pointer(list []uint32) uintptr {
	if len(list) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&list[0]))
}
