package socket

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Every generation has sockets of its own where that is possible. This file says where it is not, and which socket the
// generations share then. Only what a program asks for as a whole (its strategy) is for its configuration.

// CannotSteer says why the connections of the listener cannot be sent to one generation, and what to change; why is ""
// if they can, change is "" if nothing helps.
func (s Spec) CannotSteer() (why, change string) {
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
	why, _ := r.CannotSteer()
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
