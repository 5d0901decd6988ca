package socket

import (
	"time"

	"example.org/supervisord/socket/unixpath"
)

// Places lists where clients find the unix sockets that are the table's own, for unixpath.Watch. The path of a
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
