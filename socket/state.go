package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/unixpath"
)

// condition is what the kernel is to do with a socket of a listener, in two bits. It follows from who has the socket
// and what is wanted of the listener, and from nothing else:
//
//	                        listens              hears
//	a generation has it     unless closed        yes
//	it serves, or is shared unless closed        yes
//	nobody has it, TCP      unless closed        only probes
//	  of a socket unit      always               yes
//	nobody has it, unix     if it is the only    yes
//
// A listener that is paused steers new connections to a further socket, which does not hear them: see Pause.
type condition struct {
	listens bool // listen(2) is in force: otherwise the kernel refuses connections, and the address stays bound
	hears   bool // what begins a connection is not dropped: see deafness
}

// wanted is the one place that decides what the kernel is to do with each socket. Where it is not known which socket
// of a group has which index, connections may be steered to one that nobody has, so it hears them: it is reset, and the
// next connection may reach another.
func (l *listener) wanted() map[*sock]condition {
	used, serves, all := l.used(), l.served(), map[*sock]condition{}
	for _, m := range l.members {
		s := condition{listens: !l.closed, hears: true}
		switch at := l.r.at; {
		case at.isUnix() && len(l.members) > 1:
			s.listens = l.isHeld(m) && !(l.closed && m.reachable())
		case at.isTCP():
			probed := slices.ContainsFunc(l.probes, func(p *Probe) bool { return p.member == m })
			s.hears = m != l.parking &&
				(used[m] || serves[m] || m.stray || m.foreign || probed || len(l.group.places(m.id)) != 1)
		}
		all[m] = s
	}
	return all
}

// listen lets every socket listen that should, and no other. The sockets of a group join it again in their order; one
// that cannot listen keeps no other from it.
func (l *listener) listen() error {
	if l.r.at.isTCP() && !l.closed {
		err := l.rejoin(l.hushed)
		l.hushed = l.hushed && err != nil
		return err
	}
	l.hushed = l.closed
	want := l.wanted()
	for _, m := range l.members {
		if m.silent(l.r.at) != want[m].listens {
			continue
		}
		if err := m.setSilent(l.r, !want[m].listens); err != nil {
			return refused(l.r, err)
		}
	}
	l.recount()
	return nil
}

// deafness is the least TTL, or hop limit (IP_MINTTL), of what a deaf socket hears. Packets of clients begin with 64 or
// 128. So the kernel drops what begins a connection there, and the client's kernel sends it again after a second. A
// handshake that began before is completed, but its connection inherits the option and is deaf as well, so no socket
// that a worker accepts from may be deaf. A socket filter would do the same for every TTL, but newer kernels permit one
// only with CAP_NET_ADMIN.
//
// It is for a pause, and for the death of supervisord: the kernel then closes the sockets that only it has one after
// the other, and the group closes ranks, so that between two of them the program's index can mean the next one to be
// closed, or none, in place of the lane that serves. And it is for the moment in which nobody knows at which index a
// socket is: see deafenOrphans.
const deafness = 255

// hear ends the deafness of those that are to hear: before the program sends connections there, and after it keeps
// them from there.
func (l *listener) hear(those func(*sock) bool) error {
	want := l.wanted()
	for _, m := range l.members {
		if m.deaf && want[m].hears && those(m) {
			if err := m.setDeaf(false, l.addressFor(l.r)); err != nil {
				return err
			}
		}
	}
	return nil
}

// deafen makes sockets deaf that are not to hear. Where that is impossible, they stay as they are.
func (l *listener) deafen() {
	for m, want := range l.wanted() {
		if !m.deaf && !want.hears {
			_ = m.setDeaf(true, l.addressFor(l.r))
		}
	}
}

// deafenOrphans makes sockets deaf, until the next apply, that may be anywhere in the group, are not to get new
// connections, and that no generation has. An orphan may be on trial and never accept, or have been told to stop: since
// supervisord died so much time has passed that no handshake with it is under way. What a generation has may have
// served a moment ago.
func (l *listener) deafenOrphans() {
	if !l.r.at.isTCP() || !l.answers() {
		return
	}
	used, serves := l.used(), l.served()
	for _, m := range l.unplaced() {
		if !m.deaf && !m.foreign && !serves[m] && (m.stray || !used[m]) {
			_ = m.setDeaf(true, l.addressFor(l.r)) // where that is impossible, it stays as it is
		}
	}
}

