package traffic

import (
	"fmt"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/tests/soak/account"
)

// excuse is why a request may be lost: what a worker that was killed on purpose had in hand.
type excuse string

// The excuses. In each the worker's account has the connection, but for unnoted.
const (
	accepted  excuse = "accepted"  // the connection had been accepted, and no request on it had been read
	kept      excuse = "kept"      // the connection had carried requests, and this one had not been read
	answering excuse = "answering" // the request was in hand
	answered  excuse = "answered"  // the kernel had the answer, and threw it away with the process
	// the worker was killed between accept(2), or the read of a datagram, and the note: once for each that is killed
	unnoted excuse = "unnoted"
	meant   excuse = "meant" // the version is made to die
)

// Violation is a request that was lost without an excuse, or should have been answered otherwise, with what is known of
// it.
type Violation struct {
	exchange
	Why string
}

func (v Violation) String() string {
	q := v.exchange
	if q.Lost == nil {
		return v.Why
	}
	took := func(from uint64) time.Duration { return time.Duration(q.Ended - from).Round(10 * time.Microsecond) }
	text := fmt.Sprintf("%s: request %016x was lost: %s: %s; %s; client port %d, connected %s and sent %s before, at "+
		"%d; %d answers on the connection",
		q.name(), q.ID, q.Lost.Kind, q.Lost.Text, v.Why, q.Port, took(q.Dialed), took(q.Sent), q.Ended, q.Answers)
	if w := q.Worker; w.PID != 0 {
		text += fmt.Sprintf(", by PID %d of generation %d", w.PID, w.Generation)
	}
	return text
}

// Sent is when the request was sent; false: it is no request.
func (v Violation) Sent() (at time.Time, is bool) {
	return time.Now().Add(-time.Duration(account.Now() - v.exchange.Sent)), v.Lost != nil
}

func (q *exchange) name() string { return q.Program + "/" + q.Load }

// verdict says whether a failed request is excused, or else why not. known is false while a worker is being killed that
// may be the excuse.
func verdict(q exchange, lives map[string]*life) (why string, because excuse, known bool) {
	if q.Port == 0 {
		return "there was no connection", "", true
	}
	if q.Wrong {
		return "an answer came, and it was wrong", "", true
	}
	var of *life
	var first *left
	for _, l := range lives {
		if e := l.find(q); e != nil && (first == nil || e.since < first.since) {
			of, first = l, e
		}
	}
	if of != nil {
		return of.had(q, first)
	}
	for _, l := range lives {
		if l.program == q.Program && l.mayHaveTaken(q) {
			if l.killing {
				return "", "", false
			}
			l.spared = true
			return "", unnoted, true
		}
	}
	return "no worker has the connection", "", true
}

// find returns the connection of a request, if the worker has it or had it at its end. Once a connection is reset its
// port is free, so the next one may have it before the client has noticed.
func (l *life) find(q exchange) *left {
	if l.program != q.Program || q.Program != "udp" && q.Worker.PID != 0 &&
		(l.pid != q.Worker.PID || l.start != q.Worker.Started) {
		return nil
	}
	all := l.left
	if l.seen != nil {
		all = entries(l.seen.Sheet)
	}
	for _, e := range all {
		if e.port == uint64(q.Port) && e.since >= q.began() && e.since <= q.Ended {
			return e
		}
	}
	return nil
}

// began is when a worker can have noted the request's connection, or its datagram, at the earliest.
func (q *exchange) began() uint64 {
	if q.Program == "udp" {
		return q.Sent
	}
	return q.Dialed
}

// had judges a request whose connection the worker has, or had at its end.
func (l *life) had(q exchange, e *left) (why string, because excuse, known bool) {
	who := fmt.Sprintf("the connection is that of PID %d of generation %d, which", l.pid, l.generation)
	switch {
	case l.killing || l.killed && l.seen != nil: // what it leaves is not known yet
		return "", "", false
	case l.seen != nil:
		return who + " lives", "", true
	case !l.killed && !l.lossy:
		return who + " ended by itself or by its supervisor", "", true
	case l.killed && q.Ended < l.from:
		return who + " was killed later", "", true
	case e.id != 0 && e.id != q.ID && e.id != q.Previous: // the previous one was answered, and that was not noted any more
		return fmt.Sprintf("%s was killed with request %016x in hand", who, e.id), "", true
	case e.used:
		return who + " was killed, and it has excused another request", "", true
	}
	e.used = true
	switch {
	case l.lossy && !l.killed:
		because = meant
	case e.id == q.ID:
		because = answering
	case e.last == q.ID:
		because = answered
	case e.last != 0:
		because = kept
	default:
		because = accepted
	}
	return "", because, true
}

// slack is how long after the end of a worker its clients learn of it, on a busy machine.
const slack = uint64(5 * time.Second)

// mayHaveTaken reports whether the worker may have died with the request before it could note it.
func (l *life) mayHaveTaken(q exchange) bool {
	switch {
	case l.spared || !l.killing && !l.killed || q.Ended < l.from:
		return false
	case q.Program == "udp":
		return q.Lost.Kind == load.TimedOut && (l.killing || q.Sent < l.to)
	case q.Lost.Kind == load.TimedOut || q.Worker.PID != 0:
		// the end of a process closes its connections; who has answered has noted it
		return false
	}
	return l.killing || q.Dialed < l.to && q.Ended < l.to+slack
}
