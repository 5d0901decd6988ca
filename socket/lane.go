package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lane is what one generation has of one listener: sockets of its own, or the one that all generations share.
//
//	Hold ──► on trial ──Steer──► serves ──Steer to another──► drains ──Release──► its sockets are free
//	              │ only probes    gets what is new            gets nothing new,
//	              │ reach it                                   and keeps what it has
//	              └──────────────────────Release───────────────────────►
//
// A lane that drains, or was kept for a rollback, serves again as soon as Steer says so. It is plain data for a record,
// which a later supervisor gives to Resume; the sockets are the table's, and its methods are for the goroutine of the
// table. A lane without sockets is valid: its generation has nothing of the listener.
type Lane struct {
	Listener Resolved // as the generation knows it
	Members  []int    // the numbers of its sockets among those of the listener; of n, slot s has the one at s modulo n

	// Disordered says that the kernel does not have the sockets of the listener in the order of their numbers: some were
	// shut down and listen again, or orphans had them. Resume asks for the order then.
	Disordered bool `json:",omitempty"`

	of    *listener // nil: it has no sockets
	slots []*sock   // several may be one socket, where no better could be had
}

// Hold gives a generation of so many workers (0: as many as are configured) what it has of these listeners, keeps that
// open, and returns a lane for each, for Release. before is what a generation has that ends before this one begins: its
// socket, in which clients may wait, becomes that of this one, too; nil: none does. A listener that is not open has a
// lane without sockets. On error, which says which socket could not be opened and why, no lane has any.
func (t *Table) Hold(listeners []Resolved, workers int, before []*Lane) (lanes []*Lane, err error) {
	for _, r := range listeners {
		lanes = append(lanes, &Lane{Listener: r})
	}
	for _, ln := range lanes {
		l := t.listeners[ln.Listener.Key()]
		if l == nil {
			continue
		}
		slots, err := t.lease(l, workers, before)
		if err != nil {
			return t.Release(lanes), err
		}
		ln.of = l
		ln.get(slots)
		l.lanes = append(l.lanes, ln)
		_ = t.settle(l)
	}
	return lanes, nil
}

// get gives the lane sockets in place of those that it has.
func (ln *Lane) get(slots []*sock) {
	ln.slots, ln.Members = slots, nil
	for _, m := range slots {
		ln.Members = append(ln.Members, m.number)
	}
}

// Evade gives lanes of QUIC and of flows whose generation has no worker other sockets in place of those of SetOrphans.
// Otherwise the next worker and an orphan would each take datagrams of the other's clients. Where these belong to no
// process, both serve. The caller steers anew. On error, which says which socket could not be opened and why, a lane
// keeps what it has.
func (t *Table) Evade(lanes []*Lane) (errs []error) {
	for _, ln := range lanes {
		stray := slices.ContainsFunc(ln.slots, func(m *sock) bool { return m.stray })
		if !stray || !ln.of.isQUIC() && !ln.of.followsFlows() {
			continue
		}
		slots, err := t.lease(ln.of, 0, nil)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ln.get(slots)
		_ = t.settle(ln.of)
	}
	return errs
}

// lease finds, or makes, the sockets of the next generation.
func (t *Table) lease(l *listener, workers int, before []*Lane) ([]*sock, error) {
	if m := l.shared; m != nil {
		slots := []*sock{m}
		if l.isHeld(m) {
			return slots, nil
		}
		return slots, refused(l.r, l.renew(slots, l.r))
	}
	for _, ln := range before {
		if ln.of == l && l.r.at.isTCP() && len(ln.slots) == 1 && l.fits(ln.slots[0], l.r.NonBlock) {
			return ln.slots, nil
		}
	}
	size := max(1, l.size)
	if workers > 0 {
		size = l.r.sockets(workers)
	}
	u := &update{table: t}
	slots, err := u.compose(l, l.r, l.withUnit(size, workers))
	if err != nil {
		u.rollBack()
		return nil, err
	}
	if (l.isQUIC() || l.followsFlows()) && slots[0].number >= lanesOfQUIC {
		return nil, refused(l.r, errors.New("too many generations have been alive at once: restart supervisord"))
	}
	l.inherit(slots)
	return slots, nil
}

