package traffic

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/tests/soak/account"
)

const second = uint64(time.Second)

// reset is a request that was sent at second 10 on a connection of second 5, and reset a second later.
func reset() exchange {
	return exchange{Program: "naive", Load: "session", ID: 7, Port: 1111, Answers: 2, Previous: 6,
		Worker: account.Answer{PID: 42}, Dialed: 5 * second, Sent: 10 * second, Ended: 11 * second,
		Lost: &load.Lost{Kind: load.Reset}}
}

// unanswered is reset on a connection that never had an answer.
func unanswered() exchange {
	q := reset()
	q.Answers, q.Previous, q.Worker = 0, 0, account.Answer{}
	return q
}

// killed is a worker that was killed on purpose at second 10, and left these.
func killed(all ...*left) *life {
	return &life{program: "naive", pid: 42, generation: 3, left: all, ended: 12 * second, killed: true, from: 10 * second,
		to: 10*second + second/2}
}

// datagram is one that was sent at second 10, and had no answer for 30 s.
func datagram() exchange {
	q := reset()
	q.Program, q.Load, q.Ended, q.Lost = "udp", "datagram", 40*second, &load.Lost{Kind: load.TimedOut}
	return q
}

// alive is a worker with a connection of second 6.
func alive(t *testing.T, port, id uint64) *life {
	t.Helper()
	page := new(account.Sheet)
	e := &page.Entries[3]
	e.Port.Store(port)
	e.Since.Store(6 * second)
	e.ID.Store(id)
	return &life{program: "naive", pid: 42, generation: 3, seen: &account.Seen{Sheet: page}}
}

// TestVerdictIsAboutTheWorkerThatHadTheConnectionFirst has another worker accept a connection from the same port before
// the client notices the reset.
func TestVerdictIsAboutTheWorkerThatHadTheConnectionFirst(t *testing.T) {
	page := new(account.Sheet)
	page.Entries[0].Port.Store(1111)
	page.Entries[0].Since.Store(11*second - 1)
	next := &life{program: "naive", pid: 43, generation: 3, seen: &account.Seen{Sheet: page}}
	for want, q := range map[excuse]exchange{kept: reset(), accepted: unanswered()} {
		for range 10 { // the order of a map differs
			had := &left{port: 1111, since: 6 * second, last: q.Previous}
			if why, because, _ := verdict(q, map[string]*life{"killed": killed(had), "next": next}); because != want {
				t.Fatalf("%q, %q, want %q", because, why, want)
			}
		}
	}
	if why, _, _ := verdict(reset(), map[string]*life{"next": next}); why != "no worker has the connection" {
		t.Error(why)
	}
}

