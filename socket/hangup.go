package socket

import "example.org/supervisord/internal/epoll"

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
		if s, err := t.poller.AddHangup(m.fd, func(uint32) { tell(key) }); err == nil {
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
