package supervisor

import (
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/record"
)

// request asks for a reload of the configuration, by itself (HUP, a changed file) or because a client asked.
type request struct {
	reason  string
	askedBy string // of several the last
	itself  bool
	all     bool          // replace the workers of every program, not only of those that changed
	canary  int           // workers
	share   int           // of new connections, in parts of 10,000
	hold    time.Duration // of the canary
	askers  []asker
}

// asker waits for the reply to a request.
type asker struct {
	programs []string // replace the workers of these; none: of all
	reply    func([]Ticket, error)
}

// partial reports whether r asks for a canary.
func (r request) partial() bool { return r.canary > 0 || r.share > 0 }

// wider returns a request that does what both ask for. Neither may be a canary.
func (r request) wider(with request) request {
	return request{reason: r.reason, askedBy: r.askedBy, itself: r.itself || with.itself, all: r.all || with.all, askers: slices.Concat(with.askers, r.askers)}
}

// replaces reports whether the workers of a program are to be replaced, changed or not.
func (r request) replaces(name string) bool {
	return r.all || slices.ContainsFunc(r.askers, func(a asker) bool { return len(a.programs) == 0 || slices.Contains(a.programs, name) })
}

// end replies with an error to everyone who waits for the request.
func (r request) end(err error) {
	for _, a := range r.askers {
		a.reply(nil, err)
	}
}

// refuse rejects the askers that name a program that c does not have, and returns the request of the others; false: none are left.
func (r request) refuse(c *config.Config) (request, bool) {
	asked := r.askers
	r.askers = nil
	for _, a := range asked {
		if err := missing(c, a.programs); err != nil {
			a.reply(nil, err)
			continue
		}
		r.askers = append(r.askers, a)
	}
	return r, r.itself || len(r.askers) > 0
}

func missing(c *config.Config, programs []string) error {
	var names []string
	for _, p := range c.Programs {
		names = append(names, p.Name)
	}
	for _, name := range programs {
		if !slices.Contains(names, name) {
			return noProgram(name, names)
		}
	}
	return nil
}

// maxDue is how many requests may wait for the configuration; a canary beyond that is refused.
const maxDue = 100

// configReader reads the configuration off the loop, for one request after the other.
type configReader struct {
	now *request  // whose configuration is being read; nil: none
	due []request // asked for meanwhile, in order
}

// add queues a request. It is merged with the last one that waits, unless one of the two is a canary: both see whatever changed.
func (q *configReader) add(r request) error {
	last := len(q.due) - 1
	switch {
	case last >= 0 && !r.partial() && !q.due[last].partial():
		q.due[last] = r.wider(q.due[last])
	case r.partial() && len(q.due) >= maxDue:
		return fmt.Errorf("%w: %d requests already wait for the configuration", ErrState, maxDue)
	default:
		q.due = append(q.due, r)
	}
	return nil
}

// next makes the oldest request the one that is read; false: one is being read, or none waits.
func (q *configReader) next() (request, bool) {
	if q.now != nil || len(q.due) == 0 {
		return request{}, false
	}
	r := q.due[0]
	q.now, q.due = &r, q.due[1:]
	return r, true
}

// all lists the requests that are not applied yet, oldest first.
func (q *configReader) all() []request {
	if q.now == nil {
		return q.due
	}
	return slices.Concat([]request{*q.now}, q.due)
}

// end drops the requests that wait.
func (q *configReader) end(err error) {
	for _, r := range q.due {
		r.end(err)
	}
	q.due = nil
}

// pending returns nil if no reload by itself waits.
func (q *configReader) pending() *record.PendingReload {
	var p *record.PendingReload
	for _, r := range q.all() {
		if r.itself {
			p = &record.PendingReload{Reason: r.reason, AskedBy: r.askedBy, All: r.all || p != nil && p.All}
		}
	}
	return p
}

// reload reads the configuration and applies it, when the requests before r are done.
func (s *Supervisor) reload(r request) {
	err := ErrStopping
	if !s.stopping() {
		err = s.reader.add(r)
	}
	if err != nil {
		r.end(err)
		return
	}
	s.read()
}

// read begins the next request, if none is being read.
func (s *Supervisor) read() {
	r, begins := s.reader.next()
	if !begins {
		return
	}
	known, open := s.programs.known(), s.programs.endpoints()
	s.later(func() func() {
		l, err := bounded(s.ctx, s.disks, "", "reading the configuration", func() (*loaded, error) {
			c, err := s.Load()
			if err != nil {
				return nil, err
			}
			if err := c.CheckProbes(open); err != nil {
				return nil, err
			}
			return resolve(s.ctx, c, known)
		})
		return func() { s.loaded(r, l, err) }
	})
}

// loaded applies what was read, and continues with the next request.
func (s *Supervisor) loaded(r request, l *loaded, err error) {
	s.reader.now = nil
	if s.stopping() {
		r.end(ErrStopping)
		s.reader.end(ErrStopping)
		return
	}
	s.follow(r, l, err)
	s.read()
}