func (m *sock) setDeaf(on bool, at bindAddr) error {
	ttl := deafness * number(on)
	err := unix.SetsockoptInt(m.fd, unix.IPPROTO_IP, unix.IP_MINTTL, ttl)
	if at.ip.Is6() {
		err = errors.Join(err, unix.SetsockoptInt(m.fd, unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT, ttl))
	}
	if m.deaf = on || err != nil; !m.deaf {
		m.vacancy = nil
	}
	if err != nil {
		return fmt.Errorf("set IP_MINTTL: %w", err)
	}
	return nil
}

// audible lets deaf sockets hear what a socket sends to this address.
func audible(fd int, to netip.Addr) error {
	if to.Is6() {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, deafness)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, deafness)
}

// isDeaf reports whether a supervisord, maybe one before this, has made the socket deaf.
func (m *sock) isDeaf() bool {
	ttl, err := unix.GetsockoptInt(m.fd, unix.IPPROTO_IP, unix.IP_MINTTL)
	return err == nil && ttl == deafness
}

// SetOpen opens or closes a listener: while it is closed, connections are refused, and those in its queue are
// reset. It stays bound, so that no other process can take the address, and workers that have the socket can use it
// again when it is reopened. Accepted connections are not affected. SetOpen does nothing for UDP, which has no
// connections, for an abstract unix socket, and for the socket of a systemd socket unit, which others may use: see
// CanClose.
//
// A unix socket is useless after it was closed: another one takes its place, and workers that are started later get
// that. changed reports whether descriptors have come or gone.
func (t *Table) SetOpen(key string, open bool) (changed bool, err error) {
	l := t.listeners[key]
	if l == nil || l.closed != open && !l.stuck(open) || !open && !l.canClose() {
		return false, nil
	}
	l.closed, l.unsure = !open, true // a group that all sockets have left has no program
	return l.r.at.isUnix(), t.settle(l)
}

// stuck reports whether the listener should be open, but could not be opened.
func (l *listener) stuck(open bool) bool {
	return open && len(l.lanes) > 0 &&
		slices.ContainsFunc(l.members, func(m *sock) bool { return m.silent(l.r.at) })
}

// CanClose reports whether SetOpen can close the listener.
func (t *Table) CanClose(key string) bool {
	l := t.listeners[key]
	return l != nil && l.canClose()
}

// canClose reports whether the kernel can refuse connections to the address while the address stays bound.
func (l *listener) canClose() bool {
	at := l.r.at
	return (at.isTCP() || at.onDisk()) && !l.foreign()
}

// Closed reports whether connections to the listener are refused.
func (t *Table) Closed(key string) bool {
	l := t.listeners[key]
	return l != nil && l.current()[0].silent(l.r.at)
}

func (s *sock) setSilent(r Resolved, silent bool) error {
	switch {
	case !silent:
		return s.speak(r, false)
	case r.at.isTCP():
		return s.hush()
	case r.at.onDisk():
		return s.replaceSilent(r)
	}
	return nil
}

// hush ends listening, and keeps the address. A port is protected only by a socket that listens or does not have
// SO_REUSEADDR.
func (s *sock) hush() error {
	if err := s.setReuseAddr(false); err != nil {
		return err
	}
	return unix.Shutdown(s.fd, unix.SHUT_RD)
}

func (s *sock) setReuseAddr(on bool) error {
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, number(on))
}

// speak lets a silent socket listen. Without SO_REUSEADDR, earlier connections in TIME_WAIT would prevent it.
// A worker may have taken the options from it that open has set.
func (s *sock) speak(r Resolved, shared bool) error {
	if r.at.isTCP() {
		if err := errors.Join(s.setReuseAddr(true), s.setReusePort(shared)); err != nil {
			return err
		}
		s.forget()
	}
	s.armed = false // what was told of it is over
	return unix.Listen(s.fd, r.backlog())
}

// forget clears the mark (sk_shutdown) that shutdown(2) sets on a TCP socket that does not listen. The first call ends
// listening, and each further one, by a server with two descriptors of the socket or by another worker, sets the mark.
// listen(2) does not clear it, and each connection that is accepted later has it from the start. connect(2) to
// AF_UNSPEC clears it; expel sees whether that has failed.
func (s *sock) forget() {
	var unspecified unix.RawSockaddrAny
	_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(s.fd), uintptr(unsafe.Pointer(&unspecified)),
		unsafe.Sizeof(unspecified))
}

