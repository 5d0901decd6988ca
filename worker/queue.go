package worker

import "sync"

// queue passes a worker's events, in order, to the goroutine that posts them. put does not wait, so that a slow receiver holds up its own
// worker only; what a worker can repeat at will is kept once, so that the queue cannot grow without limit.
type queue struct {
	wake chan struct{}

	mu     sync.Mutex
	events []Event
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(e Event) {
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
func (q *queue) older(e Event) int {
	for i, have := range q.events {
		switch have.(type) {
		case Changed:
			if _, same := e.(Changed); same {
				return i
			}
		case Status:
			if _, same := e.(Status); same {
				return i
			}
		case Extend:
			if _, same := e.(Extend); same {
				return i
			}
		case Watchdog:
			if new, same := e.(Watchdog); same && !have.(Watchdog).Trigger || same && new.Trigger {
				return i
			}
		}
	}
	return -1
}

// take waits for events and takes all there are.
func (q *queue) take() []Event {
	<-q.wake
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}
