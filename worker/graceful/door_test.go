package graceful_test

import (
	"bufio"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

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

func TestStopTakesWhatIsStillBeingConnected(t *testing.T) {
	m, p := web(t)
	letThrough := unit.OnlySYN(t, int(m.sockets[0].Fd()))
	c := dial(t, m.addr)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: test\r\n\r\n")
	p.signal(syscall.SIGTERM)
	time.Sleep(100 * time.Millisecond) // the worker is stopping
	letThrough()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != 200 || !answer.Close {
		t.Errorf("%v, %v", answer, err)
	}
	p.wait(prompt, 0)
}

func TestHandshakeThatNeverEndsDoesNotKeepAWorker(t *testing.T) {
	m, p := web(t)
	unit.OnlySYN(t, int(m.sockets[0].Fd()))
	dial(t, m.addr)
	p.signal(syscall.SIGTERM)
	if !p.running(2 * time.Second) {
		t.Error("the worker did not wait until the kernel had sent its part of the handshake again")
	}
	p.wait(prompt, 0)
}

func TestBlockingSocketIsLeftToTheOthers(t *testing.T) {
	m, p := web(t)
	p.idle()                                                       // its accept(2) is over: a blocking one would wait
	must.Do(t, syscall.SetNonblock(int(m.sockets[0].Fd()), false)) // as another worker that has the socket may do
	p.signal(syscall.SIGTERM)
	p.wait(prompt, 0)
}
