package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxWaiting bounds the messages that are put aside, and with them the descriptors that they hold: twice what the store of
// the service that comes with supervisord takes.
const maxWaiting = 8192

// retryAfter is how long to wait where the kernel does not say when there is room: memory, or too many descriptors in
// flight (unix(7), ETOOMANYREFS).
const retryAfter = 10 * time.Millisecond

// message is one datagram.
type message struct {
	payload []byte
	fds     []int      // the caller's until it waits, then duplicates of the queue's own
	state   string     // "": nothing may replace it
	sent    chan error // gets the outcome, if there is one (capacity 1)
	sending bool       // the goroutine has it in hand
	name    string     // of the descriptors that it stores or removes; "": it does neither
	by      int        // so many are stored, or, less than 0, removed
}

// queue sends messages in order. It is the only user of its socket.
type queue struct {
	address unix.Sockaddr
	file    *os.File
	raw     syscall.RawConn
	failed  func(error)

	mu      sync.Mutex // held while the kernel is given a message: Freeze holds it, and nothing is sent
	ledger  *ledger
	waiting []*message      // the first is the one that is being sent
	emptied []chan struct{} // closed when waiting is empty
	closed  bool

	wake    chan struct{} // capacity 1: there is something to do
	stop    chan struct{} // closed by close
	stopped chan struct{} // closed when the goroutine has ended
}

// openQueue returns a queue and ErrUnreachable (wrapped) if nobody answers: systemd may do so later.
func openQueue(address string, l *ledger, failed func(error)) (*queue, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// Only a connected socket becomes writable when the other end has read. x/sys takes a leading @ as abstract.
	to := &unix.SockaddrUnix{Name: address}
	unreachable := unix.Connect(fd, to)
	q := &queue{address: to, file: os.NewFile(uintptr(fd), address), failed: failed, ledger: l,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	if q.raw, err = q.file.SyscallConn(); err != nil {
		q.file.Close()
		return nil, err
	}
	go q.run()
	if unreachable != nil {
		return q, fmt.Errorf("%w: %w", ErrUnreachable, unreachable)
	}
	return q, nil
}

// store sends descriptors to systemd's store.
func (q *queue) store(name string, fds []int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	more, err := q.ledger.room(name, len(fds))
	if err != nil {
		return err
	}
	for some := range slices.Chunk(fds, maxRights) {
		payload, err := join([]string{"FDSTORE=1", "FDNAME=" + name, "FDPOLL=0"})
		if err != nil {
			return err
		}
		by := min(more, len(some))
		more -= by
		if err := q.send(&message{payload: payload, fds: some, name: name, by: by}); err != nil {
			return err
		}
	}
	return nil
}

// remove takes the descriptors of a name out of systemd's store.
func (q *queue) remove(name string) error {
	payload, err := join([]string{"FDSTOREREMOVE=1", "FDNAME=" + name})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.send(&message{payload: payload, name: name, by: -q.ledger.counts[name].settled})
}

func (q *queue) stored() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for name, c := range q.ledger.counts {
		if c.settled > 0 {
			names = append(names, name)
		}
	}
	return names
}

// post sends m at once, if it is its turn and there is room, and puts it aside otherwise.
func (q *queue) post(m *message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.send(m)
}

// send is post with q.mu held. The ledger has what m does until that fails.
func (q *queue) send(m *message) error {
	q.ledger.settle(m.name, m.by)
	err := q.trySend(m)
	if err != nil {
		q.ledger.settle(m.name, -m.by)
	}
	return err
}

func (q *queue) trySend(m *message) error {
	if q.closed {
		return ErrClosed
	}
	if len(q.waiting) == 0 {
		var err error
		if rawErr := q.raw.Control(func(fd uintptr) { err = q.transmit(int(fd), m) }); rawErr != nil {
			return rawErr
		}
		if !noRoom(err) {
			return finish(m, explain(err))
		}
	}
	return q.putAside(m)
}

