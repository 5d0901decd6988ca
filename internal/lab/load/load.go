// Package load puts requests on a service and measures what becomes of them. The tests, `supervisord prove` and the
// measuring programs share it; it does not import testing.
//
// A Driver sends requests and never sends one twice. A Load repeats a Driver's requests, at a constant rate or in
// closed loops, and reports each as an Attempt. Times and LongestGap summarize samples.
//
// # A client with a network in front
//
// On loopback a client learns within microseconds that a server has closed a connection, and its request arrives
// microseconds after the connect. A remote client is one round trip behind: its request crosses the close on the way,
// or arrives on a connection that the server accepted long before. A Driver with a RoundTrip behaves like the remote
// one: on a new connection it waits for that time between connect and request, which the latency does not include; a
// request on a keep-alive connection counts as lost if the server closed the idle connection less than that time
// before. A connection that was closed earlier is replaced silently, as every client does.
package load

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Load repeats requests until Stop, each reported as a Attempt.
type Load struct {
	began   time.Time
	each    func(Attempt)
	stop    chan struct{}
	ended   sync.Once
	running sync.WaitGroup
	senders []*Driver
}

// New begins a load without requests: Rate and Loop add them. each is called for every request that Abandon did not
// cut, concurrently.
func New(each func(Attempt)) *Load {
	return &Load{began: time.Now(), each: each, stop: make(chan struct{})}
}

// Now returns the time since the load began.
func (l *Load) Now() time.Duration { return time.Since(l.began) }

// Rate sends s's requests at a constant rate, however long the answers take.
func (l *Load) Rate(s *Driver, perSecond int) {
	l.senders = append(l.senders, s)
	attacker := vegeta.NewAttacker(vegeta.Client(&http.Client{Transport: pacer(func() { l.add(s.Send(l.began)) })}))
	results := attacker.Attack(vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: "http://load"}),
		vegeta.Rate{Freq: perSecond, Per: time.Second}, 0, "")
	l.running.Go(func() {
		<-l.stop
		attacker.Stop()
	})
	l.running.Go(func() {
		defer s.Close()
		for range results {
		}
	})
}

// pacer is called whenever vegeta wants to send a request: vegeta keeps the pace, and the Driver sends.
type pacer func()

// RoundTrip sends nothing by itself.
func (p pacer) RoundTrip(r *http.Request) (*http.Response, error) {
	p()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// Loop sends s's requests from so many workers, each the next one when the last was answered and pause has passed,
// until there were total requests; 0: until Stop. pause may be nil.
func (l *Load) Loop(s *Driver, workers, total int, pause func() time.Duration) {
	l.senders = append(l.senders, s)
	l.Repeat(s.Send, workers, total, pause)
}

// Repeat is Loop for any function.
func (l *Load) Repeat(request func(since time.Time) Attempt, workers, total int, pause func() time.Duration) {
	var left atomic.Int64
	left.Store(int64(total))
	for range workers {
		l.running.Go(func() {
			for !l.over() && (total == 0 || left.Add(-1) >= 0) {
				a := request(l.began)
				l.add(a)
				l.rest(a, pause)
			}
		})
	}
}

// rest waits between two requests of a loop. One that was lost at once is not repeated at once.
func (l *Load) rest(a Attempt, pause func() time.Duration) {
	d := time.Duration(0)
	if pause != nil {
		d = pause()
	} else if a.Lost != nil {
		d = time.Millisecond
	}
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.stop:
	}
}

func (l *Load) add(a Attempt) {
	if a.Lost == nil || !a.Lost.abandoned {
		l.each(a)
	}
}

func (l *Load) over() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// Wait waits until every Loop has sent its total.
func (l *Load) Wait() {
	l.running.Wait()
	l.Stop()
}

// Stop sends nothing more, waits for the requests in flight, and closes the connections. A second call does nothing.
func (l *Load) Stop() {
	l.ended.Do(func() { close(l.stop) })
	l.running.Wait()
	for _, c := range l.senders {
		c.Close()
	}
}

// Abandon is Stop that cuts the requests in flight.
func (l *Load) Abandon() {
	l.ended.Do(func() { close(l.stop) })
	for _, c := range l.senders {
		c.Abandon()
	}
	l.Stop()
}

// LossKind says how a request was lost. Its text is the word in JSON.
type LossKind string

// The kinds of loss.
const (
	Refused  LossKind = "refused" // no connection: nothing listens, or the queue of a unix socket is full
	Reset    LossKind = "reset"   // the connection was cut with RST
	Closed   LossKind = "closed"  // the connection was closed before the whole answer had come
	TimedOut LossKind = "timeout" // no whole answer in time
	Status5  LossKind = "5xx"     // a server error as the answer
	// anything else: another status of 400 or more, not HTTP, no port or descriptor left for the client
	Other LossKind = "other"
)

// Kinds lists all kinds of loss, the worst first.
var Kinds = []LossKind{Refused, Reset, Closed, TimedOut, Status5, Other}

// Lost says why a request was lost.
type Lost struct {
	Kind   LossKind
	Reused bool // on a connection that had carried a request before
	Text   string

	abandoned bool // cut by Driver.Abandon
}

func (l *Lost) Error() string { return l.Text }

// errClosed is the loss of a request that would have crossed the close of its connection.
var errClosed = errors.New("the worker closed")

// lost classifies an error; nil stays nil.
func lost(err error, reused bool) *Lost {
	if err == nil {
		return nil
	}
	return &Lost{Kind: kindOf(err), Reused: reused, Text: err.Error()}
}

// kindOf classifies an error of the network or of an Ask.
func kindOf(err error) LossKind {
	var late net.Error
	var status *statusError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EAGAIN):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.As(err, &late) && late.Timeout():
		return TimedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errClosed):
		return Closed
	case errors.As(err, &status) && status.code >= 500:
		return Status5
	}
	return Other
}
