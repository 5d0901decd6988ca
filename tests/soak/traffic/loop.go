package traffic

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/tests/soak/account"
)

// exchange is a request and what is known of its connection.
type exchange struct {
	Program, Load string
	ID            uint64
	Port          int            // of the client; 0: there was no connection
	Answers       int            // to earlier requests on the connection
	Previous      uint64         // the last of those requests; 0: there was none
	Worker        account.Answer // that gave the last of them, or this one
	Dialed, Sent  uint64         // account.Now
	Ended         uint64
	Lost          *load.Lost // nil: it was answered
	Wrong         bool       // an answer came, and it was wrong
}

// loop sends one request after the other. Only its counters may be used by others.
type flow struct {
	t                  *Generator
	program, kind      string
	address            string
	number             uint64
	random             *rand.Rand
	sender             *load.Driver
	end                func() // closes what is not a Sender's; nil: nothing
	left               int    // requests until the client closes; 0: any number
	now                exchange
	last               time.Time // of the last answer
	body               bytes.Buffer
	requests, answered atomic.Uint64
}

func (l *flow) name() string { return l.program + "/" + l.kind }

// once sends the next request and books it. send has the connection.
func (l *flow) once(send func(since time.Time) load.Attempt) func(time.Time) load.Attempt {
	return func(since time.Time) load.Attempt {
		n := l.requests.Add(1)
		l.now.ID, l.now.Sent = l.number<<40|n, account.Now()
		attempt := send(since)
		if attempt.Lost == nil {
			l.answered.Add(1)
			l.now.Answers++
			l.now.Previous = l.now.ID
			l.last = time.Now()
			return attempt
		}
		l.now.Ended, l.now.Lost = account.Now(), attempt.Lost
		l.t.judge.add(l.now)
		l.now = exchange{Program: l.program, Load: l.kind}
		return attempt
	}
}

// dial makes the loop's next connection.
func (l *flow) dial(ctx context.Context, dialer *net.Dialer, network string) (net.Conn, error) {
	l.now = exchange{Program: l.program, Load: l.kind, ID: l.now.ID, Sent: l.now.Sent, Dialed: account.Now()}
	c, err := dialer.DialContext(ctx, network, l.address)
	if err != nil {
		return nil, err
	}
	switch a := c.LocalAddr().(type) {
	case *net.TCPAddr:
		l.now.Port = a.Port
	case *net.UDPAddr:
		l.now.Port = a.Port
	}
	return c, nil
}

// see looks at the text of an answer.
func (l *flow) see(text []byte) error { return l.right(l.check(text)) }

// right notes that what came was wrong.
func (l *flow) right(err error) error {
	l.now.Wrong = l.now.Wrong || err != nil
	return err
}

// check looks at who answers: the one who answered before on this connection, of a generation that may.
func (l *flow) check(text []byte) error {
	a, err := account.ParseAnswer(text)
	if err != nil {
		return err
	}
	before := l.now.Worker
	l.now.Worker = a
	switch {
	case a.Poison:
		return fmt.Errorf("poison: generation %d must never serve", a.Generation)
	case a.ID != l.now.ID:
		return fmt.Errorf("the answer belongs to request %016x", a.ID)
	case l.program == "udp": // each datagram is a connection of its own
		if gone := l.t.withdrawn(l.program, a.Generation); gone != 0 && gone < l.now.Sent {
			return fmt.Errorf("generation %d was withdrawn %s before the datagram was sent", a.Generation,
				time.Duration(l.now.Sent-gone))
		}
	case l.now.Answers == 0:
		if gone := l.t.withdrawn(l.program, a.Generation); gone != 0 && gone < l.now.Dialed {
			return fmt.Errorf("generation %d was withdrawn %s before the connection was made", a.Generation,
				time.Duration(l.now.Dialed-gone))
		}
	case a.PID != before.PID || a.Started != before.Started:
		return fmt.Errorf("another worker than before answers on the connection, PID %d instead of %d", a.PID, before.PID)
	}
	return nil
}

// ask is the load.Ask of the short requests. There are millions of them, so it does not write them with net/http.
func (l *flow) ask(c *load.Wire, last bool) (bool, error) {
	header := ""
	if last {
		header = "Connection: close\r\n"
	}
	if _, err := fmt.Fprintf(c, "GET /%016x HTTP/1.1\r\nHost: soak\r\n%s\r\n", l.now.ID, header); err != nil {
		return true, err
	}
	answer, err := http.ReadResponse(c.In, nil)
	if err != nil {
		return true, err
	}
	l.body.Reset()
	if _, err := l.body.ReadFrom(answer.Body); err != nil {
		return true, err
	}
	if err := l.good(answer); err != nil {
		return true, err
	}
	if err := l.see(l.body.Bytes()); err != nil {
		return true, err
	}
	return answer.Close || l.over(), nil
}

func (l *flow) good(answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return l.right(fmt.Errorf("status %d", answer.StatusCode))
	}
	return nil
}

// over counts down the requests of a session.
func (l *flow) over() bool {
	if l.left == 0 {
		return false
	}
	if l.left--; l.left > 0 {
		return false
	}
	l.left = 1 + l.random.IntN(4)
	return true
}

func (l *flow) close() {
	if l.sender != nil {
		l.sender.Close()
	}
	if l.end != nil {
		l.end()
	}
}
