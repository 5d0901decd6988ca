package load

import (
	"net/http"
	"sync"
	"sync/atomic"
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

// New begins a load without requests: Rate and Loop add them. each is called for every request that Abandon did not cut, concurrently.
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

// Loop sends s's requests from so many workers, each the next one when the last was answered and pause has passed, until there
// were total requests; 0: until Stop. pause may be nil.
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