// putAside keeps m, or brings a waiting message of the same state up to date.
func (q *queue) putAside(m *message) error {
	for _, other := range q.waiting {
		if m.state != "" && other.state == m.state && !other.sending {
			other.payload = m.payload
			return nil
		}
	}
	if len(q.waiting) >= maxWaiting {
		return ErrQueueFull
	}
	var err error
	if m.fds, err = duplicate(m.fds); err != nil {
		return fmt.Errorf("cannot keep a descriptor for systemd: %w", err)
	}
	q.waiting = append(q.waiting, m)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// run sends what has been put aside.
func (q *queue) run() {
	defer close(q.stopped)
	for {
		select {
		case <-q.stop:
			return
		case <-q.wake:
		}
		for m := q.first(); m != nil; m = q.first() {
			err := q.deliver(m)
			if errors.Is(err, ErrClosed) {
				return
			}
			q.done(m, err)
		}
	}
}

func (q *queue) first() *message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	q.waiting[0].sending = true
	return q.waiting[0]
}

// deliver waits until m can be sent.
func (q *queue) deliver(m *message) error {
	for {
		var err error
		wait := q.raw.Write(func(fd uintptr) bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			err = q.transmit(int(fd), m)
			return err != unix.EAGAIN
		})
		if wait != nil {
			return ErrClosed
		}
		if !noRoom(err) {
			return explain(err)
		}
		select {
		case <-q.stop:
			return ErrClosed
		case <-time.After(retryAfter):
		}
	}
}

// done takes the first message out.
func (q *queue) done(m *message, err error) {
	closeAll(m.fds)
	if m.sent != nil {
		m.sent <- err
	} else if err != nil && q.failed != nil {
		q.failed(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.ledger.settle(m.name, -m.by)
	}
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.tellEmptied()
	}
}

func (q *queue) tellEmptied() {
	for _, waiter := range q.emptied {
		close(waiter)
	}
	q.emptied = nil
}

// transmit hands m to the kernel. If the other end was made anew since the socket was connected, it connects again. q.mu is held.
func (q *queue) transmit(fd int, m *message) error {
	err := sendmsg(fd, m)
	if err == unix.ECONNREFUSED || err == unix.ENOTCONN {
		if err := unix.Connect(fd, q.address); err != nil {
			return err
		}
		err = sendmsg(fd, m)
	}
	if err == nil {
		q.ledger.took(m.name, m.by)
	}
	return err
}

func sendmsg(fd int, m *message) error {
	var rights []byte
	if len(m.fds) > 0 {
		rights = unix.UnixRights(m.fds...)
	}
	for {
		_, err := unix.SendmsgN(fd, m.payload, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return err
		}
	}
}

// noRoom says whether it is worth trying again.
func noRoom(err error) bool {
	return err == unix.EAGAIN || err == unix.ENOBUFS || err == unix.ENOMEM || err == unix.ETOOMANYREFS
}

func explain(err error) error {
	if err != nil {
		return fmt.Errorf("cannot notify systemd: %w", err)
	}
	return nil
}

// finish reports the outcome of a message that was sent at once.
func finish(m *message, err error) error {
	if m.sent != nil {
		m.sent <- err
	}
	return err
}

// flush waits until nothing is put aside.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	if len(q.waiting) == 0 {
		q.mu.Unlock()
		return nil
	}
	emptied := make(chan struct{})
	q.emptied = append(q.emptied, emptied)
	q.mu.Unlock()
	select {
	case <-emptied:
		return nil
	case <-q.stopped:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("systemd does not read its notification socket: %w", context.Cause(ctx))
	}
}

// close ends the goroutine and closes everything that is still held. A second one does nothing.
func (q *queue) close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil
	}
	q.closed = true
	q.mu.Unlock()
	close(q.stop)
	err := q.file.SetWriteDeadline(time.Unix(1, 0)) // ends a wait for room
	<-q.stopped
	for _, m := range q.waiting {
		closeAll(m.fds)
		if m.sent != nil {
			m.sent <- ErrClosed
		}
	}
	return errors.Join(err, q.file.Close())
}

// duplicate makes descriptors that stay open whatever the caller does with its own.
func duplicate(fds []int) ([]int, error) {
	var own []int
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(own)
			return nil, err
		}
		own = append(own, dup)
	}
	return own, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
