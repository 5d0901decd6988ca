package worker

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("TEST_ROLE"); role != "" {
		os.Exit(play(role))
	}
	python = findPython()
	leftover.Main(m)
}

// python is the real interpreter behind a version manager, or "" without one. It is looked up before there is a
// launcher, which would reap the command that asks.
var python string

func findPython() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func openDescriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// worker returns a spec that runs this binary in a role.
func role(name string, environment ...string) Spec {
	spec := command(self(), "-")
	spec.Environment = append([]string{"TEST_ROLE=" + name, "GORACE=atexit_sleep_ms=0"}, environment...)
	return spec
}

// command is a worker that runs a command, which says itself that it is ready.
func command(words ...string) Spec { return probed(ready.Check{Method: ready.Notify}, words...) }

func probed(r ready.Check, words ...string) Spec {
	return Spec{Execution: spawn.Execution{Command: words, Environment: []string{"PATH=" + os.Getenv("PATH")}}, Ready: r}
}

func shell(script string) Spec { return command("/bin/sh", "-c", script) }

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// life receives the events of one worker.
type subject struct {
	t      *testing.T
	w      *Worker
	events chan life.Event
	ended  bool

	unsaved bool // its supervisor never writes a record
	changed atomic.Int32
}

// post takes an event. Changed, which says nothing by itself, is only counted, and what a busy machine may cause is
// dropped.
func (s *subject) post(e life.Event) {
	switch e.(type) {
	case life.Changed:
		s.changed.Add(1)
	case life.Awaited, life.Strange:
	default:
		s.events <- e
	}
}

func launcher(t *testing.T, given ...Needs) *Launcher {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "w"))(t)
	os.Chmod(dir, 0o755)
	needs := Needs{}
	for _, s := range given {
		needs = s
	}
	needs.Directory, needs.Stdout, needs.Stderr = dir, os.Stdout, os.Stderr
	l := must.Get(NewLauncher(needs))(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left in the directory: %v", left)
		}
		os.RemoveAll(dir)
	})
	return l
}

func start(t *testing.T, l *Launcher, spec Spec) *subject {
	t.Helper()
	if spec.Stdout.Kind == "" {
		spec.Stdout.Kind = output.Null
	}
	spec.Ready.Believed = true // many pass a pipe for a socket; tests on the built binary are about what is accepted
	s := &subject{t: t, events: make(chan life.Event, 100)}
	s.w = l.Start(spec, s.post)
	t.Cleanup(s.end)
	return s
}

// started starts a worker, whose command runs when it returns.
func started(t *testing.T, l *Launcher, spec Spec) *subject {
	t.Helper()
	s := start(t, l, spec)
	next[life.Spawned](s)
	return s
}

// pipe makes a pipe that is closed at the end of the test.
func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	must.Do(t, err)
	t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// gone waits for the end of a process that nobody waits for.
func gone(t *testing.T, pid int) {
	t.Helper()
	must.Become(t, fmt.Sprintf("process %d has ended", pid), func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

func (s *subject) next() life.Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		_, s.ended = e.(life.Exited)
		if !s.unsaved {
			s.w.Recorded(e)
		}
		return e
	case <-time.After(30 * time.Second):
		s.t.Fatal("no event for 30 s")
		return nil
	}
}

// end kills the worker if the test has not stopped it.
func (s *subject) end() {
	s.w.Signal(sysSignal(9), true)
	for !s.ended {
		s.next()
	}
}

// next returns the next event, which must be of type T.
func next[T life.Event](s *subject) T {
	s.t.Helper()
	e := s.next()
	got, ok := e.(T)
	if !ok {
		s.t.Fatalf("got %T %v instead of %T", e, e, got)
	}
	return got
}

// exits compares the status of a worker whose next event is its end.
func exits(s *subject, status int) {
	s.t.Helper()
	if e := next[life.Exited](s); !e.Known || e.Step != "" || e.Status.ExitStatus() != status {
		s.t.Errorf("%s, want status %d", e, status)
	}
}

func (s *subject) signal(sig int) {
	s.t.Helper()
	if err := s.w.Signal(sysSignal(sig), false); err != nil {
		s.t.Error(err)
	}
}

func sysSignal(n int) syscall.Signal { return syscall.Signal(n) }

// play runs this binary as a worker.
func play(name string) int {
	switch name {
	case "notify": // sends each argument in TEST_MESSAGES, split at "|", as a datagram
		for _, m := range strings.Split(os.Getenv("TEST_MESSAGES"), "|") {
			sendTo(os.Getenv("NOTIFY_SOCKET"), []byte(strings.ReplaceAll(m, ";", "\n")))
		}
		return 0
	case "flood":
		for range 20_000 {
			sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("STATUS=busy\nWATCHDOG=1\nREADY=1"))
		}
		sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("STATUS=done"))
		return 0
	case "foreign": // another process sends first, then the worker
		sendTo(os.Getenv("TEST_SOCKET"), []byte("STATUS=forged"))
		return 0
	}
	fmt.Fprintln(os.Stderr, "no such role:", name)
	return 2
}

// sendTo sends a datagram, with descriptors.
func sendTo(path string, data []byte, fds ...int) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(fd, data, control, &unix.SockaddrUnix{Name: path}, 0)
}
