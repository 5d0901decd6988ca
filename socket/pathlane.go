package socket

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/unixpath"
)

// The lanes of a unix socket with a path. The kernel knows no groups of them, but a path can lead to one socket or another: each
// generation's socket is bound under a hidden name beside the path, and listens there; to steer is to exchange it with the one at the
// path. Connections that wait in the old one stay there, and so does everything for the way back. All connections go to one lane.

// steersPath reports whether the listener is a path, and each generation has a socket of its own.
func (l *listener) steersPath() bool { return l.r.at.onDisk() && l.shared == nil }

// path is where the socket's inode is, if it is nowhere else.
func (s *sock) path(r Resolved) string {
	if s.hidden != "" {
		return s.hidden
	}
	return r.at.path
}

// pathAlone says why a path has to be shared although its configuration says Steer; "": it need not be.
func (l *listener) pathAlone(r Resolved) string {
	switch {
	case l.foreign():
		return "its socket unit has bound the path: leave out the unit"
	case len(r.at.path) > unixpath.Longest:
		return fmt.Sprintf("its path has %d bytes, and the sockets of other generations need a name beside it: choose one of at most %d", len(r.at.path), unixpath.Longest)
	}
	return ""
}

// open opens a new socket: at the listener's address, or beside the path where another socket serves.
func (l *listener) open(r Resolved, how opening) (*sock, error) {
	if shared, _ := l.sharing(r); shared || !r.at.onDisk() {
		return open(r, l.addressFor(r), how)
	}
	if len(l.members) == 0 {
		unixpath.RemoveHidden(r.at.path, func(string) bool { return false })
		return open(r, r.at, how)
	}
	m, err := l.openHidden(r)
	return m, refused(r, err)
}

func (l *listener) openHidden(r Resolved) (*sock, error) {
	fd, err := newSocket(r, r.at)
	if err != nil {
		return nil, err
	}
	m := &sock{fd: fd}
	taken := func(name string) bool {
		return slices.ContainsFunc(l.members, func(o *sock) bool { return o.hidden == name })
	}
	if m.hidden, m.inode, err = unixpath.BindHidden(fd, r.at.path, unixpath.Access{Mode: r.Mode, UID: r.uid, GID: r.gid}, taken); err == nil {
		err = setBacklog(m, r)
	}
	if err != nil {
		m.discard(r)
		return nil, err
	}
	return m, nil
}

// inheritPath takes the offered socket that clients find at a path.
func (u *update) inheritPath(l *listener, r Resolved) error {
	if !r.at.onDisk() {
		return nil
	}
	o := u.table.offered(r, 0, false)
	if o == nil {
		return nil
	}
	_, err := u.adopt(l, r, o)
	return err
}

// freeAtPath lists what the next generation gets of a path: the socket there, if its generation is gone. Connections may wait in it.
func (l *listener) freeAtPath() []*sock {
	return slices.DeleteFunc(l.free(), func(m *sock) bool { return !m.hasPath() || m.hidden != "" || !m.reachable(l.r) })
}

// publish puts the socket that gets the most connections to the path.
func (l *listener) publish() error {
	m := l.published()
	if m == nil || m.hidden == "" {
		return nil
	}
	ours := func(i unixpath.Inode) bool {
		return slices.ContainsFunc(l.members, func(o *sock) bool { return o.inode == i })
	}
	swapped, err := unixpath.Publish(l.r.at.path, m.hidden, m.inode, ours)
	if err != nil {
		return unixpath.Advise(err, l.r.at.path, false)
	}
	for _, o := range l.members {
		switch {
		case o == m || o.hidden != "":
		case swapped && !o.inode.Gone(m.hidden):
			o.hidden = m.hidden
		default:
			o.inode = unixpath.Lost
		}
	}
	m.hidden = ""
	return nil
}

// published is the socket that is to be at the path; nil: it stays as it is.
func (l *listener) published() *sock {
	if !l.steersPath() || len(l.serving) == 0 {
		return nil
	}
	most := slices.MaxFunc(l.serving, func(a, b serving) int { return a.weight - b.weight })
	return most.lane.slots[0]
}

// strandedPath reports whether clients do not find the socket of the workers that serve, because its path was removed or replaced.
func (l *listener) strandedPath() bool {
	return l.steersPath() && slices.ContainsFunc(l.serving, func(s serving) bool { return !s.lane.reachable() })
}

