package attack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// unfinished is a client whose handshake the server has not seen the end of; ask ends the handshake, and asks.
type unfinished struct {
	name   string
	config string
	begin  func(t *testing.T, address string) (ask func() client)
}

const request = "GET / HTTP/1.0\r\n\r\n"

// lateClients are the kinds: one whose first data are deferred, and one that lost the server's answer to its SYN.
var lateClients = []unfinished{
	{"deferred", deferring("30s"), connectsAhead},
	{"lost packets", lab.Web, losesAnswers},
}

// deferring is Web whose listener defers connections without data.
func deferring(time string) string {
	return lab.Web[:strings.Index(lab.Web, "[program.web.ready]")] + "socket.defer_accept = \"" + time + "\"\n" + ready
}

const ready = "[program.web.ready]\nmethod = \"notify\"\n"

// connectsAhead connects, and asks later.
func connectsAhead(t *testing.T, address string) func() client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	lab.Must(t, err)
	return func() client {
		_, err := io.WriteString(c, request)
		return client{c, err}
	}
}

// losesAnswers connects, and drops all that the server sends, until it asks.
func losesAnswers(t *testing.T, address string) func() client {
	t.Helper()
	var raw syscall.RawConn
	began := make(chan error, 1)
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		raw = c
		drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
		var err error
		if e := c.Control(func(fd uintptr) {
			all := &unix.SockFprog{Len: 1, Filter: &drop[0]}
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, all)
		}); e != nil {
			err = e
		}
		began <- err
		return err
	}}
	connected := make(chan client, 1)
	go func() {
		c, err := dialer.DialContext(context.Background(), "tcp", address)
		connected <- client{c, err}
	}()
	if err := <-began; errors.Is(err, unix.EPERM) {
		t.Skip("a filter needs CAP_NET_ADMIN on this kernel")
	} else if err != nil {
		t.Fatal(err)
	}
	return func() client {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
		c := <-connected
		if c.err == nil {
			_, c.err = io.WriteString(c, request)
		}
		return c
	}
}

// client has connected and asked, or could not.
type client struct {
	net.Conn
	err error
}

// end says what becomes of a client.
func end(c client) string {
	var answer []byte
	err := c.err
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(lab.AnswerTimeout))
		answer, err = io.ReadAll(c)
	}
	switch {
	case strings.Contains(string(answer), " 200 OK\r\n"):
		return "answered"
	case errors.Is(err, unix.ECONNRESET):
		return "reset"
	}
	return fmt.Sprintf("%q, %v", answer, err)
}

// ask connects so many clients that ask, and returns a function that counts what has become of them.
func ask(t *testing.T, address string, n int) func() map[string]int {
	t.Helper()
	ends := make(chan string, n)
	for range n {
		c, err := net.Dial("tcp", address)
		lab.Must(t, err)
		_, err = io.WriteString(c, request)
		go func() { ends <- end(client{c, err}) }()
	}
	return func() map[string]int {
		all := map[string]int{}
		for range n {
			all[<-ends]++
		}
		return all
	}
}

// beginsLate begins the handshake, and returns when the server has it.
func (u unfinished) beginsLate(t *testing.T, address string) (ask func() client) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	local := fmt.Sprintf(" %08X:%04X ", binary.NativeEndian.Uint32(at.Addr().AsSlice()), at.Port())
	ask = u.begin(t, address)
	for end := time.Now().Add(lab.Patience); !underWay(local); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no handshake is under way")
		}
	}
	return ask
}

// underWay reports whether /proc/net/tcp shows a handshake at a local address (SYN_RECV).
func underWay(local string) bool {
	for line := range strings.Lines(lab.Text("/proc/thread-self/net/tcp")) {
		if _, rest, is := strings.Cut(line, local); is && strings.HasPrefix(rest[len("00000000:0000 "):], "03 ") {
			return true
		}
	}
	return false
}

// eachLate runs a test with each kind of late client.
func eachLate(t *testing.T, f func(t *testing.T, u unfinished)) {
	t.Parallel()
	for _, u := range lateClients {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			f(t, u)
		})
	}
}

// killedAfterReload replaces generation 1, whose worker is killed.
func killedAfterReload(m *lab.Supervisord) {
	m.CtlOK("reload")
	_ = syscall.Kill(m.WorkerPID(1), syscall.SIGKILL)
	m.Gone(1)
}

