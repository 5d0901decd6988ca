package socket

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Queue is the accept queue of a TCP socket from which nobody accepts: no generation has the socket, and no process
// of a supervisor that is gone, and new connections go elsewhere. What comes there all the same had begun its
// handshake before: the client takes it for a connection, and would wait for an answer as long as it likes. So such
// a queue is kept empty: see Table.Unowned.
type Queue struct {
	Socket uint64 // identifies it
	FD     int    // the table's; valid until the listener changes again
}

// Unowned lists the queues from which nobody accepts, for each of these listeners, and for those whose lanes or
// steering have changed since the last call. Refuse what waits there, and what comes later: the kernel lets a
// handshake last for a minute or two. It lists no queue of a listener that is gone.
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
	for _, m := range l.ownerless() {
		queues = append(queues, Queue{socketID(m.fd), m.fd})
	}
	return queues
}

// ownerless lists the sockets that listen and from which nobody accepts.
func (l *listener) ownerless() []*sock {
	serves := l.served()
	return slices.DeleteFunc(l.unused(), func(m *sock) bool { return m.stray || m.silent(l.r.at) || serves[m] })
}

// deafness is the least TTL, or hop limit, of what a deaf socket hears. Packets of clients begin with 64 or 128.
const deafness = 255

// A socket without an owner is deaf, unless a probe is for it: the kernel drops what begins a connection there, and the
// client's kernel sends it again after a second. It is for the death of supervisord. The kernel then closes such
// sockets one after the other, and the group closes ranks, so that between two of them the program's index can mean the
// next one to be closed, or none, in place of the lane that serves. What had begun its handshake there before is not
// affected.

// hear ends the deafness of sockets that have an owner now: before the program sends connections there.
func (l *listener) hear() error {
	if !slices.ContainsFunc(l.members, func(m *sock) bool { return m.deaf }) {
		return nil
	}
	deaf := l.toBeDeaf()
	for _, m := range l.members {
		if m.deaf && !deaf[m] {
			if err := m.setDeaf(false, l.addressFor(l.r)); err != nil {
				return err
			}
		}
	}
	return nil
}

// deafen makes sockets deaf that have no owner any more. Where that is impossible, they stay as they are.
func (l *listener) deafen() {
	for m, deaf := range l.toBeDeaf() {
		if deaf && !m.deaf {
			_ = m.setDeaf(true, l.addressFor(l.r))
		}
	}
}

// toBeDeaf has the sockets that should be deaf. Those of a socket unit are not ours to change, and stay open. Where it
// is not known which socket has which index, connections may be steered to one without an owner: it resets them, and
// the next one may reach another.
func (l *listener) toBeDeaf() map[*sock]bool {
	deaf := map[*sock]bool{}
	if !l.r.at.isTCP() {
		return deaf
	}
	for _, m := range l.ownerless() {
		deaf[m] = !m.foreign && len(l.group.places(m.id)) == 1
	}
	for _, p := range l.probes {
		deaf[p.member] = false
	}
	return deaf
}

func (m *sock) setDeaf(on bool, at bindAddr) error {
	ttl := deafness * number(on)
	err := unix.SetsockoptInt(m.fd, unix.IPPROTO_IP, unix.IP_MINTTL, ttl)
	if at.ip.Is6() {
		err = errors.Join(err, unix.SetsockoptInt(m.fd, unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT, ttl))
	}
	m.deaf = on || err != nil
	if err != nil {
		return fmt.Errorf("set IP_MINTTL: %w", err)
	}
	return nil
}

// isDeaf reports whether a supervisord, maybe one before this, has made the socket deaf.
func (m *sock) isDeaf() bool {
	ttl, err := unix.GetsockoptInt(m.fd, unix.IPPROTO_IP, unix.IP_MINTTL)
	return err == nil && ttl == deafness
}

// served has the sockets that new connections go to.
func (l *listener) served() map[*sock]bool {
	serves := map[*sock]bool{}
	for _, s := range l.serving {
		for _, m := range s.sockets {
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
	// a process that is ending may take one first
	_ = unix.SetsockoptTimeval(q.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000})
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

// BesideUnit reports whether the lane has a socket of ours although a socket unit has one at the address, which stays
// open when supervisord ends.
func (ln *Lane) BesideUnit() bool {
	return ln.of != nil && ln.of.r.at.isTCP() && ln.of.foreign() &&
		slices.ContainsFunc(ln.slots, func(m *sock) bool { return !m.foreign })
}

// withUnit is the size of a lane for so many workers that would have so many sockets: with more than one, it has
// every free socket of a socket unit, because clients may wait in each.
func (l *listener) withUnit(size, workers int) int {
	free := slices.DeleteFunc(l.free(), func(m *sock) bool { return !m.foreign })
	return max(size, min(len(free), workers))
}
