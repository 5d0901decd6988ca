package diag

import (
	"maps"
	"time"
)

// What a process has in hand of UDP only the process knows. But the kernel shows whether datagrams wait, and whether
// the process sleeps: one that has read a datagram and not answered yet runs, or is about to, unless it asks another
// server first.

// answerTime is how long a process that sleeps may wait for another server before it answers.
const answerTime = 250 * time.Millisecond

// receiver is a UDP socket that gets nothing new, or only what belongs to its flows.
type receiver struct {
	fd      int
	since   time.Time            // when it was seen with datagrams last
	silence func() time.Duration // for how long nothing has come; nil: nothing comes
}

// Sleeping says how to find out whether all threads of the processes sleep that have the targets, and how often each
// has gone to sleep: see proc.Sleeping. InHand counts a UDP socket as long as datagrams wait there, then until
// answerTime is over and all threads sleep. Where they never do at once, or may not be looked at, it counts the socket
// for the time of silence.
func (w *Watch) Sleeping(look func() (naps map[string]string, all bool)) { w.sleeping = look }

// receive counts the UDP sockets.
func (w *Watch) receive(l *InHand, now time.Time) {
	if len(w.receivers) == 0 {
		return
	}
	before, slept := w.sleeping()
	var read []*receiver
	for _, r := range w.receivers {
		if w.held == nil && Waits(r.fd) { // what waits for all, others read
			l.Unread++
			r.since = now
		} else {
			read = append(read, r)
		}
	}
	after, sleep := w.sleeping()
	silence := w.silence
	if slept && sleep && maps.Equal(before, after) {
		silence = min(silence, answerTime)
	}
	for _, r := range read {
		left := silence - now.Sub(r.since)
		if r.silence != nil {
			left = w.silence - r.silence()
		}
		if left > 0 {
			l.Active++
			l.Silent = max(l.Silent, left)
		}
	}
}
