package systemd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// retryAfter is how long to wait if the kernel does not say when there is room: memory, or too many descriptors in
// flight (unix(7), ETOOMANYREFS).
const retryAfter = 10 * time.Millisecond

// assignment is a message that may wait.
type assignment struct{ key, value string }

// sender is the only user of its socket.
type sender struct {
	address unix.Sockaddr
	file    *os.File
	raw     syscall.RawConn
	failed  func(error)

	mu      sync.Mutex
	waiting []assignment // at most one of each key
	refused bool         // a caller got ErrBusy and has not been told to try again
	pause   bool         // … and the kernel does not say when
	closed  bool

	writable chan struct{} // capacity 1: see Notify.Writable
	wake     chan struct{} // capacity 1: something waits
	stop     chan struct{} // closed by close
	stopped  chan struct{} // closed when the goroutine has ended
}

// openSender returns a sender and ErrUnreachable (wrapped) if nothing listens: systemd may do so later.
func openSender(address string, failed func(error)) (*sender, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// Only a connected socket becomes writable when the other end has read. x/sys takes a leading @ as abstract.
	to := &unix.SockaddrUnix{Name: address}
	unreachable := unix.Connect(fd, to)
	if failed == nil {
		failed = func(error) {}
	}
	s := &sender{address: to, file: os.NewFile(uintptr(fd), address), failed: failed, writable: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, err
	}
	go s.run()
	if unreachable != nil {
		return s, fmt.Errorf("%w: %w", ErrUnreachable, unreachable)
	}
	return s, nil
}

// send sends m at once if there is room and nothing waits, and queues it otherwise.
func (s *sender) send(m assignment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.closed {
		if err := s.transmitNow(m.text()); !noRoom(err) {
			return err
		}
	}
	if i := slices.IndexFunc(s.waiting, func(w assignment) bool { return w.key == m.key }); i >= 0 {
		s.waiting[i] = m
		return nil
	}
	s.waiting = append(s.waiting, m)
	signal(s.wake)
	return nil
}

func (m assignment) text() string { return m.key + "=" + m.value }

// sendNow sends a message or returns ErrBusy.
func (s *sender) sendNow(text string, fds ...int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.transmitNow(text, fds...)
	if !noRoom(err) {
		return err
	}
	s.refused, s.pause = true, !errors.Is(err, unix.EAGAIN)
	signal(s.wake)
	return ErrBusy
}

// signal puts a value into a channel of capacity 1, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// transmitNow hands a message to the kernel. s.mu is held.
func (s *sender) transmitNow(text string, fds ...int) (err error) {
	if s.closed {
		return errClosed
	}
	if closed := s.raw.Control(func(fd uintptr) { err = s.transmit(int(fd), text, fds) }); closed != nil {
		return closed
	}
	return explain(err)
}

// transmit is sendmsg(2). If the other end was made anew since the socket was connected, it connects again. s.mu is
// held.
func (s *sender) transmit(fd int, text string, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for connected := false; ; {
		_, err := unix.SendmsgN(fd, []byte(text), rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case (err == unix.ECONNREFUSED || err == unix.ENOTCONN) && !connected:
			if err := unix.Connect(fd, s.address); err != nil {
				return err
			}
			connected = true
		default:
			return err
		}
	}
}

// run sends what waits, and tells refused callers to try again, whenever the socket has room.
func (s *sender) run() {
	defer close(s.stopped)
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		for !s.drain() {
			select {
			case <-s.stop:
				return
			case <-time.After(retryAfter):
			}
		}
	}
}

// drain waits until systemd has taken everything that waits. It returns false if it must be called again a little
// later.
func (s *sender) drain() (done bool) {
	var failures []error
	closed := s.raw.Write(func(fd uintptr) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.waiting) > 0 {
			err := s.transmit(int(fd), s.waiting[0].text(), nil)
			if noRoom(err) {
				return err != unix.EAGAIN
			}
			if err != nil {
				failures = append(failures, explain(err))
			}
			s.waiting = slices.Delete(s.waiting, 0, 1)
		}
		switch {
		case s.pause:
			s.pause = false
			return true
		case s.refused && !hasRoom(fd):
			return false
		case s.refused:
			s.refused = false
			signal(s.writable)
		}
		done = true
		return true
	})
	for _, err := range failures {
		s.failed(err)
	}
	return done || closed != nil
}

// hasRoom reports whether the socket is writable, or has an error that a message would show.
func hasRoom(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	return n > 0 || err != nil
}

// noRoom reports whether trying again may help.
func noRoom(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) ||
		errors.Is(err, unix.ETOOMANYREFS)
}

func explain(err error) error {
	if err != nil {
		return fmt.Errorf("cannot notify systemd: %w", err)
	}
	return nil
}

// close ends the goroutine and closes the socket. It drops what still waits.
func (s *sender) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	err := s.file.SetWriteDeadline(time.Unix(1, 0)) // ends a wait for room
	<-s.stopped
	return errors.Join(err, s.file.Close())
}
