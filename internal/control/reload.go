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
	Programs []string `json:"programs"`         // none: all of them
	Reason   string   `json:"reason"`           // for the log
	Canary   *Canary  `json:"canary,omitempty"` // try the new generation on so much first, and change nothing else
	Hold     bool     `json:"hold"`             // hold the canary until promote or abort, or for as long as For says
	For      string   `json:"for"`              // promote the canary if it was well for this long: "5m"
	Wait     bool     `json:"wait"`             // answer with a stream of WaitLines, the last with a Verdict
	Drained  bool     `json:"drained"`          // wait until the generation before is gone, too
	Timeout  string   `json:"timeout"`          // of the wait; default "5m"
}

// WaitLine is a line of the answer to a wait. It has one of the fields.
type WaitLine struct {
	Tickets []supervisor.Ticket `json:"tickets,omitempty"` // first: what was begun
	Update  *supervisor.Update  `json:"update,omitempty"`
	Program *ProgramVerdict     `json:"program,omitempty"` // one of several programs is done
	Verdict *Verdict            `json:"verdict,omitempty"` // last
}

// The bounds of a wait.
const (
	defaultWait = 5 * time.Minute
	maxWait     = 24 * time.Hour
	maxTickets  = 1000
)

// options checks the body.
func (b *ReloadBody) options(askedBy string) (q supervisor.ReloadOptions, err error) {
	q = supervisor.ReloadOptions{Programs: b.Programs, Reason: printable(b.Reason, maxReason), AskedBy: askedBy}
	if q.For, err = duration("for", b.For, 0); err != nil {
		return q, err
	}
	isHeld := b.Hold || b.For != ""
	switch {
	case len(b.Reason) > maxReason:
		return q, apiError(BadRequest, "the reason is too long", fmt.Sprintf("send at most %d bytes", maxReason))
	case b.Canary == nil && isHeld:
		return q, apiError(BadRequest, "hold and for need canary", isNoCanary)
	case b.Canary == nil:
		return q, nil
	case b.Canary.check() != nil:
		return q, b.Canary.check()
	case !isHeld:
		return q, apiError(BadRequest, "a canary needs hold or for", "hold waits for promote or abort, for promotes it after a time")
	}
	q.Canary, q.Share = b.Canary.Workers, b.Canary.Share
	return q, nil
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

// duration reads a duration, or takes the default for "".
func duration(key, text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxWait {
		return 0, apiError(BadRequest, fmt.Sprintf("%s: %q is not a duration", key, text), `write a duration such as "30s" or "5m", at most 24h`)
	}
	return d, nil
}

func (a *API) reload(w http.ResponseWriter, r *http.Request) error {
	var b ReloadBody
	if err := body(r, &b); err != nil {
		return err
	}
	if b.Wait {
		return a.reloadAndWait(w, r, b)
	}
	accepted, err := reload(r.Context(), a.Loop, b, whoAsks(r.Context()))
	if err != nil {
		return err
	}
	return respond(w, accepted)
}

// reload returns when the configuration has been applied. The reload continues even if the client is gone.
func reload(ctx context.Context, l reloader, b ReloadBody, askedBy string) (*accepted, error) {
	q, err := b.options(askedBy)
	if err != nil {
		return nil, err
	}
	accepted := &accepted{Tickets: []supervisor.Ticket{}}
	return accepted, within(ctx, reloadTimeout, func(ctx context.Context) error {
		tickets, err := l.Reload(ctx, q)
		accepted.Tickets = append(accepted.Tickets, tickets...)
		return err
	})
}

// reloadAndWait follows before it asks, to miss nothing.
func (a *API) reloadAndWait(w http.ResponseWriter, r *http.Request, b ReloadBody) error {
	timeout, err := duration("timeout", b.Timeout, defaultWait)
	if err != nil {
		return err
	}
	updates, err := ask(r.Context(), a.Loop.Subscribe)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errTimeout)
	defer cancel()
	accepted, err := reload(ctx, a.Loop, b, whoAsks(ctx))
	if errors.Is(err, errTimeout) {
		err = apiError(TooSlow, "the reload has not begun in time; it may still", "look at `supervisord status`")
	}
	if err != nil {
		a.Loop.Unsubscribe(updates)
		return err
	}
	out := newLines(w)
	out.write(WaitLine{Tickets: accepted.Tickets})
	a.waitFor(ctx, out, newWait(accepted.Tickets, b.until()), updates)
	return nil
}

