package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// ReloadBody is the body of POST /v1/reload.
type ReloadBody struct {
	Programs []string `json:"programs"` // none: all of them
	Reason   string   `json:"reason"`   // for the log
	Canary   int      `json:"canary"`   // this many workers first; nothing else is changed
	Hold     bool     `json:"hold"`     // … until promote or abort, or for as long as For says
	For      string   `json:"for"`      // … or until they were well for so long: "5m"
	Wait     bool     `json:"wait"`     // answer with a stream of Lines, the last of which has a Verdict
	Drained  bool     `json:"drained"`  // wait for the end of the generation before, too
	Timeout  string   `json:"timeout"`  // of the wait; default "5m"
}

// Line is a line of an answer that is waited for. One of its fields is there.
type Line struct {
	Tickets []supervisor.Ticket `json:"tickets,omitempty"` // first: what was begun
	Update  *supervisor.Update  `json:"update,omitempty"`
	Program *ProgramVerdict     `json:"program,omitempty"` // one of several programs has come to its end
	Verdict *Verdict            `json:"verdict,omitempty"` // last
}

// The bounds of a wait.
const (
	defaultWait = 5 * time.Minute
	maxWait     = 24 * time.Hour
)

// request checks the body.
func (b *ReloadBody) request() (q supervisor.ReloadRequest, err error) {
	q = supervisor.ReloadRequest{Programs: b.Programs, Reason: printable(b.Reason, maxReason), Canary: b.Canary}
	if q.For, err = duration("for", b.For, 0); err != nil {
		return q, err
	}
	switch {
	case len(b.Reason) > maxReason:
		return q, problem(BadRequest, "the reason is too long", fmt.Sprintf("at most %d bytes", maxReason))
	case b.Canary < 0 || b.Canary > supervisor.MaxWorkers:
		return q, problem(BadRequest, "canary is out of range", fmt.Sprintf("write a number from 1 to %d", supervisor.MaxWorkers))
	case b.Canary == 0 && (b.Hold || b.For != ""):
		return q, problem(BadRequest, "hold and for need canary", "say how many workers, such as 1")
	case b.Canary > 0 && !b.Hold && b.For == "":
		return q, problem(BadRequest, "a canary needs hold or for", "hold waits for promote or abort, for promotes it after a time")
	}
	return q, nil
}

// duration reads a duration, or takes the default for "".
func duration(key, text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxWait {
		return 0, problem(BadRequest, fmt.Sprintf("%s: %q is no duration", key, text), `write one such as "30s" or "5m", at most 24h`)
	}
	return d, nil
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	var b ReloadBody
	if err := body(r, &b); err != nil {
		return err
	}
	if b.Wait {
		return s.reloadAndWait(w, r, b)
	}
	answer, err := Reload(r.Context(), s.Asker, b, whoAsks(r.Context()))
	if err != nil {
		return err
	}
	return respond(w, answer)
}

// Reload asks for a reload that nobody waits for, on behalf of by, and returns when the configuration has been applied. One that has been asked for
// goes on, whoever has gone away meanwhile. Errors: see ProblemOf.
func Reload(ctx context.Context, loop Asker, b ReloadBody, by string) (*Accepted, error) {
	q, err := b.request()
	q.AskedBy = by
	if err != nil {
		return nil, err
	}
	v, err := askWithin(ctx, loop, reloadTimeout, q)
	if err != nil {
		return nil, err
	}
	return &Accepted{append([]supervisor.Ticket{}, v.([]supervisor.Ticket)...)}, nil
}

func (b *ReloadBody) until() until {
	switch {
	case b.Hold && b.For == "":
		return untilHeld
	case b.Drained:
		return untilDrained
	}
	return untilServes
}

// reloadAndWait follows before it asks: nothing is missed.
func (s *Server) reloadAndWait(w http.ResponseWriter, r *http.Request, b ReloadBody) error {
	timeout, err := duration("timeout", b.Timeout, defaultWait)
	if err != nil {
		return err
	}
	out := newLines(w)
	updates, err := s.follow(r.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errTime)
	defer cancel()
	accepted, err := Reload(ctx, s.Asker, b, whoAsks(ctx))
	if errors.Is(err, errTime) {
		err = problem(TooSlow, "the reload has not begun in time; it may still", "look at `supervisord status`")
	}
	if err != nil {
		s.unfollow(updates)
		return err
	}
	out.begin()
	out.write(Line{Tickets: accepted.Tickets}) //nolint:errcheck // the next one will fail, too
	s.watch(ctx, out, newWait(accepted.Tickets, b.until()), updates)
	return nil
}

// errTime is the end of a wait that has a limit.
var errTime = errors.New("the time is over")

