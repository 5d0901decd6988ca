package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// looks calls f where nothing else happens: in the loop.
func (s *stage) looks(f func(web *runner, table *socket.Table)) {
	s.Helper()
	_, err := askNow(s.Context(), s.super.mailbox, func() (struct{}, error) {
		f(s.super.programs["web"], s.super.table)
		return struct{}{}, nil
	})
	must.Do(s, err)
}

// all is the status of all.
func (s *stage) all() *Status {
	s.Helper()
	st := must.Get(s.super.Status(s.Context()))(s)
	return st
}

// status is that of web.
func (s *stage) status() ProgramStatus { return s.all().Programs[0] }

// client is an end of a connection from outside: plain descriptors, which do not hold up the bubble's clock.
type client struct {
	testing.TB
	fd int
}

// begin begins to connect to web.
func (s *stage) begin() *client {
	s.Helper()
	fd, err := -1, error(nil)
	s.looks(func(web *runner, table *socket.Table) { fd, err = dial(table.FDs(web.listeners[0].Key())[0]) })
	must.Do(s, err)
	c := &client{s.T, fd}
	s.Cleanup(c.close)
	return c
}

// dial begins to connect to where a socket listens.
func dial(listening int) (fd int, err error) {
	at, err := unix.Getsockname(listening)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, err
	}
	if err = unix.Connect(fd, at); err == unix.EINPROGRESS {
		err = nil
	}
	return fd, err
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

// accept accepts a connection from the sockets of a generation, in place of a worker; nil: none waits there.
func (s *stage) accept(generation int) *client {
	s.Helper()
	for listening := range s.sockets(generation) {
		if !queued(listening) {
			continue
		}
		fd, _, err := unix.Accept4(listening, unix.SOCK_CLOEXEC)
		must.Do(s, err)
		s.Cleanup(func() { unix.Close(fd) })
		return &client{s.T, fd}
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
			must.Do(s, err)
			unix.Close(fd)
			return number
		}
	}
	s.Fatal("no generation has got the connection")
	return 0
}

func (c *client) hears() {
	if _, err := unix.Read(c.fd, make([]byte, 100)); err != nil && err != unix.EAGAIN {
		c.Fatal(err)
	}
}

// kernelTime lets so many milliseconds pass for the kernel, whose clock is not the bubble's.
func kernelTime(ms int) { unix.Poll(nil, ms) }

// pass lets time pass in the bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// datagram sends a datagram to the first generation.
func (s *stage) datagram() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for to := range s.sockets(1) {
		if at, err := unix.Getsockname(to); err != nil {
			return err
		} else if err := unix.Sendto(fd, []byte("question"), 0, at); err != nil {
			return err
		}
	}
	return nil
}

// unit gives the supervisor a socket of a socket unit for web, without reuse_port.
func (s *stage) unit() socket.Address {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 10))
	}
	i, examined := inherit.Examine(fd, "http")
	must.Do(s, errors.Join(err, examined))
	s.super.table.Offer([]inherit.Socket{i})
	return addr(i.Address)
}

// blind takes every descriptor from this process that it does not have yet, so the kernel cannot be asked; it returns
// what gives them back.
func (s *stage) blind() (sighted func()) {
	s.launcher.systemd.unchecked = true
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	must.Do(s, errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max})))
	sighted = func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) } //nolint:errcheck // it was so before
	s.Cleanup(sighted)
	return sighted
}

// settles lets both clocks pass until the kernel shows that keep-alive connections are idle.
func (s *stage) settles() {
	for range 2 {
		kernelTime(120)
		pass(time.Second)
	}
}
