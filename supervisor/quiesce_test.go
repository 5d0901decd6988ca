package supervisor

import (
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/worker/life"
)

// steeredProgram returns a program whose generations have lanes.
func steeredProgram(t *testing.T) *config.Program {
	c := testProgram(t, "web")
	c.Listen[0].Handover = socket.Steer
	c.Drain.Timeout, c.Drain.Silence = 10*time.Second, 100*time.Millisecond
	return c
}

// looks calls f where nothing else happens: in the loop.
func (s *stage) looks(f func(web *runner, table *socket.Table)) {
	s.Helper()
	_, err := askNow(s.Context(), s.super.mailbox, func() (struct{}, error) {
		f(s.super.programs["web"], s.super.table)
		return struct{}{}, nil
	})
	if err != nil {
		s.Fatal(err)
	}
}

// all is the status of all.
func (s *stage) all() *Status {
	s.Helper()
	st, err := s.super.Status(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return st
}

// status is that of web.
func (s *stage) status() ProgramStatus { return s.all().Programs[0] }

// client is a connection from outside: plain descriptors, which do not hold up the bubble's clock.
type client struct {
	testing.TB
	fd int
}

// begin begins to connect to web.
func (s *stage) begin() *client {
	s.Helper()
	var at unix.Sockaddr
	s.looks(func(web *runner, table *socket.Table) {
		at, _ = unix.Getsockname(table.FDs(web.listeners[0].Key())[0])
	})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		s.Fatal(err)
	}
	c := &client{s.T, fd}
	s.Cleanup(c.close)
	if err := unix.Connect(fd, at); err != nil && err != unix.EINPROGRESS {
		s.Fatal(err)
	}
	return c
}

func (c *client) close() {
	unix.Close(c.fd)
	c.fd = -1
}

// connected reports whether the connection is open, now or within so many milliseconds of the kernel's time.
func (c *client) connected(within int) bool {
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
	n, _ := unix.Poll(fds, within)
	return n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) == 0
}

// connect connects to web.
func (s *stage) connect() *client {
	s.Helper()
	c := s.begin()
	if !c.connected(500) {
		s.Fatal("nothing answers a new connection")
	}
	return c
}

func (c *client) sends(text string) {
	if _, err := unix.Write(c.fd, []byte(text)); err != nil {
		c.Fatal(err)
	}
}

// accepted is a connection that the test has accepted in place of a worker.
type accepted struct {
	testing.TB
	fd int
}

// sockets lists the listening sockets of a generation, or of all.
func (s *stage) sockets(generation int) map[int]int {
	s.Helper()
	of := map[int]int{}
	s.looks(func(web *runner, table *socket.Table) {
		for number, g := range web.generations {
			for slot := range web.core.Config.Workers {
				if generation == 0 || number == generation {
					of[g.lanes[0].FD(slot)] = number
				}
			}
		}
	})
	return of
}

// accept accepts a connection from the sockets of a generation; nil: none waits there.
func (s *stage) accept(generation int) *accepted {
	s.Helper()
	for listening := range s.sockets(generation) {
		if !queued(listening) {
			continue
		}
		fd, _, err := unix.Accept4(listening, unix.SOCK_CLOEXEC)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { unix.Close(fd) })
		return &accepted{s.T, fd}
	}
	return nil
}

// reached returns the generation that a new connection reaches.
func (s *stage) reached() int {
	s.Helper()
	c := s.connect()
	defer c.close()
	for listening, number := range s.sockets(0) {
		if queued(listening) {
			fd, _, err := unix.Accept(listening)
			if err != nil {
				s.Fatal(err)
			}
			unix.Close(fd)
			return number
		}
	}
	s.Fatal("no generation has got the connection")
	return 0
}

func (a *accepted) answers() {
	if _, err := unix.Read(a.fd, make([]byte, 100)); err != nil {
		a.Fatal(err)
	}
	if _, err := unix.Write(a.fd, []byte("answer")); err != nil {
		a.Fatal(err)
	}
}

// kernelTime lets so many milliseconds pass for the kernel, whose clock is not the bubble's.
func kernelTime(ms int) { unix.Poll(nil, ms) }

// pass lets time pass in the bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *stage) told(worker int) bool {
	s.Helper()
	return slices.Contains(s.workers()[worker-1].signals(), syscall.SIGTERM)
}

// replaced reloads web and makes its new worker ready.
func (s *stage) replaced() {
	s.Helper()
	n := len(s.workers())
	s.hup()
	s.count(n + 1)
	s.workers()[n].ready()
}

func TestOldWorkerIsToldWhenItHasNothingInHand(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		queued, asked := s.connect(), s.connect()
		asked.sends("question")
		s.replaced()
		s.connect()
		if s.accept(2) == nil {
			t.Fatal("a new connection does not reach the new generation")
		}
		pass(time.Second)
		if s.told(1) {
			t.Fatal("told while two connections wait to be accepted")
		}
		first, second := s.accept(1), s.accept(1)
		queued.sends("question")
		first.answers()
		pass(time.Second)
		if s.told(1) {
			t.Fatal("told while a request is not read")
		}
		if st := s.status().Generations[1]; st.InHand == nil || st.InHand.Unread+st.InHand.Answering == 0 {
			t.Errorf("the status shows %+v in hand", st.InHand)
		}
		second.answers()
		for range 10 {
			unix.Read(asked.fd, make([]byte, 100))
			unix.Read(queued.fd, make([]byte, 100))
			kernelTime(100)
			pass(time.Second / 2)
		}
		if !s.told(1) {
			t.Error("not told although nothing is in hand")
		}
	}, steeredProgram(t))
}

