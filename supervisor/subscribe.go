package supervisor

import (
	"slices"
	"time"

	"example.org/supervisord/supervisor/program"
)

// Update is a report as subscribers get it. They share it: it must not be changed.
type Update struct {
	Time    time.Time     `json:"time"`
	Program string        `json:"program"`
	Level   program.Level `json:"level"`
	Text    string        `json:"text"` // what happened, for people
	program.Report
}

// subscription is how many updates may wait for a subscriber that does not read, before its channel is closed.
const subscription = 4096

// subscribers get every update. They belong to the loop.
type subscribers []chan *Update

func (s *subscribers) add() <-chan *Update {
	c := make(chan *Update, subscription)
	*s = append(*s, c)
	return c
}

func (s *subscribers) remove(updates <-chan *Update) {
	*s = slices.DeleteFunc(*s, func(c chan *Update) bool {
		if c == updates {
			close(c)
		}
		return c == updates
	})
}

// publish gives an update to every subscriber. It drops one that does not read, because the loop never waits.
func (s *subscribers) publish(u *Update) {
	*s = slices.DeleteFunc(*s, func(c chan *Update) bool {
		select {
		case c <- u:
			return false
		default:
			close(c)
			return true
		}
	})
}

func (s *subscribers) end() {
	for _, c := range *s {
		close(c)
	}
	*s = nil
}