// replaceSilent puts a socket that does not listen in the place of one with a path: shutdown(2) on a unix socket is
// final.
func (s *sock) replaceSilent(r Resolved) error {
	if !s.reachable() {
		return nil
	}
	release, err := unixpath.Lock(r.at.path)
	if err != nil {
		return err
	}
	defer release()
	fd, err := newSocket(r, r.at)
	if err != nil {
		return err
	}
	s.place.Remove()
	fresh := &sock{fd: fd, number: s.number, id: socketID(fd)}
	if err := fresh.bindPath(r); err != nil {
		fresh.discard()
		return err
	}
	_ = unix.Close(s.fd) // a worker that has it gets no more connections
	*s = *fresh
	return nil
}

// Pause lets new connections of these listeners wait in the kernels of their clients, which try again after 1, 2,
// 4, … seconds, or ends that. Connections that were made continue, and probes are answered. On error nothing has
// changed.
//
// New connections are steered to a member from which nobody accepts, and that is deaf: the kernel drops their SYNs.
// Where others may have joined the group, and where there is none, that is impossible, and an error.
func (t *Table) Pause(keys []string, paused bool) error {
	var done []*listener
	for _, key := range keys {
		l := t.listeners[key]
		if l == nil || l.paused == paused {
			continue
		}
		if err := t.pause(l, paused); err != nil {
			for _, l := range done {
				_ = t.pause(l, !paused) // it was so a moment ago
			}
			return fmt.Errorf("cannot pause %s: %w", l.r.at, err)
		}
		done = append(done, l)
	}
	return nil
}

func (t *Table) pause(l *listener, paused bool) error {
	if paused {
		if err := l.mayPark(); err != nil {
			return err
		}
	}
	l.paused = paused
	err := t.settle(l)
	if err == nil || !paused {
		return nil // a program that is not set is set by the next Steer
	}
	l.paused = false
	_ = t.settle(l)
	return err
}

// parks reports whether new connections wait in the kernels of the clients: the listener is paused, or only generations
// have it that finish what they have.
func (l *listener) parks() bool {
	return !l.closed && (l.paused || l.left && !l.gone() && l.mayPark() == nil)
}

// mayPark returns why the listener cannot be paused.
func (l *listener) mayPark() error {
	switch {
	case !l.r.at.isTCP():
		return errors.New("only TCP clients try again by themselves: stop the program instead")
	case l.r.ReusePort:
		return errors.New("other processes may listen there because of reuse_port: stop the program instead")
	case l.r.Interface != "":
		return errors.New("it is bound to an interface: stop the program instead")
	}
	for _, m := range l.members {
		if why := m.alone(); m.foreign && why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// park steers new connections to a member that is deaf and that nobody has.
func (t *Table) park(l *listener) error {
	u := &update{table: t}
	m, err := u.spare(l)
	if err == nil {
		// Of the few clients whose packets come with a TTL of 255 one is connected, and reset when the pause ends.
		err = errors.Join(m.setDeaf(true, l.addressFor(l.r)), unix.Listen(m.fd, 0))
	}
	if err == nil {
		l.parking = m
		err = l.apply()
	}
	if err != nil {
		l.unpark()
		u.rollBack()
	}
	return err
}

// spare finds a member that nobody has and in which no client is, or opens one.
func (u *update) spare(l *listener) (*sock, error) {
	if spare := only(l.free(), func(m *sock) bool { return !l.serves(m) && !m.foreign }); len(spare) > 0 {
		return spare[len(spare)-1], nil
	}
	how, err := u.makeRoom(l, l.r)
	if err != nil {
		return nil, err
	}
	return u.fresh(l, l.r, how)
}

// unpark steers connections to the serving lanes again.
func (l *listener) unpark() {
	if l.parking != nil {
		l.parking = nil
		_ = l.apply() // it steered there before
	}
}

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
		queues = append(queues, Queue{m.id, m.fd})
	}
	return queues
}

// ownerless lists the sockets that listen and from which nobody accepts.
func (l *listener) ownerless() []*sock {
	serves := l.served()
	return only(l.unused(), func(m *sock) bool { return !m.stray && !m.silent(l.r.at) && !serves[m] })
}