// Release ends one Hold, or Resume, and closes what neither the configuration nor a generation needs. It returns lanes
// of the same listeners without sockets.
func (t *Table) Release(lanes []*Lane) (without []*Lane) {
	for _, ln := range lanes {
		without = append(without, &Lane{Listener: ln.Listener})
		if l := ln.of; l != nil {
			ln.of, ln.slots = nil, nil
			l.lanes = slices.DeleteFunc(l.lanes, func(o *Lane) bool { return o == ln })
			_ = t.settle(l)
		}
	}
	return without
}

// Sockets is how many sockets the lane has.
func (ln *Lane) Sockets() int { return len(ln.slots) }

// Own reports whether the sockets belong to this generation alone, so that its predecessor gets nothing new once
// connections are steered to it.
func (ln *Lane) Own() bool {
	return len(ln.slots) > 0 && ln.slots[0] != ln.of.shared && ln.of.holders(ln.slots[0]) == 1
}

// Serves reports whether new connections go to the lane, or will after a pause.
func (ln *Lane) Serves() bool { return ln.of != nil && slices.ContainsFunc(ln.slots, ln.of.serves) }

// FD returns the descriptor for a worker in this slot. It stays the table's. Several slots may have the same one. -1:
// there is no socket for the slot.
func (ln *Lane) FD(slot int) int {
	if m := ln.socket(slot); m != nil {
		return m.fd
	}
	return -1
}

// socket finds the socket of a slot; nil: there is none.
func (ln *Lane) socket(slot int) *sock {
	n := len(ln.slots)
	if n == 0 || slot < 0 || ln.Listener.PerSlot && n != 1 && slot >= n {
		return nil
	}
	return ln.slots[slot%n]
}

// Address returns where the listener is bound, as Table.Address does; "": the lane has no sockets.
func (ln *Lane) Address() string {
	if ln.of == nil {
		return ""
	}
	return ln.of.address()
}

// chosen lists the sockets of these slots; none means all.
func (ln *Lane) chosen(slots []int) (sockets []*sock) {
	if len(slots) == 0 {
		return ln.slots
	}
	for i, m := range ln.slots {
		if slices.ContainsFunc(slots, func(slot int) bool { return slot%len(ln.slots) == i }) {
			sockets = append(sockets, m)
		}
	}
	return sockets
}

// Every generation has sockets of its own where that is possible. This file says where it is not, and which socket the
// generations share then.

// Generations is what a program does with its workers and generations, as far as it decides who has which socket.
type Generations struct {
	Slots       int    // the workers of one
	Rolling     bool   // old and new workers serve side by side
	StopFirst   bool   // one ends before the next begins
	MaxDraining int    // so many old ones may live; 0: any number
	QUIC        string // the first listener with a Handover of QUIC, by its name
	Restart     string // "always", or after which exits a worker is replaced
}

// mostOfQUIC is how many old generations of a QUIC listener may drain.
const mostOfQUIC = 200

