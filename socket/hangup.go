package socket

import (
	"slices"

	"example.org/supervisord/internal/epoll"
)

// Watch has shutDown called, on the poller's goroutine and once for each time, when a process has called shutdown(2) on a socket of the
// listener with this key. Call Revive then. Connections wake nobody.
func (t *Table) Watch(p *epoll.Poller, shutDown func(key string)) {
	t.poller, t.shutDown = p, shutDown
	for _, l := range t.listeners {
		t.hangups(l)
	}
}

// hangups watches the sockets of a listener that listen. Where that fails, for want of memory, they are looked at before each spawn.
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
		key := l.key
		if s, err := t.poller.AddHangup(m.fd, func(uint32) { t.shutDown(key) }); err == nil {
			m.watched, m.unwatch = s, func() { t.poller.Remove(s) }
		}
	}
}

// Over reports whether somebody has called shutdown(2) on a unix socket of the listener, which no generation can use any more.
func (t *Table) Over(key string) bool {
	l := t.listeners[key]
	return l != nil && l.r.at.isUnix() && slices.ContainsFunc(l.members, (*sock).isOver)
}
