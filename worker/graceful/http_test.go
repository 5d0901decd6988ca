package graceful_test

import (
	"bufio"
	"bytes"
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

// listen returns an address to which the handler of /slow connects when it begins, and waits for that.
func listen(t *testing.T) (at string, wait func()) {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { ln.Close() })
	must.Do(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(30*time.Second)))
	return ln.Addr().String(), func() { t.Helper(); must.Get(ln.Accept())(t).Close() }
}

// inFlight sends a request that takes d and returns once the worker handles it.
func inFlight(t *testing.T, addr string, d time.Duration) <-chan error {
	t.Helper()
	begun, wait := listen(t)
	c, done := load.NewWire(dial(t, addr)), make(chan error, 1)
	go func() {
		again, err := request(c, "/slow?d="+d.String()+"&begun="+begun, true)
		if err == nil && again {
			err = errors.New("the answer came without Connection: close, although the header was written after the stop had " +
				"begun")
		}
		done <- err
	}()
	wait()
	return done
}

func TestOldWorkerLeavesTheQueueOfASharedSocketToTheNext(t *testing.T) {
	m, old := web(t)
	done := inFlight(t, m.addr, time.Second)
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
	s := listening(t)
	var queued []*load.Wire
	for range 20 {
		queued = append(queued, load.NewWire(dial(t, s.addr)))
	}
	s.stop() // before the first Accept: all connections are in the queue when the stop begins
	s.serve(graceful.Options{}, asHTTP(&http.Server{Handler: routes()}))
	for i, c := range queued {
		if _, err := request(c, "/", true); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	must.Do(t, <-s.done)
}

func TestDeadlineCutsConnectionsAndReportsThem(t *testing.T) {
	o := graceful.Options{Deadline: 300 * time.Millisecond, Linger: 50 * time.Millisecond}
	s := listening(t).serve(o, asHTTP(&http.Server{Handler: routes()}))
	slow := inFlight(t, s.addr, time.Minute)
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
	s, body := listening(t), bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	handler := func(w http.ResponseWriter, _ *http.Request) {
		s.stop()
		_, _ = w.Write(body)
	}
	s.serve(graceful.Options{}, asHTTP(&http.Server{Handler: http.HandlerFunc(handler)}))
	c := dial(t, s.addr)
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	time.Sleep(200 * time.Millisecond) // the worker must wait for this client
	answer := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(t)
	if got, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes of %d, %v", len(got), len(body), err)
	}
	must.Do(t, <-s.done)
}

func TestRegisteredFunctionsOfTheServerRun(t *testing.T) {
	s, ran, srv := listening(t), make(chan struct{}), &http.Server{}
	srv.RegisterOnShutdown(func() { close(ran) })
	s.stop()
	must.Do(t, <-s.serve(graceful.Options{}, asHTTP(srv)).done)
	<-ran
}
