package graceful_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

// stop is a worker with the socket of a master, and its clients by their names. Its steps, separated by semicolons:
//
//	open a        a connects, and the worker accepts      term, int       the worker gets the signal
//	far a         a connects, and its handshake lasts     near            … and ends, with what a has sent
//	get a         a asks, and may ask again               runs 2s         it still runs after that
//	once a        a asks once                             ends 1          it ends with this status, and says why
//	last a        a asks, and is sent away                idle            no thread of the worker runs
//	slow a 1s     a asks, which takes so long, and the    stays a 200ms   a stays open for so long at least
//	              worker has it in hand                   closed a        the worker closes a
//	answered a    … and is answered, and sent away        blocking        the socket blocks
//	half a, rest a   a asks in two parts, and is answered  shut            another process ends it (shutdown(2))
type stop struct {
	*testing.T
	m       *master
	p       *proc
	clients map[string]*load.Wire
	answers map[string]<-chan error
	near    func()
}

var stopSteps = map[string]func(s *stop, client, more string){
	"open":     func(s *stop, c, _ string) { s.clients[c] = load.NewWire(s.p.accepted(s.m)) },
	"get":      func(s *stop, c, _ string) { s.get(c, true, true) },
	"once":     func(s *stop, c, _ string) { s.get(c, false, false) },
	"last":     func(s *stop, c, _ string) { s.get(c, true, false) },
	"slow":     func(s *stop, c, d string) { s.answers[c] = inFlight(s.T, s.m.addr, duration(d)) },
	"answered": func(s *stop, c, _ string) { must.Do(s, <-s.answers[c]) },
	"half":     func(s *stop, c, _ string) { fmt.Fprint(s.clients[c], "GET / HTTP/1.1\r\n") },
	"rest":     func(s *stop, c, _ string) { fmt.Fprint(s.clients[c], "Host: test\r\n\r\n"); s.sentAway(c) },
	"stays":    (*stop).stays,
	"closed":   func(s *stop, c, _ string) { closed(s, s.clients[c].Conn) },
	"far":      (*stop).far,
	"near":     func(s *stop, _, _ string) { s.near() },
	"term":     func(s *stop, _, _ string) { s.p.signal(syscall.SIGTERM) },
	"int":      func(s *stop, _, _ string) { s.p.signal(syscall.SIGINT) },
	"idle":     func(s *stop, _, _ string) { s.p.idle() },
	"blocking": func(s *stop, _, _ string) { must.Do(s, syscall.SetNonblock(int(s.m.sockets[0].Fd()), false)) },
	"shut":     func(s *stop, _, _ string) { must.Do(s, syscall.Shutdown(int(s.m.sockets[0].Fd()), syscall.SHUT_RD)) },
	"runs": func(s *stop, d, _ string) {
		if !s.p.running(duration(d)) {
			s.Fatal("it has ended")
		}
	},
	"ends": func(s *stop, code, _ string) {
		if said := s.p.wait(prompt, int(code[0]-'0')); (said != "") != (code != "0") {
			s.Errorf("it says %q", said)
		}
	},
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// get asks, and compares whether the client may ask again.
func (s *stop) get(c string, keepAlive, again bool) {
	s.Helper()
	if s.clients[c] == nil {
		s.clients[c] = load.NewWire(dial(s, s.m.addr))
	}
	if is, err := request(s.clients[c], "/", keepAlive); err != nil || is != again {
		s.Errorf("%s may ask again: %v, %v", c, is, err)
	}
}

// sentAway reads an answer with Connection: close.
func (s *stop) sentAway(c string) {
	answer, err := http.ReadResponse(bufio.NewReader(s.clients[c]), nil)
	if err != nil || answer.StatusCode != 200 || !answer.Close {
		s.Errorf("%+v, %v", answer, err)
	}
}

func (s *stop) stays(c, d string) {
	must.Do(s, s.clients[c].SetReadDeadline(time.Now().Add(duration(d))))
	if _, err := s.clients[c].Conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		s.Errorf("%s sees %v", c, err)
	}
	must.Do(s, s.clients[c].SetReadDeadline(time.Now().Add(prompt)))
}

func (s *stop) far(c, _ string) {
	letThrough := unit.OnlySYN(s, int(s.m.sockets[0].Fd()))
	s.clients[c] = load.NewWire(dial(s, s.m.addr))
	fmt.Fprint(s.clients[c], "GET / HTTP/1.1\r\nHost: test\r\n\r\n")
	s.near = func() { letThrough(); s.sentAway(c) }
}

func TestStop(t *testing.T) {
	for _, c := range []struct{ name, option, story string }{
		{"requests in flight are answered", "", "slow a 1s; term; answered a; ends 0"},
		{"an idle connection may ask once more", "", "get a; term; runs 300ms; last a; ends 0"},
		{"an accepted connection may ask", "", "open a; term; runs 100ms; last a; ends 0"},
		{"a request that is half sent is answered", "LINGER=100ms", "open a; half a; term; runs 400ms; rest a; ends 0"},
		{"an idle connection is closed", "LINGER=300ms", "open a; term; stays a 250ms; closed a; ends 0"},
		{"a client that comes back is waited for", "LINGER=10ms",
			"get a; runs 2s; get a; runs 2s; term; runs 200ms; last a; ends 0"},
		{"what is still being connected is taken", "", "far a; term; runs 100ms; near; ends 0"},
		{"a handshake that never ends is waited for, but not long", "", "far a; term; runs 2s; ends 0"},
		{"the second TERM means now", "", "slow a 1m; term; runs 400ms; term; ends 1"},
		{"two signals at once are one", "", "slow a 500ms; term; int; answered a; ends 0"},
		{"a socket that is shut down costs no request", "", "open a; half a; slow b 1s; shut; answered b; rest a; ends 1"},
		{"a blocking socket is left to the others", "", "idle; blocking; term; ends 0"},
		{"one in which accept waits delays it to the deadline", "DEADLINE=500ms", "blocking; once a; term; ends 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, p := web(t, "TEST_"+cmp.Or(c.option, "NO=option"))
			s := &stop{T: t, m: m, p: p, clients: map[string]*load.Wire{}, answers: map[string]<-chan error{}}
			for step := range strings.SplitSeq(c.story, "; ") {
				words := append(strings.Fields(step), "", "")
				if stopSteps[words[0]](s, words[1], words[2]); t.Failed() {
					t.Fatal("at ", step)
				}
			}
		})
	}
}