// Settle decides what s leaves open: Handover, Single, Rolling and Flows. It returns what s asks for in vain.
func (g Generations) Settle(s *Spec) (wrong []*SpecError) {
	say := func(key, what, remedy string) {
		wrong = append(wrong, &SpecError{Key: key, What: what, Remedy: remedy})
	}
	why, change := g.cannotSteer(*s)
	switch {
	case s.Handover == Share:
	case why != "" && s.Handover != "":
		say("handover", fmt.Sprintf("%q is impossible: %s", s.Handover, why), either("remove handover", change))
		s.Handover = Share
	case why != "":
		s.Handover, s.HandoverWhy = Share, why
	case s.Handover == "":
		s.Handover = Steer
	}
	switch {
	case s.Handover != Flow && s.Flows > 0:
		say("flows", `does nothing without handover = "flow"`, "remove it")
	case s.Handover == Flow && s.Flows == 0:
		s.Flows = defaultFlows
	}
	switch ends := g.mayEnd(); {
	case s.PerSlot && ends != "":
		say("per_slot", "is impossible: "+ends, either("remove per_slot", alwaysRestart))
	case s.PerSlot && !s.ReusePort && !s.IsSteered() && s.Address.IsTCP():
		why, change = g.WhyShared(*s)
		say("per_slot", "needs sockets of its own for each generation, and they share the listener: "+why,
			either("remove per_slot", change))
	case s.IsSteered() && s.Slotting() == "auto":
		s.Single, s.SingleWhy, s.Rolling = ends != "", ends, g.Rolling
	}
	return wrong
}

// cannotSteer says why each generation cannot have sockets of its own, and what to change; why is "" if it can, change
// is "" if nothing helps.
func (g Generations) cannotSteer(s Spec) (why, change string) {
	switch why, change = s.cannotSteer(); {
	case why != "":
		return why, change
	case g.Rolling && s.Address.IsUDP():
		return `with strategy "rolling" old and new workers serve side by side`, `write strategy = "all"`
	case g.Rolling && s.Slotting() == "false":
		return `with strategy "rolling" old and new workers serve side by side, and per_slot = false gives them one socket`,
			`write strategy = "all", or remove per_slot`
	case g.Rolling && g.mayEnd() != "":
		return `strategy "rolling" needs a socket for each worker, and ` + g.mayEnd(),
			`write strategy = "all", or restart.when = "always"`
	case s.Handover == QUIC && g.QUIC != s.Name:
		return "another listener of the program has it, and a worker is told one lane", `write handover = "steer"`
	case s.Handover == QUIC && (g.MaxDraining < 1 || g.MaxDraining > mostOfQUIC):
		return fmt.Sprintf("reload.max_draining = %d lets more generations live than one byte can name", g.MaxDraining),
			fmt.Sprintf("write max_draining = 1 to %d", mostOfQUIC)
	case g.StopFirst:
		return `with strategy "stop-first" one generation ends before the next one begins`, `write strategy = "all"`
	}
	return "", ""
}

// WhyShared says why the generations share the listener s, which they do, and what to change; change is "" if nothing
// helps.
func (g Generations) WhyShared(s Spec) (why, change string) {
	if why, change = g.cannotSteer(s); why != "" {
		return why, change
	}
	return s.WhyShared(), `write handover = "steer"`
}

const alwaysRestart = `write restart.when = "always"`

// mayEnd says why a socket could stay without a worker for good; "": it cannot.
func (g Generations) mayEnd() string {
	if g.Restart == "always" {
		return ""
	}
	return fmt.Sprintf("with restart.when = %q a socket could be left without a worker", g.Restart)
}

// WhyOneSocket says why many workers share one socket of the listener s without a key that asks for that, and what to
// change. why is "" if they have several sockets or are few; change is "" if nothing helps.
func (g Generations) WhyOneSocket(s Spec) (why, change string) {
	switch {
	case g.Slots <= SlotsOfSocket, s.Slotting() != "auto":
		return "", ""
	case s.Address.IsUnix():
		return "a unix socket has one queue", ""
	case s.Address.IsUDP():
		return "a generation has one socket of udp", ""
	case s.ReusePort:
		return "reuse_port lets other processes have sockets of the same address", "remove reuse_port"
	case g.mayEnd() != "":
		return g.mayEnd(), alwaysRestart
	case s.IsSteered():
		return "", ""
	}
	why, change = g.WhyShared(s)
	return why, either("write per_slot = false", change)
}

// either is a remedy of one or two alternatives; the second may be "".
func either(one, other string) string {
	if other == "" {
		return one
	}
	return one + ", or " + other
}

