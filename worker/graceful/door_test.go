package graceful_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/load"
)

// onlySYN makes the master's socket drop all but the first packet of each handshake, so that a client takes itself for
// connected while the kernel still waits for the client's ACK, as it does for a round trip when a client is far away.
// The function that it returns lets the rest through; the client's kernel sends it again some 200 ms after the first
// time.
func (m *master) onlySYN() (letThrough func()) {
	m.t.Helper()
	const flags, syn = 13, 0x02 // tcp(7): the byte with the flags
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	fd := int(m.sockets[0].Fd())
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if errors.Is(err, unix.EPERM) {
		m.t.Skip("a filter of a TCP socket needs CAP_NET_ADMIN here")
	}
	must(m.t, err)
	return func() { must(m.t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)) }
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
			must(t, c.Close())
		}
	}
	p.wait(prompt, 0)
}

func TestStopTakesWhatIsStillBeingConnected(t *testing.T) {
	m, p := web(t)
	letThrough := m.onlySYN()
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
	m.onlySYN()
	dial(t, m.addr)
	p.signal(syscall.SIGTERM)
	if !p.running(2 * time.Second) {
		t.Error("the worker did not wait until the kernel had sent its part of the handshake again")
	}
	p.wait(prompt, 0)
}

func TestBlockingSocketIsLeftToTheOthers(t *testing.T) {
	m, p := web(t)
	p.idle()                                                    // its accept(2) is over: a blocking one would wait
	must(t, syscall.SetNonblock(int(m.sockets[0].Fd()), false)) // as another worker that has the socket may do
	p.signal(syscall.SIGTERM)
	p.wait(prompt, 0)
}
