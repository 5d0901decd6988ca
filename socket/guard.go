package socket

import (
	"time"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/socket/unixpath"
)

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
	if t.poller == nil || l.r.at.isUDP() {
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

// Over reports whether a process has called shutdown(2) on a unix socket of the listener since the last call. No
// generation can use the socket any more.
func (t *Table) Over(key string) (over bool) {
	l := t.listeners[key]
	if l == nil || !l.r.at.isUnix() {
		return false
	}
	for _, m := range l.members {
		if !m.over && m.isOver() {
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
