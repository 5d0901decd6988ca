package socket

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// Queue is the accept queue of a TCP socket from which nobody accepts: no generation has the socket, and no process of a supervisor that is
// gone, and new connections go elsewhere. What comes there all the same had begun its handshake before: the client takes it for a
// connection, and would wait for an answer as long as it likes. So such a queue is kept empty: see Table.Unowned.
type Queue struct {
	Socket uint64 // identifies it
	FD     int    // the table's; valid until the listener changes again
}

// Unowned lists the queues from which nobody accepts, for each of these listeners, and for those whose lanes or steering have changed since the
// last call. Refuse what waits there, and what comes later: the kernel lets a handshake last for a minute or two. It lists no queue of
// a listener that is gone.
func (t *Table) Unowned(keys ...string) map[string][]Queue {
	for _, key := range keys {
		t.changed[key] = true
	}
	all := map[string][]Queue{}
	for key := range t.changed {
		all[key] = t.listeners[key].unowned()
	}
	clear(t.changed)
	return all
}

func (l *listener) unowned() (queues []Queue) {
	if l == nil || !l.r.at.isTCP() {
		return nil
	}
	serves := l.served()
	for _, m := range l.unused() {
		if !m.stray && !m.silent(l.r.at) && !serves[m] {
			queues = append(queues, Queue{socketID(m.fd), m.fd})
		}
	}
	return queues
}

// served has the sockets that new connections go to.
func (l *listener) served() map[*sock]bool {
	serves := map[*sock]bool{}
	for _, s := range l.serving {
		for _, m := range s.sockets() {
			serves[m] = true
		}
	}
	return serves
}

// Refuse resets the connections that wait in the queue, and returns how many these were. On error some may be left.
func (q Queue) Refuse() (refused int, err error) {
	if !waits(q.FD) {
		return 0, nil
	}
	_ = unix.SetsockoptTimeval(q.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000}) // a process that is ending may take one first
	defer func() { _ = unix.SetsockoptTimeval(q.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{}) }()
	for waits(q.FD) {
		fd, _, err := unix.Accept4(q.FD, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(fd)
			refused++
		case !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return refused, err
		}
	}
	return refused, nil
}

// unit lists the sockets of a socket unit.
func (l *listener) unit() []*sock {
	return slices.DeleteFunc(slices.Clone(l.members), func(m *sock) bool { return !m.foreign })
}

// beside reports whether a lane has a socket of ours although a socket unit has one at the address.
func (l *listener) beside(ln *lane) bool {
	return l.foreign() && ln != nil && slices.ContainsFunc(ln.slots, func(m *sock) bool { return !m.foreign })
}

// BesideUnit reports whether one of these claims is on a lane beside the socket of a socket unit, which stays open when supervisord ends.
func (t *Table) BesideUnit(claims []string) bool {
	return slices.ContainsFunc(claims, func(c string) bool {
		l, ln, _ := t.find(c)
		return l != nil && l.r.at.isTCP() && l.beside(ln)
	})
}

// withUnit is the size of a lane for so many workers that would have so many sockets: with more than one, it has every free socket of a
// socket unit, because clients may wait in each.
func (l *listener) withUnit(size, workers int) int {
	free := slices.DeleteFunc(l.free(), func(m *sock) bool { return !m.foreign })
	return max(size, min(len(free), workers))
}
