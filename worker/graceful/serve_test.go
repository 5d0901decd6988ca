package graceful_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/graceful"
)

func TestReadyComesOnlyWhenAllAccept(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	m.listen()
	p := m.start("late", "TEST_BOOT=500ms")
	began := time.Now()
	if !<-p.ready {
		t.Fatal("never ready")
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("ready after %v, although one of the servers did not accept before 500ms", took)
	}
	p.signal(syscall.SIGTERM)
	p.wait(prompt, 0)
}

func TestServerThatCannotStartEndsAllAndIsNeverReady(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	p := m.start("broken")
	if <-p.ready {
		t.Error("it said ready")
	}
	p.wait(prompt, 1)
}

func TestServersRunTogetherAndAreDrainedTogether(t *testing.T) {
	raw := must.Get(net.Listen("unix", t.TempDir()+"/s"))(t)
	var mu sync.Mutex
	var order []string
	note := func(s string) { mu.Lock(); defer mu.Unlock(); order = append(order, s) }
	o := graceful.Options{OnStop: func(context.Context) { note("OnStop") }}
	s := listening(t).serve(o, asHTTP(&http.Server{Handler: routes()}),
		graceful.Conns(raw, func(ctx context.Context, c net.Conn) {
			<-ctx.Done()
			fmt.Fprintln(c, "goodbye")
			note("conn")
		}),
		graceful.Work(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
			note("work")
			return nil
		}))
	c := must.Get(net.Dial("unix", raw.Addr().String()))(t)
	defer c.Close()
	_ = must.Get(request(load.NewWire(dial(t, s.addr)), "/", false))(t)
	s.stop()
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "goodbye\n" {
		t.Errorf("%q, %v", line, err)
	}
	must.Do(t, <-s.done)
	slices.Sort(order)
	if !slices.Equal(order, []string{"OnStop", "conn", "work"}) {
		t.Errorf("called: %v", order)
	}
}

func TestWorkThatFailsStopsTheOthers(t *testing.T) {
	broken := errors.New("queue is gone")
	s := listening(t).serve(graceful.Options{}, asHTTP(&http.Server{}),
		graceful.Work(func(context.Context) error { return broken }))
	if err := <-s.done; !errors.Is(err, broken) {
		t.Errorf("Serve returned %v", err)
	}
}

// busy is a server whose only connection is in use until its client closes it. took is closed when that begins.
func busy(took chan struct{}) func(net.Listener) graceful.Server {
	return func(ln net.Listener) graceful.Server {
		return graceful.Conns(ln, func(_ context.Context, c net.Conn) {
			close(took)
			_, _ = c.Read(make([]byte, 1))
		})
	}
}

func TestServerThatCannotAcceptAnyMoreDrainsUntilTheDeadline(t *testing.T) {
	took := make(chan struct{})
	s := listening(t).serve(graceful.Options{Deadline: 100 * time.Millisecond}, busy(took))
	dial(t, s.addr)
	<-took
	must.Do(t, s.ln.Close())
	var cut *graceful.CutOff
	if err := <-s.done; !errors.As(err, &cut) || len(cut.Conns) != 1 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}

func TestWorkThatOutlivesTheDeadlineIsReported(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	end := make(chan struct{})
	defer close(end)
	o := graceful.Options{Deadline: 50 * time.Millisecond}
	var cut *graceful.CutOff
	err := o.Serve(ctx, graceful.Work(func(context.Context) error { <-end; return nil }))
	if !errors.As(err, &cut) || cut.Work != 1 {
		t.Errorf("Serve returned %v", err)
	}
}

func TestHandlerThatOutlivesTheDeadlineLosesItsConnection(t *testing.T) {
	took := make(chan struct{})
	s := listening(t).serve(graceful.Options{Deadline: 100 * time.Millisecond}, busy(took))
	c := dial(t, s.addr)
	<-took
	s.stop()
	if cut := s.cutOff(t); len(cut.Conns) != 1 {
		t.Errorf("Serve returned %v", cut)
	}
	closed(t, c)
}

// grpcDouble behaves like *grpc.Server: it closes connections that it accepts after GracefulStop.
type grpcDouble struct {
	stopping chan struct{}
	busy     sync.WaitGroup
	dropped  chan net.Conn
}

func (g *grpcDouble) Serve(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		g.busy.Go(func() {
			time.Sleep(50 * time.Millisecond) // a goroutine that is slow to start
			select {
			case <-g.stopping:
				g.dropped <- c
			default:
				_, _ = c.Read(make([]byte, 1))
			}
			_ = c.Close()
		})
	}
}

func (g *grpcDouble) GracefulStop() { close(g.stopping); g.busy.Wait() }
func (g *grpcDouble) Stop()         {}

func TestGRPCHasTakenUpEveryConnectionBeforeItIsStopped(t *testing.T) {
	s, g := listening(t), &grpcDouble{stopping: make(chan struct{}), dropped: make(chan net.Conn, 100)}
	for range 20 {
		fmt.Fprint(dial(t, s.addr), "x")
	}
	s.stop()
	s.serve(graceful.Options{}, func(ln net.Listener) graceful.Server { return graceful.GRPC(ln, g) })
	must.Do(t, <-s.done)
	if n := len(g.dropped); n > 0 {
		t.Errorf("%d connections were dropped", n)
	}
}

func TestEventStreamEndsWithAGoodbye(t *testing.T) {
	leaving := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
		_ = http.NewResponseController(w).Flush()
		<-leaving
		fmt.Fprintln(w, "goodbye")
	})
	o := graceful.Options{Linger: -1, OnStop: func(context.Context) { close(leaving) }}
	s := listening(t).serve(o, asHTTP(&http.Server{Handler: handler}))
	answer := must.Get(http.Get("http://" + s.addr))(t)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{"hello", "goodbye"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, %v; want %q", lines.Text(), lines.Err(), want)
		}
		if want == "hello" {
			s.stop()
		}
	}
	must.Do(t, <-s.done)
	http.DefaultClient.CloseIdleConnections()
}