func TestVerdicts(t *testing.T) {
	had := func(id, last uint64) *left { return &left{port: 1111, since: 5*second + 1, id: id, last: last} }
	change := func(q exchange, f func(*exchange)) exchange { f(&q); return q }
	with := func(l *life, all ...func(*life)) *life {
		for _, f := range all {
			f(l)
		}
		return l
	}
	const none = "!no worker has the connection"
	udp := func(l *life) { l.program = "udp" }
	unkilled := func(l *life) { l.killed = false }
	killing := func(l *life) { l.killing, l.from = true, 10*second }
	used := had(7, 6)
	used.used = true
	kind := func(k load.LossKind) func(*exchange) { return func(q *exchange) { q.Lost = &load.Lost{Kind: k} } }
	for name, one := range map[string]struct {
		q    exchange
		of   *life
		want string // the excuse, "wait", or "!" and part of why not
	}{
		"in hand":                           {reset(), killed(had(7, 6)), "answering"},
		"answer on its way":                 {reset(), killed(had(0, 7)), "answered"},
		"keep-alive connection":             {reset(), killed(had(0, 6)), "kept"},
		"answer before not noted":           {reset(), killed(had(6, 5)), "kept"},
		"nothing read yet":                  {unanswered(), killed(had(0, 0)), "accepted"},
		"another request in hand":           {reset(), killed(had(8, 6)), "!request 0000000000000008 in hand"},
		"another port":                      {reset(), killed(&left{port: 2222, since: 6 * second, id: 7}), none},
		"an older connection from the port": {reset(), killed(&left{port: 1111, since: 4 * second, id: 7}), none},
		"a later connection from the port":  {reset(), killed(&left{port: 1111, since: 12 * second, id: 7}), none},
		"another program": {change(reset(), func(q *exchange) { q.Program = "polite" }), killed(had(7, 6)),
			none},
		"lost before the kill": {change(reset(), func(q *exchange) { q.Sent, q.Ended = 9*second, 10*second-1 }),
			killed(had(7, 6)), "!was killed later"},
		"an excuse is used once": {reset(), killed(used), "!another request"},
		"worker lives":           {reset(), alive(t, 1111, 7), "!lives"},
		"worker ended by itself": {reset(), with(killed(had(7, 6)), unkilled), "!ended by itself"},
		"worker is being killed": {reset(), with(alive(t, 1111, 7), killing), "wait"},
		"its end is not seen yet": {reset(),
			with(alive(t, 1111, 7), func(l *life) { l.killed, l.from = true, 10*second }), "wait"},
		"a version that is made to die": {reset(),
			with(killed(had(7, 6)), func(l *life) { l.killed, l.lossy = false, true }), "meant"},
		"refused": {change(unanswered(), func(q *exchange) { q.Port = 0; kind(load.Refused)(q) }),
			killed(had(7, 6)), "!no connection"},
		"wrong answer": {change(reset(), func(q *exchange) { q.Wrong = true }), killed(had(7, 6)), "!it was wrong"},

		"accepted, not noted":           {unanswered(), killed(), "unnoted"},
		"not noted: once":               {unanswered(), with(killed(), func(l *life) { l.spared = true }), none},
		"not noted: while it is killed": {unanswered(), with(alive(t, 2222, 0), killing), "wait"},
		"not noted: answered before":    {reset(), killed(), none},
		"not noted: part of an answer":  {change(unanswered(), func(q *exchange) { q.Worker.PID = 42 }), killed(), none},
		"not noted: timeout":            {change(unanswered(), kind(load.TimedOut)), killed(), none},
		"not noted: connected after": {change(unanswered(), func(q *exchange) { q.Dialed = 10*second + second/2 }),
			killed(), none},
		"not noted: lost before":       {change(unanswered(), func(q *exchange) { q.Ended = 10*second - 1 }), killed(), none},
		"not noted: lost long after":   {change(unanswered(), func(q *exchange) { q.Ended = 20 * second }), killed(), none},
		"not noted: nobody was killed": {unanswered(), with(killed(), unkilled), none},
		"datagram in hand": {datagram(), with(killed(&left{port: 1111, since: 10*second + 1, id: 7}), udp),
			"answering"},
		"datagram of before from the port": {datagram(), with(killed(&left{port: 1111, since: 9 * second, id: 6}), udp,
			func(l *life) { l.spared = true }), none},
		"datagram, not noted": {datagram(), with(killed(), udp), "unnoted"},
		"datagram, sent after the kill": {change(datagram(), func(q *exchange) { q.Sent = 11 * second }),
			with(killed(), udp), none},
		"datagram, refused": {change(datagram(), kind(load.Refused)), with(killed(), udp), none},
	} {
		t.Run(name, func(t *testing.T) {
			why, because, known := verdict(one.q, map[string]*life{"": one.of})
			got := string(because)
			switch {
			case !known:
				got = "wait"
			case because == "":
				got = "!" + why
			}
			if part, negative := strings.CutPrefix(one.want, "!"); got != one.want &&
				!(negative && strings.HasPrefix(got, "!") && strings.Contains(got, part)) {
				t.Errorf("%q, want %q", got, one.want)
			}
		})
	}
}