func wants(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestHandshakeThatEndsWhenItsGenerationIsGoneIsReset(t *testing.T) {
	eachLate(t, func(t *testing.T, u unfinished) {
		for what, meanwhile := range map[string]func(m *lab.Supervisord){
			"its worker was killed": killedAfterReload,
			"drain.timeout has passed": func(m *lab.Supervisord) {
				m.CtlOK("reload")
				m.Gone(1)
			},
			// the socket listens again, and its queue is still watched
			"a process has shut its socket down": func(m *lab.Supervisord) {
				old := lab.Steal(t, m.WorkerPID(1), 3)
				killedAfterReload(m)
				lab.Must(t, unix.Shutdown(old, unix.SHUT_RDWR))
				m.Await(lab.Contains("a process has shut down the listening socket"))
			},
		} {
			m := lab.Start(t, u.config+"[program.web.drain]\ntimeout = \"1s\"\n")
			m.Serves(1)
			late := u.beginsLate(t, m.Address())
			meanwhile(m)
			wants(t, what+": a late client", end(late()), "reset")
			m.Finish()
		}
	})
}

// opens is a program that opens its port and defers connections there, in place of supervisord.
const opens = `
[program.web]
command = ["/usr/bin/python3", "-S", "-c", '''
import os, socket
s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 10)
s.bind(('127.0.0.1', 3000)); s.listen(16)
while True:
    c, _ = s.accept(); c.recv(4096)
    c.sendall(b'HTTP/1.0 200 OK\r\n\r\ngeneration=%s ' % os.environ['SUPERVISORD_GENERATION'].encode()); c.close()
''']
listen = [{ name = "http", address = "127.0.0.1:0", binds = "127.0.0.1:3000" }]
bind = "on"
ready = { timeout = "20s" }
`

// TestDeferredClientIsAnsweredByTheGenerationToWhichItHasConnected lets clients ask later than other handshakes last.
func TestDeferredClientIsAnsweredByTheGenerationToWhichItHasConnected(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"by supervisord": deferring("10s"), "by the program": opens} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, config)
			m.Serves(1)
			late := unfinished{begin: connectsAhead}.beginsLate(t, m.Address())
			m.CtlOK("reload")
			time.Sleep(6 * time.Second) // handshakes that are not deferred are given up after three
			c := late()
			_ = c.SetDeadline(time.Now().Add(lab.AnswerTimeout))
			if answer, err := io.ReadAll(c); !strings.Contains(string(answer), "generation=1 ") {
				t.Errorf("%q, %v", answer, err)
			}
			m.Gone(1)
			m.Finish()
		})
	}
}

// TestClientsOfARestartAreAnswered stops a supervisord under systemd, once during a canary: the next one answers
// clients that connect while nothing runs, and only what is left in the lane of a generation that is gone is reset.
func TestClientsOfARestartAreAnswered(t *testing.T) {
	eachLate(t, func(t *testing.T, u unfinished) {
		const clients = 20
		sd, m := underSystemd(t, u.config)
		address := m.Address()
		left := u.beginsLate(t, address)
		killedAfterReload(m)
		if u.config == lab.Web { // otherwise the canary drains until drain.timeout: it might be the deferred client's
			m.CtlOK("reload", "--canary", "50%", "--hold")
		}
		m.Signal(syscall.SIGTERM)
		m.Wait()
		old := left()
		late := u.beginsLate(t, address)
		ends := ask(t, address, clients)
		sd.Start()
		wants(t, "clients that connected meanwhile", fmt.Sprint(ends()), fmt.Sprint(map[string]int{"answered": clients}))
		wants(t, "one whose handshake began meanwhile", end(late()), "answered")
		wants(t, "the client of the old lane", end(old), "reset")
		m.Finish()
	})
}

func TestNoClientHangsWhenBothGenerationsDieAndANewOneFollows(t *testing.T) {
	t.Parallel()
	const clients = 100 // so many that half of them is never none: those of one lane are answered
	m := lab.Start(t, lab.Web+"[program.web.compat]\ngeneration = \"new\"\n")
	m.Serves(1)
	m.CtlOK("reload", "--canary", "50%", "--hold")
	pids := []int{m.WorkerPID(1), m.WorkerPID(2)}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	ends := ask(t, m.Address(), clients)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if all := ends(); all["answered"]+all["reset"] != clients || all["answered"] == 0 {
		t.Errorf("of %d clients: %v", clients, all)
	}
}
