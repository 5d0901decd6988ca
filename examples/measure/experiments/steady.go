package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// load is what is brought on a server until it is ended.
type load struct {
	record
	stop    []func()
	callers []*caller
	running sync.WaitGroup
}

// steady asks at a constant rate, whatever the answers take: half of the requests on new connections, half on kept ones.
func steady(url string, rate int) *load {
	l := &load{record: record{began: time.Now()}}
	l.attack(url, rate/2, false)
	l.attack(url, rate-rate/2, true)
	return l
}

func (l *load) attack(url string, rate int, keep bool) {
	c := &caller{keep: keep}
	l.callers = append(l.callers, c)
	client := &http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	attacker := vegeta.NewAttacker(vegeta.Client(client))
	l.stop = append(l.stop, func() { attacker.Stop() })
	results := attacker.Attack(vegeta.NewStaticTargeter(vegeta.Target{Method: "GET", URL: url}), vegeta.Rate{Freq: rate, Per: time.Second}, 0, "")
	l.running.Go(func() {
		for r := range results {
			var err error
			switch {
			case r.Error != "":
				err = errors.New(r.Error)
			case r.Code != http.StatusOK:
				err = fmt.Errorf("status %d", r.Code)
			}
			l.add(r.Timestamp, r.Latency, err)
		}
	})
}

// closed adds so many clients that each ask again as soon as they are answered, on connections that they keep.
func (l *load) closed(url string, clients int) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = append(l.stop, cancel)
	for range clients {
		c := &caller{keep: true}
		l.callers = append(l.callers, c)
		l.running.Go(func() {
			for ctx.Err() == nil {
				at := time.Now()
				err := c.ask(context.Background(), "GET", url, "")
				l.add(at, time.Since(at), err)
				if err != nil && pause(ctx, time.Millisecond) != nil { // not as fast as a refusal comes
					return
				}
			}
		})
	}
}

// end stops the load and waits for what is under way. Calling it again does nothing.
func (l *load) end() {
	for _, stop := range l.stop {
		stop()
	}
	l.running.Wait()
	for _, c := range l.callers {
		c.close()
	}
}

func (l *load) now() time.Duration { return time.Since(l.began) }
