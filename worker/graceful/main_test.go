package graceful_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/graceful"
)

// TestMain runs the tests. Re-executed by a test, it is the requested worker.
func TestMain(m *testing.M) {
	if name := os.Getenv("GRACEFUL_TEST_WORKER"); name != "" {
		if err := workers[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leftover.Main(m)
}

// master is a minimal supervisor: it holds a listening socket and starts workers with it.
type master struct {
	t       testing.TB
	sockets []*os.File
	addr    string
}

// newMaster opens a TCP socket outside the poller of the Go runtime, as a supervisor does.
func newMaster(t testing.TB) *master {
	t.Helper()
	m := &master{t: t}
	m.addr = m.listen()
	return m
}

func (m *master) listen() string {
	m.t.Helper()
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(m.t)
	must.Do(m.t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Do(m.t, unix.Listen(fd, 4096))
	f := os.NewFile(uintptr(fd), "socket")
	m.t.Cleanup(func() { f.Close() })
	m.sockets = append(m.sockets, f)
	name := must.Get(unix.Getsockname(fd))(m.t)
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// proc is a worker process.
type proc struct {
	t      testing.TB
	cmd    *exec.Cmd
	ready  chan bool // true: ready; false: exited before
	ended  chan struct{}
	err    error
	stderr bytes.Buffer
}

// start starts the worker called name with the master's sockets, as start_server would, and with a pipe for readiness.
func (m *master) start(name string, env ...string) *proc {
	m.t.Helper()
	r, w, err := os.Pipe()
	must.Do(m.t, err)
	var ports []string
	for i, s := range m.sockets {
		at := must.Get(unix.Getsockname(int(s.Fd())))(m.t)
		ports = append(ports, fmt.Sprintf("127.0.0.1:%d=%d", at.(*unix.SockaddrInet4).Port, 3+i))
	}
	p := run(m.t, name, append(slices.Clone(m.sockets), w), append([]string{"SERVER_STARTER_PORT=" +
		strings.Join(ports, ";"), "NOTIFY_FD=" + strconv.Itoa(3+len(m.sockets))}, env...))
	w.Close()
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		p.ready <- line == "\n"
		r.Close()
	}()
	return p
}

// run starts the worker called name with these files, from 3, and variables.
func run(t testing.TB, name string, files []*os.File, env []string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(os.Args[0]), ready: make(chan bool, 1), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "GRACEFUL_TEST_WORKER="+name, "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.ExtraFiles, p.cmd.Stderr = files, &p.stderr
	must.Do(t, p.cmd.Start())
	t.Cleanup(p.kill)
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// serving starts a worker and waits until it is ready.
func (m *master) serving(name string, env ...string) *proc {
	m.t.Helper()
	p := m.start(name, env...)
	if !<-p.ready {
		<-p.ended
		m.t.Fatalf("worker %s never got ready: %v\n%s", name, p.err, &p.stderr)
	}
	return p
}

// web is a worker that serves HTTP at the address of a master, in a test that runs beside others.
func web(t *testing.T, env ...string) (*master, *proc) {
	t.Helper()
	t.Parallel()
	m := newMaster(t)
	return m, m.serving("http", env...)
}

// served is a Serve in the process of the test, at a port of its own.
type served struct {
	ln   net.Listener
	addr string
	ctx  context.Context
	stop context.CancelFunc
	done chan error // what Serve returned
}

// listening is served before Serve, in a test that runs beside others.
func listening(t *testing.T) *served {
	t.Helper()
	t.Parallel()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	return &served{ln, ln.Addr().String(), ctx, stop, make(chan error, 1)}
}

// serve serves what is made of the listener, and more, until stop.
func (s *served) serve(o graceful.Options, of func(net.Listener) graceful.Server, more ...graceful.Server) *served {
	go func() { s.done <- o.Serve(s.ctx, append(more, of(s.ln))...) }()
	return s
}

// asHTTP makes a server of HTTP of a listener.
func asHTTP(srv *http.Server) func(net.Listener) graceful.Server {
	return func(ln net.Listener) graceful.Server { return graceful.HTTP(ln, srv) }
}

// cutOff is what Serve returns when the deadline has cut something off.
func (s *served) cutOff(t *testing.T) *graceful.CutOff {
	t.Helper()
	var cut *graceful.CutOff
	if err := <-s.done; !errors.As(err, &cut) {
		t.Fatalf("Serve returned %v, want a *CutOff", err)
	}
	return cut
}

func (p *proc) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// wait waits for the worker, checks its exit status, and returns its stderr.
func (p *proc) wait(within time.Duration, exit int) string {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.t.Fatalf("worker still runs after %v", within)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != exit {
		p.t.Fatalf("worker ended with %v, want exit %d\n%s", p.err, exit, &p.stderr)
	}
	return p.stderr.String()
}

// links are what the worker has open.
func (p *proc) links() (links []string) {
	for _, fd := range must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid)))(p.t) {
		to, _ := os.Readlink(fd)
		links = append(links, to)
	}
	return links
}

// leaves waits until the worker has closed its copies of a socket of the master.
func (p *proc) leaves(socket *os.File) {
	p.t.Helper()
	link := must.Get(os.Readlink(fmt.Sprintf("/proc/self/fd/%d", socket.Fd())))(p.t)
	must.Become(p.t, "the worker leaves the socket", func() bool { return !slices.Contains(p.links(), link) })
}

// idle waits until no thread of the worker runs: accept(2) has returned, and the worker waits for the next connection.
func (p *proc) idle() {
	p.t.Helper()
	must.Become(p.t, "the worker is idle", func() bool {
		threads := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid)))(p.t)
		return !slices.ContainsFunc(threads, func(thread string) bool {
			stat, _ := os.ReadFile(thread)
			return bytes.Contains(stat, []byte(") R "))
		})
	})
}