// cannotSteer says why the connections of the listener cannot be sent to one generation, whatever its program does.
func (s Spec) cannotSteer() (why, change string) {
	switch {
	case (s.Handover == QUIC || s.Handover == Flow) && !s.Address.IsUDP():
		return "it is for udp, whose datagrams belong to no connection", `write handover = "steer"`
	case s.Address.IsUnix():
		return "the kernel cannot steer the connections of a unix socket", "listen on a loopback port"
	case s.ReusePort:
		return "reuse_port lets other processes have sockets of the same address", "remove reuse_port"
	}
	return "", ""
}

// WhyShared says why the configuration has all generations accept from the same sockets; "": it has not.
func (s Spec) WhyShared() string {
	switch {
	case s.IsSteered():
		return ""
	case s.HandoverWhy != "":
		return s.HandoverWhy
	}
	return `handover = "share"`
}

// WhyShared says why all generations accept from the same sockets of a listener: it is configured so, or the kernel, or
// the socket itself, allows nothing else (unasked); "": each has its own.
func (t *Table) WhyShared(r Resolved) (why string, unasked bool) {
	if why := r.Spec.WhyShared(); why != "" {
		return why, r.HandoverWhy != ""
	}
	if l := t.listeners[r.Key()]; l != nil {
		return l.why, l.why != ""
	}
	return "", false
}

// steered reports whether every generation is to have a lane of its own.
func (r Resolved) steered() bool {
	why, _ := r.cannotSteer()
	return r.IsSteered() && why == ""
}

// sharing reports whether the generations have to share a lane, and why, if the configuration says something else.
func (l *listener) sharing(r Resolved) (shared bool, why string) {
	if !r.steered() {
		return true, ""
	}
	if l.size > 0 && l.r.ReusePort || l.why == afterReusePort {
		return true, afterReusePort
	}
	for _, m := range l.members {
		if why := m.alone(); m.foreign && why != "" {
			return true, why
		}
	}
	why = Unsteerable()
	return why != "", why
}

const afterReusePort = "reuse_port was set, and other processes may still listen there: " +
	"remove the listener for one reload, or restart supervisord"

// alone says why no socket of ours can be put beside the socket of a socket unit; "": one can.
func (m *sock) alone() string {
	protocol, _ := unix.GetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	var st unix.Stat_t
	switch err := unix.Fstat(m.fd, &st); {
	case !m.sharesPort():
		return "its socket unit does not set ReusePort=yes: set it there, and restart the unit and supervisord"
	case protocol == unix.IPPROTO_MPTCP:
		return "its socket unit makes an MPTCP socket, which the kernel cannot steer: leave out SocketProtocol=mptcp"
	case err != nil || int(st.Uid) != unix.Geteuid():
		return "its socket unit is of another user, and the kernel lets only one user's sockets share a port: " +
			"leave out the unit, or run supervisord as that user"
	}
	return ""
}

// share finds the socket that the generations share, or opens it.
func (u *update) share(s *stage) (err error) {
	l, w := s.listener, s.want
	candidates := [][]*sock{l.current()}
	for _, ln := range l.lanes {
		candidates = append(candidates, ln.slots)
	}
	for _, slots := range candidates {
		if len(slots) == 1 && slots[0].reachable() && l.fits(slots[0], w.NonBlock) {
			s.slots = slots
			return nil
		}
	}
	if l.shared != nil && l.shared.reachable() && !l.resumed { // the supervisor before this one could change it
		const why = "the mode belongs to the socket, which the old workers share with the new ones"
		return &ChangeError{w.Spec, "nonblock", why, whileStopped}
	}
	s.slots, err = u.compose(l, w.Resolved, 1)
	return err
}

// fits reports whether a socket can have this mode: no generation has it with another one.
func (l *listener) fits(m *sock, nonBlock bool) bool {
	return !slices.ContainsFunc(l.lanes, func(ln *Lane) bool {
		return slices.Contains(ln.slots, m) && ln.Listener.NonBlock != nonBlock
	})
}

