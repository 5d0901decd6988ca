package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Errors of Await.
var (
	ErrUnknown = errors.New("outcome unknown: look at `supervisord status` and the log")
	ErrLate    = errors.New("timed out waiting; the operation continues")
)

const (
	// lostTimeout is how long Await looks for a supervisord that has gone.
	lostTimeout = 30 * time.Second
	// retryInterval is the time between two attempts: there is no event for a supervisord that comes back.
	retryInterval = 100 * time.Millisecond
	// lateness is how much later than the server the client gives up.
	lateness = 5 * time.Second
)

// Request requests an action and calls see with the tickets, and perhaps with more lines up to the verdict.
type Request func(ctx context.Context, see func(WaitLine)) error

// Await makes a request, waits for its end and returns the verdict. It takes the wait up again when the connection breaks, so the wait
// survives an upgrade or the death of the supervisord that was asked. It repeats the request only if that is not known to have been
// accepted. see is called for each line. until is "serves", "drained", "held" or "down".
func (c *Client) Await(ctx context.Context, until string, timeout time.Duration, request Request, see func(WaitLine)) (*Verdict, error) {
	a := &awaiting{Client: c, until: until, deadline: time.Now().Add(timeout), request: request, see: see}
	ctx, cancel := context.WithDeadlineCause(ctx, a.deadline.Add(lateness), ErrLate)
	defer cancel()
	err := request(ctx, a.take)
	for a.verdict == nil {
		if err = a.givesUp(err); err != nil {
			return nil, err
		}
		if err = Pause(ctx); err == nil {
			err = a.again(ctx)
		}
	}
	return a.verdict, nil
}

// AwaitReload asks for a reload and waits for its end, as Await does.
func (c *Client) AwaitReload(ctx context.Context, b ReloadBody, timeout time.Duration, see func(WaitLine)) (*Verdict, error) {
	b.Wait, b.Timeout = true, timeout.String()
	request := func(ctx context.Context, see func(WaitLine)) error { return c.Reload(ctx, b, see) }
	return c.Await(ctx, string(b.until()), timeout, request, see)
}

// awaiting is one call of Await.
type awaiting struct {
	*Client
	until    string
	deadline time.Time
	request  Request
	see      func(WaitLine)
	tickets  []supervisor.Ticket
	verdict  *Verdict
	heard    bool      // a line has come since the last attempt
	lost     time.Time // since when no supervisord answers; zero: none was lost yet
	gone     error     // the last error that says that none runs
}

func (a *awaiting) take(l WaitLine) {
	a.heard = true
	switch {
	case l.Tickets != nil:
		a.tickets = l.Tickets
	case l.Verdict != nil:
		a.verdict = l.Verdict
	}
	a.see(l)
}

// givesUp returns the error of Await if another attempt cannot help after err, which may be nil.
func (a *awaiting) givesUp(err error) error {
	switch {
	case errors.Is(err, ErrNotThere):
		a.gone = err
	case errors.Is(err, ErrLate) && a.gone != nil:
		return fmt.Errorf("%w (%w)", ErrUnknown, a.gone)
	}
	switch {
	case err != nil && !Recoverable(err, !a.lost.IsZero()):
		return err
	case a.lost.IsZero():
		a.lost = time.Now()
	case time.Since(a.lost) > lostTimeout:
		return fmt.Errorf("%w (%w)", ErrUnknown, err)
	}
	return nil
}

func (a *awaiting) again(ctx context.Context) (err error) {
	a.heard = false
	if a.tickets == nil {
		err = a.request(ctx, a.take)
	} else {
		err = a.wait(ctx, a.tickets, a.until, max(time.Second, time.Until(a.deadline)), a.take)
	}
	if a.heard || errors.Is(err, ErrBroken) {
		a.lost, a.gone = time.Now(), nil // a supervisord was there
	}
	return err
}

// Recoverable reports whether another attempt may help after an error. A supervisord that does not answer may come back only
// if it answered before.
func Recoverable(err error, before bool) bool {
	if p, ok := errors.AsType[*APIError](err); ok {
		return p.Code == Stopping && before
	}
	return errors.Is(err, ErrBroken) || errors.Is(err, ErrNotThere) && before
}

// Pause waits until the next attempt, or until ctx ends.
func Pause(ctx context.Context) error {
	t := time.NewTimer(retryInterval)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Happen returns the request for an action on a program: see Client.Program. If there is nothing to wait for, because a program to start
// already runs, a program to stop does not run, or a rollback is done, the verdict comes at once.
func (c *Client) Happen(name, verb string, body any) Request {
	return func(ctx context.Context, see func(WaitLine)) error {
		tickets, err := c.Program(ctx, name, verb, body)
		if err != nil {
			return err
		}
		see(WaitLine{Tickets: tickets})
		if v := already(tickets); v != nil {
			see(WaitLine{Program: &v.Programs[0]})
			see(WaitLine{Verdict: v})
		}
		return nil
	}
}

// already returns the verdict if there is nothing to wait for.
func already(tickets []supervisor.Ticket) *Verdict {
	if len(tickets) != 1 || tickets[0].Since == nil && !tickets[0].Stopped && tickets[0].From == 0 {
		return nil
	}
	t := tickets[0]
	p := ProgramVerdict{Program: t.Program, Generation: t.Generation, Since: t.Since, Already: t.Stopped, From: t.From, Until: t.Until,
		Outcome: program.Serves}
	if t.Stopped {
		p.Outcome = Down
	}
	return &Verdict{Outcome: p.Outcome, Programs: []ProgramVerdict{p}}
}

// switchTimeout is how long a new image may take until it answers.
const switchTimeout = 40 * time.Second

// AwaitImage waits until another image than the one with this status answers, and returns its status. The other one began at another time,
// which is earlier if the clock was set back meanwhile. AwaitImage returns an error when the old image could not be replaced. A request that
// the old image has not answered by then waits for the new one, so there are hardly ever more than two attempts.
func (c *Client) AwaitImage(ctx context.Context, before *supervisor.Status) (*supervisor.Status, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, switchTimeout, errors.New("the new image does not answer: see the log"))
	defer cancel()
	for {
		now, err := c.Status(ctx, "", false)
		switch {
		case err != nil && !Recoverable(err, true):
			return nil, err
		case err == nil && now.Upgrade != "":
			return nil, errors.New("upgrade failed: " + now.Upgrade)
		case err == nil && !now.Started.Equal(before.Started):
			return now, nil
		}
		if err := Pause(ctx); err != nil {
			return nil, err
		}
	}
}