func TestOldWorkerIsToldAtDrainTimeoutIfTheKernelCannotBeAsked(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.count(2)
		s.launcher.systemd.unchecked = true
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		none := unix.Rlimit{Cur: 3, Max: limit.Max} // no descriptor for a netlink socket
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
			t.Fatal(err)
		}
		s.workers()[1].ready()
		pass(10*time.Second - time.Millisecond)
		early := s.told(1)
		pass(time.Millisecond)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if early || !s.told(1) {
			t.Errorf("told before drain.timeout: %t, at it: %t", early, s.told(1))
		}
		if n := s.logged(blindText); n != 1 {
			t.Errorf("%d lines say why", n)
		}
	}, steeredProgram(t))
}

// TestWorkerThatDrainsItselfIsToldWhenItHasReceivedItsDatagrams: it cannot see which are about to reach it.
func TestWorkerThatDrainsItselfIsToldWhenItHasReceivedItsDatagrams(t *testing.T) {
	for name, saysSo := range map[string]func(*fakeWorker, func()){
		"with its readiness":   func(w *fakeWorker, replaced func()) { w.events <- life.DrainsItself{}; replaced() },
		"when it is to finish": func(w *fakeWorker, replaced func()) { replaced(); w.events <- life.DrainsItself{} },
	} {
		t.Run(name, func(t *testing.T) {
			web := steeredProgram(t)
			web.Listen[0].Address = addr("udp:127.0.0.1:0")
			onStage(t, func(s *stage) {
				w := s.workers()[0]
				w.ready()
				fds := slices.Collect(maps.Keys(s.sockets(1)))
				s.datagram(fds[0])
				saysSo(w, s.replaced)
				pass(time.Second)
				if s.told(1) {
					t.Error("told while a datagram waits for it")
				}
				if _, err := unix.Read(fds[0], make([]byte, 10)); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if !s.told(1) {
					t.Error("not told although all is received")
				}
			}, web)
		})
	}
}

// datagram sends a datagram to where a socket is bound.
func (s *stage) datagram(to int) {
	s.Helper()
	at, err := unix.Getsockname(to)
	if err != nil {
		s.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, []byte("question"), 0, at); err != nil {
		s.Fatal(err)
	}
}

func TestSocketOfASocketUnitWithoutReusePortIsShared(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 10))
	}
	if err != nil {
		t.Fatal(err)
	}
	i, err := inherit.Examine(fd, "http")
	if err != nil {
		t.Fatal(err)
	}
	web := steeredProgram(t)
	web.Listen[0].Address = addr(i.Address)
	onChangedStage(t, func(s *stage) { s.super.table.Offer([]inherit.Socket{i}) }, func(s *stage) {
		s.workers()[0].ready()
		if n := s.logged("the generations share a listener, so the old one accepts until it is told to stop"); n != 1 {
			t.Errorf("%d lines say that the listener is shared", n)
		}
		if l := s.status().Listeners[0]; l.Handover != "share" || l.Why == "" || len(l.Lanes) > 0 {
			t.Errorf("the status shows %+v", l)
		}
		s.replaced()
		if !s.told(1) {
			t.Error("the old worker is not told")
		}
	}, web)
}

// kept is a connection whose request is answered, and that its client keeps open.
func (s *stage) kept(generation int) (*client, *accepted) {
	s.Helper()
	c := s.connect()
	c.sends("question")
	a := s.accept(generation)
	if a == nil {
		s.Fatalf("generation %d has not got the connection", generation)
	}
	a.answers()
	unix.Read(c.fd, make([]byte, 100))
	return c, a
}

// settles lets both clocks pass until the kernel shows that keep-alive connections are idle.
func (s *stage) settles() {
	for range 2 {
		kernelTime(120)
		pass(time.Second)
	}
}

// TestAnswerInPartsIsNotCut has an answer whose parts are less than drain.silence apart, at a worker that ends on TERM.
func TestAnswerInPartsIsNotCut(t *testing.T) {
	web := steeredProgram(t)
	// Silence is of the kernel's time, which nobody can set: long enough for a busy machine.
	web.Drain.Silence, web.Drain.Timeout = 3*time.Second, time.Hour
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		c, a := s.kept(1)
		s.replaced()
		for range 8 {
			kernelTime(100)
			pass(time.Second)
			if s.told(1) {
				t.Fatal("told in the middle of an answer")
			}
			unix.Write(a.fd, []byte("part"))
			unix.Read(c.fd, make([]byte, 100))
		}
		pass(time.Second)
		if st := s.status().Generations[1]; st.InHand == nil || st.InHand.Active != 1 ||
			st.InHand.Within != web.Drain.Silence {
			t.Errorf("the status shows %+v in hand", st.InHand)
		}
		for range 600 { // of 100 ms
			if kernelTime(100); s.told(1) {
				return
			}
			pass(time.Second)
		}
		t.Error("not told when the connection was silent")
	}, web)
}