// mayPublish returns why no socket of ours can be put to the path again.
func (l *listener) mayPublish() error {
	release, err := unixpath.Claim(l.r.at.path)
	if err != nil {
		return refused(l.r, err)
	}
	release()
	return nil
}

// listenAtPath lets the socket at the path listen, or puts one there that does not: shutdown(2) on a unix socket is final. Workers that
// have the socket keep it, and finish what waits in it; those that are started later get the one at the path.
func (l *listener) listenAtPath() error {
	m := l.published()
	switch {
	case m == nil || m.silent == l.closed:
		return nil
	case !l.closed:
		return refused(l.r, l.returnPath(m).speak(l.r))
	case !m.reachable(l.r) || m.hidden != "":
		return nil // clients do not find it
	case !m.given || !l.laneOf(m).held():
		return refused(l.r, m.replaceSilent(l.r))
	}
	fresh := *m
	var err error
	if fresh.fd, err = unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		err = fresh.replaceSilent(l.r)
	}
	if err != nil {
		return refused(l.r, err)
	}
	m.inode = unixpath.Lost
	fresh.number = l.nextNumber()
	l.members = append(l.members, &fresh)
	l.serving = []serving{{lane: newLane(l.r, []*sock{&fresh}), weight: 1}}
	return nil
}

// returnPath gives the socket at the path, which no generation has, to the one that had the socket before it: that generation
// starts a worker again. It returns the socket at the path.
func (l *listener) returnPath(m *sock) *sock {
	i := slices.IndexFunc(l.lanes, func(ln *lane) bool { return ln.held() && ln.slots[0].inode == unixpath.Lost })
	if i < 0 || slices.ContainsFunc(l.lanes, func(ln *lane) bool { return slices.Contains(ln.slots, m) }) {
		return m
	}
	lost := l.lanes[i].slots[0]
	_ = unix.Close(lost.fd)
	number := lost.number
	*lost = *m
	lost.number = number
	l.members = slices.DeleteFunc(l.members, func(o *sock) bool { return o == m })
	l.serving = []serving{{lane: l.lanes[i], weight: 1}}
	return lost
}

// resumeServing lets the lane at the path serve if no generation does.
func (l *listener) resumeServing(generations []Holding) {
	if !l.steersPath() {
		return
	}
	if !slices.ContainsFunc(generations, func(g Holding) bool { return g.Serves && g.Key() == l.key }) {
		l.serving = nil
		for _, ln := range l.lanes {
			if m := ln.slots[0]; m.hidden == "" && m.reachable(l.r) {
				l.serving = []serving{{lane: ln, weight: 1}}
			}
		}
	}
	m := l.published()
	l.closed = m != nil && m.silent
}

// locate finds the name at which the inode of an offered socket is: lanes have changed places since they were bound.
func (o *offer) locate() {
	if o.Network != "unix" || !strings.HasPrefix(o.Address, "/") {
		return
	}
	bound := func(unixpath.Inode) bool { return true }
	if o.hadPath() {
		bound = func(i unixpath.Inode) bool { return hash(i.String()) == o.origin }
	} else if number, err := diag.BoundTo(o.id); err == nil {
		bound = func(i unixpath.Inode) bool { return uint32(i.Number()) == number }
	}
	for _, name := range unixpath.Names(o.Address) {
		if i, err := unixpath.At(name); err == nil && bound(i) {
			o.at, o.inode = name, i
			return
		}
	}
}

// path is the name at which the socket is, as far as is known; "": it has none, or something else is there.
func (o *offer) path() string {
	if o.at == "" {
		o.locate() // it may be that the file system could not be asked
	}
	if o.at == "" || o.inode.Gone(o.at) {
		return ""
	}
	return o.at
}

// hides reports whether the socket is beside the path of r, where no client finds it.
func (o *offer) hides(r Resolved) bool {
	return o.at != r.at.path && unixpath.IsHidden(o.at, r.at.path)
}

// openPath prepares connections to a socket with a path, whatever its name is by then.
func (p *Probe) openPath() (err error) {
	l, m := p.listener, p.member
	path := m.path(l.r)
	if p.fd, err = unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("cannot probe %s at %s: %w", l.r.at, path, err)
	}
	if !m.inode.IsAt(path) {
		_ = unix.Close(p.fd)
		return fmt.Errorf("cannot probe %s at %s: the socket there was replaced", l.r.at, path)
	}
	l.probes = append(l.probes, p)
	return nil
}

func (p *Probe) dialPath(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(p.fd))
}
