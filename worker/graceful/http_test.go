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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/graceful"
)

// listener waits for the handler of /slow, which connects to it when it begins.
type listener struct {
	t  *testing.T
	ln net.Listener
	at string
}

func listen(t *testing.T) listener {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { ln.Close() })
	return listener{t, ln, ln.Addr().String()}
}

func (l listener) wait() {
	l.t.Helper()
	must.Do(l.t, l.ln.(*net.TCPListener).SetDeadline(time.Now().Add(30*time.Second)))
	c := must.Get(l.ln.Accept())(l.t)
	c.Close()
}

// inFlight sends a request that takes d and returns once the worker handles it.
func inFlight(t *testing.T, addr string, d time.Duration) (*load.Wire, <-chan error) {
	t.Helper()
	begun := listen(t)
	c := load.NewWire(dial(t, addr))
	done := make(chan error, 1)
	go func() {
		again, err := request(c, "/slow?d="+d.String()+"&begun="+begun.at, true)
		if err == nil && again {
			err = errors.New("the answer came without Connection: close, although the header was written after the stop had " +
				"begun")
		}
		done <- err
	}()
	begun.wait()
	return c, done
}

func TestOldWorkerLeavesTheQueueOfASharedSocketToTheNext(t *testing.T) {
	m, old := web(t)
	_, done := inFlight(t, m.addr, time.Second)
	old.signal(syscall.SIGTERM)
	old.leaves(m.sockets[0])
	queued := dial(t, m.addr)
	fmt.Fprint(queued, "GET / HTTP/1.0\r\n\r\n")
	must.Do(t, <-done)
	next := m.serving("http")
	answer := must.Get(http.ReadResponse(bufio.NewReader(queued), nil))(t)
	pid := must.Get(io.ReadAll(answer.Body))(t)
	if got := strings.TrimSpace(string(pid)); got != strconv.Itoa(next.cmd.Process.Pid) {
		t.Errorf("answered by %s, want the next worker, %d", got, next.cmd.Process.Pid)
	}
}

func TestStopTakesWhatIsQueuedOnAnInheritedSocket(t *testing.T) {
	m, p := web(t)
	p.signal(syscall.SIGSTOP)
	var queued []*load.Wire
	for range 50 {
		queued = append(queued, load.NewWire(dial(t, m.addr)))
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)
	for i, c := range queued {
		if again, err := request(c, "/", true); err != nil {
			t.Errorf("connection %d: %v", i, err)
		} else if again { // taken before the worker read its signal
			must.Do(t, c.Close())
		}
	}
	p.wait(prompt, 0)
}

func TestOwnSocketsQueueIsStillTaken(t *testing.T) {
	t.Parallel()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var queued []*load.Wire
	for range 20 {
		c := load.NewWire(dial(t, ln.Addr().String()))
		queued = append(queued, c)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop() // before the first Accept: all connections are in the queue when the stop begins
	done := make(chan error, 1)
	go func() { done <- graceful.Serve(ctx, graceful.HTTP(ln, &http.Server{Handler: routes()})) }()
	for i, c := range queued {
		if _, err := request(c, "/", true); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDeadlineCutsConnectionsAndReportsThem(t *testing.T) {
	t.Parallel()
	o := graceful.Options{Deadline: 300 * time.Millisecond, Linger: 50 * time.Millisecond}
	s := serve(t, o, asHTTP(&http.Server{Handler: routes()}))
	_, slow := inFlight(t, s.addr, time.Minute)
	websocket := dial(t, s.addr)
	fmt.Fprint(websocket, "GET /hijack HTTP/1.1\r\nHost: test\r\n\r\n")
	_ = must.Get(http.ReadResponse(bufio.NewReader(websocket), nil))(t)
	idle := dial(t, s.addr)
	s.stop()
	cut := s.cutOff(t)
	doing := map[graceful.Doing]int{}
	for _, c := range cut.Conns {
		doing[c.Doing]++
	}
	if len(cut.Conns) != 2 || doing[graceful.Active] != 1 || doing[graceful.Hijacked] != 1 {
		t.Errorf("cut off: %v; want one active, one hijacked", cut.Conns)
	}
	if err := <-slow; err == nil {
		t.Error("the slow request was answered")
	}
	closed(t, websocket)
	closed(t, idle)
	if text := cut.Error(); !strings.Contains(text, "1 active") || !strings.Contains(text, "1 hijacked") {
		t.Error(text)
	}
}

func TestLargeAnswerIsSentWhole(t *testing.T) {
	t.Parallel()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stop()
		_, _ = w.Write(body)
	})
	done := make(chan error, 1)
	go func() { done <- graceful.Serve(ctx, graceful.HTTP(ln, &http.Server{Handler: handler})) }()
	c := dial(t, ln.Addr().String())
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	time.Sleep(200 * time.Millisecond) // the worker must wait for this client
	answer := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(t)
	got, err := io.ReadAll(answer.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes of %d, %v", len(got), len(body), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRegisteredFunctionsOfTheServerRun(t *testing.T) {
	t.Parallel()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	ran := make(chan struct{})
	srv := &http.Server{}
	srv.RegisterOnShutdown(func() { close(ran) })
	must.Do(t, graceful.Serve(ctx, graceful.HTTP(ln, srv)))
	<-ran
}
