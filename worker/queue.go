package worker

import (
	"sync"

	"example.org/supervisord/worker/life"
)

// queue passes a worker's events, in order, to the goroutine that posts them. put does not wait, so that a slow receiver holds up its own
// worker only; what a worker can repeat at will is kept once, so that the queue cannot grow without limit.
type queue struct {
	wake chan struct{}

	mu     sync.Mutex
	events []life.Event
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(e life.Event) {
	q.mu.Lock()
	if i := q.older(e); i >= 0 {
		q.events[i] = e
	} else {
		q.events = append(q.events, e)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// older returns the index of an event that e replaces, or -1.
func (q *queue) older(e life.Event) int {
	for i, have := range q.events {
		switch have.(type) {
		case life.Changed:
			if _, same := e.(life.Changed); same {
				return i
			}
		case life.Status:
			if _, same := e.(life.Status); same {
				return i
			}
		case life.Extend:
			if _, same := e.(life.Extend); same {
				return i
			}
		case life.Watchdog:
			if new, same := e.(life.Watchdog); same && !have.(life.Watchdog).Trigger || same && new.Trigger {
				return i
			}
		}
	}
	return -1
}

// take waits for events and takes all there are.
func (q *queue) take() []life.Event {
	<-q.wake
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}