// wait takes up a wait again, after an upgrade for example.
func (s *Server) wait(w http.ResponseWriter, r *http.Request) error {
	c, err := waitOf(r)
	if err != nil {
		return err
	}
	timeout, err := duration("timeout", r.FormValue("timeout"), defaultWait)
	if err != nil {
		return err
	}
	out := newLines(w)
	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errTime)
	defer cancel()
	updates, err := s.resume(r.Context(), c) // how things are now is told in any case
	if err != nil {
		return err
	}
	out.begin()
	s.watch(ctx, out, c, updates)
	return nil
}

// maxTickets bounds what a client may wait for at once.
const maxTickets = 1000

// waitOf reads ?ticket=web:7, several times perhaps, and &until=.
func waitOf(r *http.Request) (*wait, error) {
	c := newWait(nil, until(r.FormValue("until")))
	if c.until == "" {
		c.until = untilServes
	}
	if !slices.Contains([]until{untilServes, untilDrained, untilHeld, untilDown}, c.until) {
		return nil, problem(BadRequest, fmt.Sprintf("until: %q is not known", c.until), "write serves, drained, held or down")
	}
	texts := r.Form["ticket"]
	if len(texts) == 0 || len(texts) > maxTickets {
		return nil, problem(BadRequest, fmt.Sprintf("%d tickets were given", len(texts)), fmt.Sprintf("give 1 to %d", maxTickets))
	}
	for _, text := range texts {
		g, err := parseTicket(text)
		if err != nil {
			return nil, problem(BadRequest, err.Error(), "write program:generation, as in the answer to a reload")
		}
		c.goals = append(c.goals, g)
	}
	return c, nil
}

// parseTicket reads program:generation or program:generation:instance.
func parseTicket(text string) (*ProgramVerdict, error) {
	words := strings.Split(text, ":")
	if len(words) != 2 && len(words) != 3 {
		return nil, fmt.Errorf("%q is not a ticket", text)
	}
	n, err := strconv.Atoi(words[1])
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is not a ticket", text)
	}
	g := &ProgramVerdict{Program: words[0], Generation: n, Outcome: program.Pending}
	if len(words) == 3 {
		g.instance = words[2]
	}
	return g, nil
}

// resume follows, and then looks at what may have been missed.
func (s *Server) resume(ctx context.Context, c *wait) (<-chan *supervisor.Update, error) {
	updates, err := s.follow(ctx)
	if err != nil {
		return nil, err
	}
	st, err := s.ask(ctx, askTimeout, supervisor.StatusRequest{})
	if err != nil {
		s.unfollow(updates)
		return nil, err
	}
	c.look(st.(*supervisor.Status))
	return updates, nil
}

// again follows again where this was too slow, or supervisord ends.
func (s *Server) again(ctx context.Context, c *wait) <-chan *supervisor.Update {
	updates, err := s.resume(ctx, c)
	switch {
	case errors.Is(err, errTime):
		c.close(TimedOut, c.until.overTime())
	case err != nil:
		c.close(program.Stopped, err.Error())
	}
	return updates
}

// late ends a wait whose time is over.
func (s *Server) late(ctx context.Context, c *wait) {
	st := &supervisor.Status{}
	if errors.Is(context.Cause(ctx), errTime) { // otherwise the client is gone
		if v, err := s.ask(context.WithoutCancel(ctx), askTimeout, supervisor.StatusRequest{}); err == nil {
			st = v.(*supervisor.Status)
		}
	}
	c.late(st)
}

// overTime is what is said of whatever did not end in time.
func (u until) overTime() string {
	if u == untilDown {
		return "timed out waiting; the program is still stopping"
	}
	return "timed out waiting; the reload is still running"
}

// watch writes what happens until the wait has ended, the time is over, or the client is gone. It ends the following.
func (s *Server) watch(ctx context.Context, out *lines, c *wait, updates <-chan *supervisor.Update) {
	defer func() { s.unfollow(updates) }()
	for told := map[*ProgramVerdict]bool{}; ; {
		for _, g := range c.goals {
			if g.Outcome != program.Pending && !told[g] {
				told[g] = true
				out.write(Line{Program: g}) //nolint:errcheck // looked at below
			}
		}
		if out.err != nil || c.ended() {
			break
		}
		select {
		case u, open := <-updates:
			if !open {
				updates = s.again(ctx, c)
			} else if c.concerns(*u) {
				c.see(*u)
				out.write(Line{Update: u}) //nolint:errcheck // looked at below
			}
		case <-ctx.Done():
			s.late(ctx, c)
		}
	}
	out.write(Line{Verdict: c.verdict()}) //nolint:errcheck // the client may be gone
}
