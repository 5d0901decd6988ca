package supervisor

import (
	"slices"
	"time"

	"example.org/supervisord/supervisor/program"
)

// Update is a report as subscribers get it. They share it: it must not be changed.
type Update struct {
	Time    time.Time `json:"time"`
	Program string    `json:"program"`
	program.Report
}

// subscription is how many updates may wait for a subscriber that does not read, before its channel is closed.
const subscription = 4096

// SubscribeFirst is Subscribe before Start or Restore: not even the first update is missed.
func (s *Supervisor) SubscribeFirst() <-chan *Update { return s.subscribe() }

func (s *Supervisor) subscribe() <-chan *Update {
	c := make(chan *Update, subscription)
	s.subscribers = append(s.subscribers, c)
	return c
}

func (s *Supervisor) unsubscribe(updates <-chan *Update) {
	s.subscribers = slices.DeleteFunc(s.subscribers, func(c chan *Update) bool {
		if c == updates {
			close(c)
		}
		return c == updates
	})
}

// publish gives an update to every subscriber. It drops one that does not read: the loop waits for nobody.
func (s *Supervisor) publish(u Update) {
	s.subscribers = slices.DeleteFunc(s.subscribers, func(c chan *Update) bool {
		select {
		case c <- &u:
			return false
		default:
			close(c)
			return true
		}
	})
}