// sockets counts the sockets that the worker has open.
func (p *proc) sockets() (n int) { return strings.Count(strings.Join(p.links(), " "), "socket:") }

// accepted connects to the address of the master and returns when the worker, which has no other client, has accepted
// the connection.
func (p *proc) accepted(m *master) net.Conn {
	p.t.Helper()
	before := p.sockets()
	c := dial(p.t, m.addr)
	must.Become(p.t, "the worker accepts", func() bool { return p.sockets() != before })
	return c
}

// running reports whether the worker keeps running for the given time.
func (p *proc) running(during time.Duration) bool {
	select {
	case <-p.ended:
		return false
	case <-time.After(during):
		return true
	}
}

// swaps replaces the worker repeatedly under load, as a supervisor does: once the next worker is ready, the old one
// gets TERM. It returns the number of swaps once done is closed and every worker has exited with status 0.
func (m *master) swaps(name string, every time.Duration, load func(), done <-chan struct{}) int {
	old := m.serving(name)
	go load()
	var all sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-done:
			old.signal(syscall.SIGTERM)
			old.wait(time.Minute, 0)
			all.Wait()
			return n
		}
		next := m.serving(name)
		old.signal(syscall.SIGTERM)
		leaving := old
		all.Go(func() {
			<-leaving.ended
			if leaving.err != nil {
				m.t.Errorf("worker ended with %v\n%s", leaving.err, &leaving.stderr)
			}
		})
		old = next
	}
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c
}

// prompt is how long a worker may take that has nothing to wait for: less than it would wait for an idle connection
// (DefaultDeadline).
const prompt = 25 * time.Second

// closed waits until the peer closes c, and fails on anything else.
func closed(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("read gave %v, want the end of the connection", err)
	}
}

func only200(answer *http.Response, _ []byte) error {
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// request requests a path on an open connection; again reports whether the connection can be reused.
func request(c *load.Wire, path string, keepAlive bool) (again bool, err error) {
	closes, err := load.Get("http://test"+path, only200)(c, !keepAlive)
	return err == nil && !closes, err
}
