package traffic

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

var (
	lasts = flag.Duration("for", time.Second, "how long the calm load lasts")
	rate  = flag.Int("rate", 0, "requests a second")
)

// binary builds the worker once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "worker")
	build := exec.Command("go", "build", "-o", path, "../worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the soak
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the worker: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// stage is a place for workers without a supervisor: the test passes the sockets.
type stage struct {
	*testing.T
	accounts string
	sockets  map[string]*os.File // by program
	Scope
	found chan Violation
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t, accounts: t.TempDir(), sockets: map[string]*os.File{}, found: make(chan Violation, 10000)}
	s.Scope = Scope{
		Naive: s.listen("naive"), Polite: s.listen("polite"), UDP: s.listen("udp"), Accounts: s.accounts, Rate: *rate,
		Violation: func(v Violation) { s.found <- v },
	}
	return s
}

func (s *stage) listen(program string) string {
	s.Helper()
	if program == "udp" {
		c := must.Get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(s)
		defer c.Close()
		s.sockets[program] = must.Get(c.File())(s)
		return c.LocalAddr().String()
	}
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(s)
	defer ln.Close()
	s.sockets[program] = must.Get(ln.(*net.TCPListener).File())(s)
	s.Cleanup(func() { s.sockets[program].Close() })
	return ln.Addr().String()
}

// worker starts a worker and waits until it is ready. It ends with the test.
func (s *stage) worker(program string, args ...string) *exec.Cmd {
	s.Helper()
	c, ready := s.start(program, args...)
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		s.Fatalf("the worker did not get ready: %q: %v", line, err)
	}
	return c
}

// start starts a worker, which says on the pipe when it is ready. It ends with the test.
func (s *stage) start(program string, args ...string) (c *exec.Cmd, ready *os.File) {
	s.Helper()
	path := must.Get(binary())(s)
	ready, say, err := os.Pipe()
	must.Do(s, err)
	script := append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", path, "-accounts", s.accounts}, args...)
	c = exec.Command("/bin/sh", append(script, program)...)
	name := map[string]string{"udp": "dns"}[program]
	if name == "" {
		name = "http"
	}
	c.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES="+name, "NOTIFY_FD=4", "SUPERVISORD_GENERATION=1")
	c.ExtraFiles = []*os.File{s.sockets[program], say}
	c.Stderr = os.Stderr
	must.Do(s, c.Start())
	s.Cleanup(func() {
		c.Process.Kill() //nolint:errcheck // it may have ended
		c.Wait()         //nolint:errcheck // it was killed
		ready.Close()
		s.Logf("%s: %s", program, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	})
	say.Close()
	return c, ready
}

func TestMuteVersionLivesAndIsNeverReady(t *testing.T) {
	s := newStage(t)
	for program := range s.sockets {
		_, ready := s.start(program, "-fail", "mute")
		must.Do(s, ready.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		if n, err := ready.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) { // EOF: it has ended
			t.Errorf("%s: read %d: %v", program, n, err)
		}
	}
}

func (s *stage) all() { s.worker("naive"); s.worker("polite"); s.worker("udp") }

// settle ends the load, and fails if there was a violation.
func (s *stage) settle(load *Generator) Counts {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	counts, err := load.Settle(ctx)
	if err != nil {
		s.Error(err, counts, counts.Loads, counts.Excuses)
	}
	close(s.found)
	for v := range s.found {
		s.Error(v)
	}
	return counts
}

func TestCalmLoadLosesNothing(t *testing.T) {
	s := newStage(t)
	s.all()
	load := must.Get(Start(s.Scope))(s)
	time.Sleep(*lasts)
	counts := s.settle(load)
	if counts.Requests == 0 || counts.Answered != counts.Requests {
		t.Errorf("%s, want all answered", counts)
	}
	t.Log(counts, counts.Loads)
	var usage syscall.Rusage
	must.Do(s, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	t.Logf("clients: %s", time.Duration(usage.Utime.Nano()+usage.Stime.Nano()))
}

// replace kills a worker, by SIGSTOP and SIGKILL, and starts another.
func (s *stage) replace(c *exec.Cmd, program string) *exec.Cmd {
	s.Helper()
	must.Do(s, c.Process.Signal(syscall.SIGSTOP))
	var state syscall.WaitStatus
	if _, err := syscall.Wait4(c.Process.Pid, &state, syscall.WUNTRACED, nil); err != nil || !state.Stopped() {
		s.Fatalf("the worker was not stopped: %v %v", state, err)
	}
	must.Do(s, c.Process.Kill())
	c.Wait() //nolint:errcheck // it was killed
	return s.worker(program)
}

func TestWhatAWorkerThatIsKilledOnPurposeHasInHandIsExcused(t *testing.T) {
	s := newStage(t)
	workers := map[string]*exec.Cmd{}
	for program := range s.sockets {
		workers[program] = s.worker(program)
	}
	s.timeout = 10 * time.Second
	load := must.Get(Start(s.Scope))(s)
	for began := time.Now(); time.Since(began) < *lasts; {
		s.untilEachLoadWasAnswered(load)
		for program, c := range workers {
			must.Do(s, load.Kill(c.Process.Pid, func() error {
				workers[program] = s.replace(c, program)
				return nil
			}))
		}
	}
	counts := s.settle(load)
	t.Log(counts, counts.Loads, counts.Excuses)
	if counts.Excused == 0 {
		t.Errorf("%s: nothing was excused", counts)
	}
}

func TestWhatAWorkerThatDiesByItselfHasInHandIsAViolation(t *testing.T) {
	s := newStage(t)
	s.UDP, s.Naive = "", ""
	c := s.worker("polite")
	load := must.Get(Start(s.Scope))(s)
	s.untilEachLoadWasAnswered(load)
	s.replace(c, "polite")
	v := <-s.found
	if !strings.Contains(v.Why, fmt.Sprintf("PID %d of generation 1, which ended by itself", c.Process.Pid)) {
		t.Errorf("violation %q", v)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if counts, _ := load.Settle(ctx); counts.Lost == 0 || counts.Excused > 0 { // the error says that the sums differ
		t.Errorf("%s, want some lost", counts)
	}
}

func (s *stage) untilEachLoadWasAnswered(load *Generator) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		missing := ""
		for name, c := range load.Counts().Loads {
			if c.Answered == 0 && !strings.HasSuffix(name, "download") {
				missing = name
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s had no answer", missing)
		}
	}
}