var errTimeout = errors.New("timed out waiting")

// wait takes up a wait again, after an upgrade for example.
func (a *API) wait(w http.ResponseWriter, r *http.Request) error {
	goal, err := parseWait(r)
	if err != nil {
		return err
	}
	timeout, err := duration("timeout", r.FormValue("timeout"), defaultWait)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errTimeout)
	defer cancel()
	updates, err := a.catchUp(r.Context(), goal) // how things are now is said in any case
	if err != nil {
		return err
	}
	a.waitFor(ctx, newLines(w), goal, updates)
	return nil
}

// parseWait reads ?ticket=web:7, perhaps several times, and &until=.
func parseWait(r *http.Request) (*wait, error) {
	u := until(r.FormValue("until"))
	if u == "" {
		u = untilServes
	}
	if !slices.Contains([]until{untilServes, untilDrained, untilHeld, untilDown}, u) {
		return nil, apiError(BadRequest, fmt.Sprintf("until: unknown value %q", u), "write serves, drained, held or down")
	}
	texts := r.Form["ticket"]
	if len(texts) == 0 || len(texts) > maxTickets {
		return nil, apiError(BadRequest, fmt.Sprintf("%d tickets were given", len(texts)), fmt.Sprintf("give 1 to %d", maxTickets))
	}
	var tickets []supervisor.Ticket
	for _, text := range texts {
		t, ok := parseTicket(text)
		if !ok {
			return nil, apiError(BadRequest, fmt.Sprintf("%q is not a ticket", text), "write program:generation, as in the answer to a reload")
		}
		tickets = append(tickets, t)
	}
	return newWait(tickets, u), nil
}

// parseTicket reads program:generation or program:generation:instance.
func parseTicket(text string) (t supervisor.Ticket, ok bool) {
	words := strings.Split(text, ":")
	if len(words) != 2 && len(words) != 3 {
		return t, false
	}
	n, err := strconv.Atoi(words[1])
	t = supervisor.Ticket{Program: words[0], Generation: n}
	if len(words) == 3 {
		t.Instance = words[2]
	}
	return t, err == nil && n >= 0
}

// catchUp follows, and then looks at what may have been missed.
func (a *API) catchUp(ctx context.Context, goal *wait) (<-chan *supervisor.Update, error) {
	updates, err := ask(ctx, a.Loop.Subscribe)
	if err != nil {
		return nil, err
	}
	st, err := a.status(ctx, "")
	if err != nil {
		a.Loop.Unsubscribe(updates)
		return nil, err
	}
	goal.look(st)
	return updates, nil
}

// waitFor writes what happens until the wait is over or the client is gone. It ends the following.
func (a *API) waitFor(ctx context.Context, out *lines, goal *wait, updates <-chan *supervisor.Update) {
	defer func() { a.Loop.Unsubscribe(updates) }()
	for told := map[*ProgramVerdict]bool{}; out.err == nil; {
		for _, g := range goal.goals {
			if g.Outcome != program.Pending && !told[g] {
				told[g] = true
				out.write(WaitLine{Program: g})
			}
		}
		if len(goal.pending()) == 0 {
			break
		}
		select {
		case u, open := <-updates:
			if !open { // too slow, or supervisord ends
				updates = a.again(ctx, goal)
			} else if goal.concerns(*u) {
				goal.see(*u)
				out.write(WaitLine{Update: u})
			}
		case <-ctx.Done():
			a.timeOut(ctx, goal)
		}
	}
	out.write(WaitLine{Verdict: goal.verdict()})
}

// again follows again. It returns nil if the time is over, or ends the wait if supervisord does not answer.
func (a *API) again(ctx context.Context, goal *wait) <-chan *supervisor.Update {
	updates, err := a.catchUp(ctx, goal)
	if err != nil && ctx.Err() == nil {
		for _, g := range goal.pending() {
			g.end(program.Stopped, err.Error())
		}
	}
	return updates
}

func (a *API) timeOut(ctx context.Context, goal *wait) {
	st := &supervisor.Status{}
	if errors.Is(context.Cause(ctx), errTimeout) { // otherwise the client is gone
		if now, err := a.status(context.WithoutCancel(ctx), ""); err == nil {
			st = now
		}
	}
	goal.timeOut(st)
}
