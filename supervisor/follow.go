package supervisor

import (
	"time"

	"example.org/supervisord/supervisor/program"
)

// Update is a report as it goes to those who follow.
type Update struct {
	Time    time.Time `json:"time"`
	Program string    `json:"program"`
	program.Report
}

// followed is how many updates may wait for a reader before it is given up. They are shared, not copied: not to be changed.
const followed = 4096

// Follow is a FollowRequest from before Start, or Restore: not even the first update is missed. After that it is for the loop.
func (s *Supervisor) Follow() <-chan *Update { return s.follow() }

func (s *Supervisor) follow() <-chan *Update {
	c := make(chan *Update, followed)
	s.followers = append(s.followers, c)
	return c
}

func (s *Supervisor) unfollow(c <-chan *Update) {
	for i, f := range s.followers {
		if f == c {
			close(f)
			s.followers = append(s.followers[:i], s.followers[i+1:]...)
			return
		}
	}
}

// publish gives an update to everyone who follows. One who does not read is dropped: the loop waits for nobody.
func (s *Supervisor) publish(u Update) {
	for i := 0; i < len(s.followers); {
		select {
		case s.followers[i] <- &u:
			i++
		default:
			s.unfollow(s.followers[i])
		}
	}
}
