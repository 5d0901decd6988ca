package clients

import (
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// newConn returns a connection that has been in a state for this many seconds.
func newConn(l *Gate, name string, rank int, state http.ConnState, age int) *Conn {
	a, _ := net.Pipe()
	return &Conn{Conn: a, Identity: Identity{name, rank}, listener: l, state: state, since: time.Unix(int64(1000-age), 0)}
}

func TestLeastImportantConnectionMakesRoom(t *testing.T) {
	type conn struct {
		name  string
		rank  int
		state http.ConnState
		age   int
	}
	const idle, fresh, active = http.StateIdle, http.StateNew, http.StateActive
	for _, c := range []struct {
		what   string
		there  []conn
		comes  conn
		victim int // -1: the new connection is rejected
	}{
		{"the oldest idle one of the same client",
			[]conn{{"a", 0, active, 9}, {"a", 0, idle, 1}, {"a", 0, idle, 2}, {"a", 0, fresh, 9}}, conn{name: "a"}, 2},
		{"one without a request before one that is answered",
			[]conn{{"a", 0, active, 9}, {"a", 0, fresh, 1}, {"a", 0, fresh, 2}}, conn{name: "a"}, 2},
		{"the oldest, if all are answered", []conn{{"a", 0, active, 1}, {"a", 0, active, 2}}, conn{name: "a"}, 1},
		{"one of the client with the most", []conn{{"b", 0, idle, 9}, {"a", 0, active, 1}, {"a", 0, active, 2}},
			conn{name: "b"}, 0},
		{"one of another client that has more",
			[]conn{{"b", 0, active, 9}, {"a", 0, active, 1}, {"a", 0, active, 2}, {"a", 0, active, 3}}, conn{name: "b"}, 3},
		{"none, if no client has more", []conn{{"a", 0, active, 9}, {"b", 0, active, 9}}, conn{name: "c"}, -1},
		{"an idle one of a client that has no more", []conn{{"a", 0, active, 9}, {"b", 0, idle, 1}}, conn{name: "c"}, 1},
		{"one of a lower rank first", []conn{{"a", 1, idle, 9}, {"b", 0, active, 1}}, conn{name: "a", rank: 1}, 1},
		{"none of a higher rank", []conn{{"a", 1, idle, 9}}, conn{name: "b"}, -1},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := &Gate{Max: len(c.there)}
			var there []*Conn
			for _, x := range c.there {
				in, victim := l.enter(newConn(l, x.name, x.rank, x.state, x.age))
				if in == nil || victim != nil {
					t.Fatal("there is room for all")
				}
				there = append(there, in)
			}
			in, victim := l.enter(newConn(l, c.comes.name, c.comes.rank, fresh, 0))
			if c.victim < 0 {
				if in != nil || victim != nil {
					t.Errorf("it is accepted instead of %+v", victim)
				}
				return
			}
			if in == nil || victim != there[c.victim] {
				t.Errorf("the victim is %+v, want %+v", victim, there[c.victim])
			}
			if victim.Close(); len(l.conns) != l.Max || sum(l.count) != l.Max {
				t.Errorf("then %d connections are counted, by client %v", len(l.conns), l.count)
			}
		})
	}
}

func sum(count map[any]int) (n int) {
	for _, k := range count {
		n += k
	}
	return n
}

// TestServerAnswersBehindManyConnections checks that net/http reports the states that the listener relies on.
func TestServerAnswersBehindManyConnections(t *testing.T) {
	raw := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	const most = 4
	l := &Gate{Listener: raw, Max: most, Full: "full",
		Identify: func(c net.Conn) (Identity, error) { return Identity{Name: "one"}, nil }}
	server := &http.Server{ConnState: l.ConnState,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "well") })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var clients []*http.Client
	for range 3 * most {
		c := &http.Client{Transport: &http.Transport{}}
		clients = append(clients, c)
		answer := must.Get(c.Get("http://" + raw.Addr().String()))(t)
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close() // the connection stays open
	}
	for _, c := range clients {
		c.CloseIdleConnections()
	}
	server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// slow is a server behind a Gate whose answers end when the test says so.
type slow struct {
	*testing.T
	*Gate
	server http.Server
	asked  chan string   // the paths of the requests, one after the other
	answer chan struct{} // closed: every answer ends, but that to /lasts
	served chan error
}

func newSlow(t *testing.T) *slow {
	raw := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	s := &slow{T: t, asked: make(chan string, 4), answer: make(chan struct{}), served: make(chan error, 1), Gate: &Gate{
		Listener: raw, Max: 8, Identify: func(net.Conn) (Identity, error) { return Identity{}, nil }}}
	s.server.ConnState, s.server.ConnContext, s.server.Handler = s.ConnState, ConnContext, s
	go func() { s.served <- s.server.Serve(s.Gate) }()
	return s
}

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	answer := s.answer
	if r.URL.Path == "/lasts" {
		Lasts(r.Context())
		answer = nil
	}
	s.asked <- r.URL.Path
	select {
	case <-answer:
	case <-r.Context().Done():
	}
}

// ask sends a request on a connection of its own.
func (s *slow) ask(path string) net.Conn {
	c := must.Get(net.Dial("tcp", s.Addr().String()))(s)
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	s.Cleanup(func() { c.Close() })
	return c
}

// answered fails unless the whole answer comes.
func (s *slow) answered(path string, c net.Conn) {
	s.Helper()
	if text, err := io.ReadAll(c); err != nil || len(text) == 0 {
		s.Errorf("%s got %q, %v", path, text, err)
	}
}

// TestFinishLetsEveryClientHaveItsAnswer: a client that supervisord has accepted gets its answer, another waits in the
// kernel, and an answer without an end holds up nobody.
func TestFinishLetsEveryClientHaveItsAnswer(t *testing.T) {
	s := newSlow(t)
	lasts := s.ask("/lasts")
	<-s.asked
	first := s.ask("/first")
	<-s.asked
	finished := make(chan struct{})
	go func() { s.Finish(t.Context()); close(finished) }()
	for parked := false; !parked; runtime.Gosched() {
		s.mu.Lock()
		parked = s.parked
		s.mu.Unlock()
	}
	later := s.ask("/later")
	select {
	case <-finished:
		t.Error("Finish does not wait for the answer to /first")
	case what := <-s.asked:
		t.Errorf("%s is asked though Finish was called", what)
	default:
	}
	close(s.answer)
	s.answered("/first", first)
	<-finished
	s.Open()
	if what := <-s.asked; what != "/later" {
		t.Errorf("%s is asked after Open, want /later", what)
	}
	s.answered("/later", later)
	s.Finish(t.Context())
	lasts.Close()
	s.server.Close() // also after Finish
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
