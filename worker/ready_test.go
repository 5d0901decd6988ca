package worker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// afterThree fails the first three requests.
func afterThree(asked *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/health":
			w.WriteHeader(http.StatusNotFound)
		case asked.Add(1) <= 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound) // must not be followed
		}
	})
}

func TestProbesSucceedWhenTheWorkerAnswers(t *testing.T) {
	l := launcher(t)
	var asked atomic.Int64
	at := map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}
	for network, address := range at {
		ln := must.Get(net.Listen(network, address))(t)
		server := &http.Server{Handler: afterThree(&asked)}
		go server.Serve(ln)
		defer server.Close()
		at[network] = ln.Addr().String()
	}
	const every = 5 * time.Millisecond
	for _, r := range []ready.Check{
		{Method: ready.HTTP, URL: "http://" + at["tcp"] + "/health", Interval: every},
		{Method: ready.HTTP, URL: "unix:" + at["unix"] + ":/health", Interval: every},
		{Method: ready.TCP, Address: at["tcp"], Interval: every},
		{Method: ready.TCP, Address: "unix:" + at["unix"], Interval: every},
		{Method: ready.Exec, Command: []string{"sh", "-c", "kill -0 {pid}"}, Interval: every},
	} {
		t.Run(string(r.Method), func(t *testing.T) {
			asked.Store(0)
			s := started(t, l, probed(r, "sleep", "100"))
			next[life.ReadySaid](s)
			if r.Method == ready.HTTP && asked.Load() != 4 {
				t.Errorf("asked %d times", asked.Load())
			}
		})
	}
}

func TestListenerThatNoProbeCanReachFailsTheTrialAtOnce(t *testing.T) {
	spec := probed(ready.Check{Method: ready.HTTP, Listener: "web", URL: "http://{listener:web}/health"}, "sleep", "100")
	spec.Dial = func(context.Context, string) (net.Conn, error) {
		return nil, &ready.Unreachable{Err: errors.New("web is shared")}
	}
	if e := next[life.NeverReady](started(t, launcher(t), spec)); !strings.Contains(e.Err.Error(), "web is shared") {
		t.Error(e)
	}
}

func TestProbeEndsWithTheWorker(t *testing.T) {
	l := launcher(t)
	stuck := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) // accepts connections and never answers
	defer stuck.Close()
	for _, r := range []ready.Check{
		{Method: ready.HTTP, URL: "http://" + stuck.Addr().String()},
		{Method: ready.TCP, Address: "127.0.0.1:1"},
		{Method: ready.Exec, Command: []string{"sleep", "100"}},
	} {
		s := started(t, l, probed(r, "sleep", "100"))
		begin := time.Now()
		s.signal(int(syscall.SIGTERM))
		next[life.Exited](s)
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("%s: the end took %v", r.Method, d)
		}
	}
}

func TestNotifyFDCannotHaveTheNumberOfASocket(t *testing.T) {
	spec := shell("exit 0")
	spec.Sockets, spec.Ready.FD = []int{rawSocket(t, unix.SOCK_STREAM)}, 3
	if e := next[life.Exited](start(t, launcher(t), spec)); e.Step != spawn.StepNotify ||
		!strings.Contains(e.Err.Error(), "descriptor 3") {
		t.Errorf("%s", e)
	}
}

// quiet is a script whose stderr is not ours.
func quiet(script string) Spec {
	spec := shell(script)
	spec.Stderr.Kind = output.Null
	return spec
}

func TestRunTellsStatusAndStderr(t *testing.T) {
	err := launcher(t).Run(t.Context(), quiet("echo bad key >&2; exit 2"))
	if err == nil || !strings.Contains(err.Error(), "exited with status 2; it said:\n\tbad key") {
		t.Error(err)
	}
	var run *RunError
	if !errors.As(err, &run) || run.Exited.Status.ExitStatus() != 2 {
		t.Errorf("%#v", err)
	}
}

func TestRunKillsTheWholeGroupWhenItsTimeIsOver(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	must.Do(t, syscall.Mkfifo(begun, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		os.ReadFile(begun)
		cancel(context.DeadlineExceeded)
	}()
	begin := time.Now()
	err := launcher(t).Run(ctx, quiet("echo waiting >&2; echo >"+begun+"; sleep 100; true"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting") {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	must.Become(t, "without children", noChildren)
}

func TestRunInAContextThatIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := launcher(t).Run(ctx, command("true")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRunGivesStdin(t *testing.T) {
	want := strings.Repeat("x", 1<<20) // more than a pipe holds
	dir := t.TempDir()
	spec := shell("cat >got")
	spec.Directory, spec.Stdin = dir, []byte(want)
	must.Do(t, launcher(t).Run(t.Context(), spec))
	if got, err := os.ReadFile(dir + "/got"); err != nil || string(got) != want {
		t.Errorf("%d bytes arrived: %v", len(got), err)
	}
}

// A look at a worker that is late waits for no other one that the worker delays, and a later look sees what it does.
func TestLateWorkerIsLookedAtAgainAfterAnotherLookWasDelayed(t *testing.T) {
	l := launcher(t)
	spec := inPythonReady(t, "other = socket.create_server(('127.0.0.1', 0)); say('STATUS=there'); signal.pause()")
	spec.Sockets = []int{rawSocket(t, unix.SOCK_STREAM)}
	s := &subject{t: t, events: make(chan life.Event, 100)}
	awaited := make(chan struct{}, 1)
	s.w = l.Start(spec, func(e life.Event) {
		if _, is := e.(life.Awaited); is {
			awaited <- struct{}{}
		}
		s.post(e)
	})
	t.Cleanup(s.end)
	ended, end := context.WithCancel(t.Context())
	end()
	another := make(chan struct{})
	foreign.Look(ended, &l.looks, s.w, func() struct{} { return <-another }) //nolint:errcheck // it is delayed
	there(s)
	must.Become(t, "awaited", func() bool { return len(awaited) > 0 })
	close(another)
	must.Become(t, "seen", func() bool { return strings.Contains(s.w.Seen(), "with a socket of its own") })
}
