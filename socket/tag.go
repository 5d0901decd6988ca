package socket

import (
	"slices"

	"example.org/supervisord/socket/diag"
)

// A connection has the tag of the socket that it was accepted from, as the socket had it then (package diag): so
// Left can say whose a connection is. A socket therefore keeps its tag as long as a process has it, over all
// supervisors, and gets another one only when the next generation takes it.

// readTag finds out which tag a member has: 0 if it can have none, as an MPTCP socket.
func (m *sock) readTag(r Resolved) {
	if r.at.isTCP() {
		m.tag, _ = diag.GetTag(m.fd)
	}
}

// setTag gives a member a tag. Where that fails, in kernels before 5.9, the kernel shows no tags either, and all
// connections of a port count.
func (m *sock) setTag(tag int) {
	if diag.SetTag(m.fd, tag) == nil {
		m.tag = tag
	}
}

// spareTags is how many tags are left for the lanes to come when each socket of a lane gets its own.
const spareTags = 4

// tagSockets gives sockets that no generation has yet tags that no lane in use has: each socket its own or, where
// there are not enough, all of them one. If every tag is in use, connections of other lanes count as well, and an
// old worker is told to stop later than it could be.
func (l *listener) tagSockets(sockets []*sock) {
	if !l.r.at.isTCP() {
		return
	}
	free := l.freeTags(sockets)
	for i, m := range sockets {
		tag := m.number % diag.Tags
		switch {
		case len(sockets) == 1 && len(free) > 0, len(free) >= len(sockets)+spareTags:
			tag = free[i]
		case len(free) > 0:
			tag = free[0]
		}
		m.setTag(tag)
	}
}

// freeTags lists the tags that no other socket has that a process may accept from.
func (l *listener) freeTags(sockets []*sock) (free []int) {
	var used [diag.Tags]bool
	mark := func(others []*sock) {
		for _, m := range others {
			used[m.tag] = used[m.tag] || !slices.Contains(sockets, m)
		}
	}
	for m := range l.used() {
		mark([]*sock{m})
	}
	for _, m := range l.members {
		if m.stray || m.foreign {
			mark([]*sock{m})
		}
	}
	for tag, taken := range used {
		if !taken {
			free = append(free, tag)
		}
	}
	return free
}