// Probe is a way to reach one socket of a listener, whichever generation serves: the kernel sends a connection
// there that comes from the probe's port of the loopback address, which no other process can have.
//
// Probe and End are for the goroutine of the table, Dial is for any other. Between them the probe has a descriptor,
// which keeps its port, and an instruction or two in the program of the group: so End must be called, however Dial has
// ended.
type Probe struct {
	listener *listener
	member   *sock
	from, to netip.AddrPort
	fd       int // keeps the port
}

// Probe prepares a connection to the socket that a worker in this slot has, whichever generation serves. It is an
// error if the generations share the listener, or if it is bound to an interface, which a connection from this
// machine does not pass.
func (ln *Lane) Probe(slot int) (*Probe, error) {
	l, m := ln.of, ln.socket(slot)
	switch {
	case m == nil:
		return nil, fmt.Errorf("cannot probe slot %d of %q: there is no such socket", slot, ln.Listener.Key())
	case !l.r.at.isTCP():
		return nil, fmt.Errorf("cannot probe %s: udp has no connections", l.r.at)
	case l.shared != nil:
		return nil, fmt.Errorf("cannot probe %s: its generations share the socket, and any of them may answer", l.r.at)
	case l.r.Interface != "":
		return nil, fmt.Errorf(
			"cannot probe %s: it is bound to the interface %s: probe an address instead, or leave out interface",
			l.r.at, l.r.Interface)
	}
	p := &Probe{listener: l, member: m}
	p.to = l.reachedAt()
	if err := p.reserve(); err != nil {
		return nil, fmt.Errorf("cannot probe %s: %w", l.r.at, err)
	}
	l.probes = append(l.probes, p)
	if err := errors.Join(l.apply(), l.ambiguous([]*sock{m})); err != nil {
		p.End()
		return nil, fmt.Errorf("cannot probe %s: %w", l.r.at, err)
	}
	return p, nil
}

// reachedAt is where this machine reaches the listener.
func (l *listener) reachedAt() netip.AddrPort {
	at := l.addressFor(l.r)
	switch {
	case !at.ip.IsUnspecified():
	case at.ip.Is4() || at.dual:
		at.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		at.ip = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(at.ip, at.port)
}

// reserve takes a port that nobody has. SO_REUSEADDR lets Dial bind it, too.
func (p *Probe) reserve() error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if p.to.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	fd, err := p.socket()
	if err != nil {
		return err
	}
	if p.from, err = bindTo(fd, netip.AddrPortFrom(loopback, 0)); err != nil {
		_ = unix.Close(fd)
		return err
	}
	p.fd = fd
	return nil
}

// socket opens a socket that can be bound to the port of the probe.
func (p *Probe) socket() (int, error) {
	family := unix.AF_INET
	if p.to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // only a bad descriptor fails
	}
	return fd, err
}

// Dial connects, once for each Probe. It is not for the loop.
func (p *Probe) Dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(p.from), Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR,
				1)
		}); e != nil {
			return e
		}
		return err
	}}
	return d.DialContext(ctx, "tcp", p.to.String())
}

// End ends the probe: call it when the connection is closed, on the loop. It may be called again.
func (p *Probe) End() {
	l := p.listener
	if !slices.Contains(l.probes, p) {
		return
	}
	l.probes = slices.DeleteFunc(l.probes, func(o *Probe) bool { return o == p })
	_ = unix.Close(p.fd)
	_ = l.apply() // a rule too many does no harm: nobody has the port
}

// probeRules send each probe to its member.
func (l *listener) probeRules() []unix.SockFilter {
	var rules []rule
	for _, p := range l.probes {
		if at := l.group.places(p.member.id); len(at) == 1 {
			rules = append(rules, rule{p.from.Port(), p.from.Addr().Is6(), at[0]})
		}
	}
	return sourceRules(rules)
}