// served has the sockets that new connections are meant for.
func (l *listener) served() map[*sock]bool {
	serves := map[*sock]bool{}
	if l.left {
		return serves
	}
	for _, s := range l.serving {
		for _, m := range s.sockets {
			serves[m] = true
		}
	}
	return serves
}

// Refuse resets the connections that wait in the queue, and returns how many these were. On error some may be left.
func (q Queue) Refuse() (refused int, err error) {
	if !diag.Waits(q.FD) {
		return 0, nil
	}
	// a process that is ending may take one first
	_ = unix.SetsockoptTimeval(q.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000})
	defer func() { _ = unix.SetsockoptTimeval(q.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{}) }()
	for diag.Waits(q.FD) {
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
	return only(l.members, func(m *sock) bool { return m.foreign })
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
	if min(len(l.unit()), workers) <= size {
		return size // free would ask the kernel
	}
	free := only(l.free(), func(m *sock) bool { return m.foreign })
	return max(size, min(len(free), workers))
}

// Places lists where clients find the unix sockets that are the table's own, for unixpath.Guard. The path of a
// socket from a systemd socket unit is the unit's.
func (t *Table) Places() (places []unixpath.Place) {
	for _, l := range t.listeners {
		if m := l.guarded(); m != nil {
			places = append(places, m.place)
		}
	}
	return places
}

// Repair puts the path of a unix socket back, with its mode, owner and ACL, and says what was wrong, if only when
// Update looked; "": nothing. After unixpath.ErrGone the next Update opens another socket, and Stranded says that a
// generation must take it.
func (t *Table) Repair(key string) (damage string, err error) {
	l := t.listeners[key]
	if l == nil {
		return "", nil
	}
	damage, err = l.repair(youth)
	if damage == "" && err == nil {
		damage, l.damage = l.damage, ""
	}
	return damage, err
}

// youth is how long a socket at which nothing answers may belong to a process that is about to listen.
const youth = time.Second

func (l *listener) repair(youth time.Duration) (damage string, err error) {
	m := l.guarded()
	if m == nil {
		return "", nil
	}
	damage, err = m.place.Repair(youth)
	return damage, refused(l.r, err)
}

// guarded is the socket that clients are to find at the path of the listener; nil: that is not the table's.
func (l *listener) guarded() *sock {
	if now := l.current(); len(now) > 0 && now[0].hasPath() && !now[0].foreign {
		return now[0]
	}
	return nil
}

// Watch has shutDown called, on the poller's goroutine and once for each time, when a process has called
// shutdown(2) on a socket of the listener with this key. Call Revive then. Connections wake nobody.
func (t *Table) Watch(p *epoll.Poller, shutDown func(key string)) {
	t.poller, t.shutDown = p, shutDown
	for _, l := range t.listeners {
		t.hangups(l)
	}
}

// hangups watches the sockets of a listener that listen. Where that fails, for want of memory, they are looked at
// before each spawn.
func (t *Table) hangups(l *listener) {
	if t.poller == nil {
		return
	}
	for _, m := range l.members {
		if m.armed || m.silent(l.r.at) || m.isOver() {
			continue
		}
		m.armed = true
		if m.watched != nil {
			t.poller.Again(m.watched)
			continue
		}
		key, tell := l.key, t.shutDown // the Table is not for the goroutine of the Poller
		if s, err := t.poller.Add(m.fd, epoll.HangupOnce, func(uint32) { tell(key) }); err == nil {
			m.watched, m.unwatch = s, func() { t.poller.Remove(s) }
		}
	}
}

// Over reports whether a process has called shutdown(2) on a unix socket of the listener since the last call, or on a
// UDP socket to which what is new goes. No generation can use the socket any more.
func (t *Table) Over(key string) (over bool) {
	l := t.listeners[key]
	if l == nil || l.r.at.isTCP() {
		return false
	}
	for _, m := range l.members {
		if !m.over && (l.r.at.isUnix() || l.serves(m)) && m.isOver() {
			m.over, over = true, true
			l.shutDowns++
		}
	}
	return over
}

// ShutDowns returns how often a process has shut down a socket of the listener, as far as this table knows.
func (t *Table) ShutDowns(key string) int {
	if l := t.listeners[key]; l != nil {
		return l.shutDowns
	}
	return 0
}
