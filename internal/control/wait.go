package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// The outcomes that only a wait has. No reload has them by itself.
const (
	Down     program.Outcome = "down"    // the program has stopped, as it should
	Killed   program.Outcome = "killed"  // done, but workers had to be killed
	TimedOut program.Outcome = "timeout" // timed out; the change continues
	Unknown  program.Outcome = "unknown" // supervisord has no record of the change

	RolledBack program.Outcome = "rolled_back" // the generation served until a rollback
)

// outcomes are all outcomes, from the best to the worst: the worst of several programs is the outcome of the whole.
var outcomes = []program.Outcome{
	program.Pending, program.Serves, program.Held, Down, Killed, program.Superseded, program.Aborted, RolledBack,
	program.Stopped,
	TimedOut, Unknown, program.NotReady, program.NotPrepared, program.WorkerDown,
}

// Verdict says how a wait has ended.
type Verdict struct {
	Outcome  program.Outcome  `json:"outcome"` // the worst of the programs'
	Programs []ProgramVerdict `json:"programs"`
}

// ProgramVerdict says how a wait has ended for one program, with the record that proves it.
type ProgramVerdict struct {
	Program    string          `json:"program"`
	Generation int             `json:"generation"`
	Outcome    program.Outcome `json:"outcome"`
	Reason     string          `json:"reason,omitempty"`  // why the change did not end as it should
	Serving    int             `json:"serving,omitempty"` // the generation that serves instead of Generation
	// of a start with nothing to do: the program has served since then
	Since time.Time `json:"since,omitzero"`
	// of a stop with nothing to do: the program had stopped before
	Already bool   `json:"already,omitempty"`
	From    int    `json:"from,omitempty"`     // of a rollback: the generation that served until then
	AskedBy string `json:"asked_by,omitempty"` // who asked for the reload, the stop or the rollback
	// of a rollback: supervisord keeps From until then; missing: it does not
	Until  time.Time             `json:"until,omitzero"`
	Reload *program.ReloadRecord `json:"reload,omitempty"` // the record of the reload, in its newest state
	Stop   *program.StopRecord   `json:"stop,omitempty"`   // the record of the stop

	instance string // of the ticket; "": unknown
	settled  bool   // the ticket itself had the outcome
}

// Until is the state that a client waits for.
type Until string

const (
	untilServes  Until = "serves"
	untilDrained Until = "drained" // … and the generation before is gone
	untilHeld    Until = "held"    // … or is a canary that waits
	untilDown    Until = "down"    // the program has stopped
)

// Settled returns the verdict on tickets that promise nothing more: a program to start already ran, a program to stop
// had stopped, or the rollback is done. Otherwise it returns nil.
func Settled(tickets []supervisor.Ticket) *Verdict {
	w := newWait(tickets, untilServes)
	if len(tickets) == 0 || !w.over() {
		return nil
	}
	return w.verdict()
}

// wait is a wait for the outcomes of tickets. The server folds each line that it writes, and the client each line that
// it reads, so both know the same. A wait only reads the records that the core has written: the core decides.
type wait struct {
	until Until
	goals []*ProgramVerdict // nil: the tickets are not known yet
	ended bool              // the last line has come
}

func newWait(tickets []supervisor.Ticket, u Until) *wait {
	w := &wait{until: u}
	w.fold(WaitLine{Tickets: tickets})
	return w
}

// fold takes a line into account.
func (w *wait) fold(l WaitLine) {
	if w.goals == nil {
		for _, t := range l.Tickets {
			w.goals = append(w.goals, newGoal(t))
		}
	}
	if l.Update != nil {
		w.see(*l.Update)
	}
	if l.Program != nil {
		w.adopt(*l.Program)
	}
	if l.Verdict != nil {
		w.ended = true
		for _, p := range l.Verdict.Programs {
			w.adopt(p)
		}
	}
}

func newGoal(t supervisor.Ticket) *ProgramVerdict {
	g := &ProgramVerdict{Program: t.Program, Generation: t.Generation, instance: t.Instance, Outcome: program.Pending,
		Since: t.Since, Already: t.Stopped, From: t.From, Until: t.Until}
	switch {
	case t.Stopped:
		g.Outcome, g.settled = Down, true
	case !t.Since.IsZero(), t.From != 0:
		g.Outcome, g.settled = program.Serves, true
	}
	return g
}

// adopt takes over a verdict of the server, which may come from the status instead of an update.
func (w *wait) adopt(v ProgramVerdict) {
	for _, g := range w.goals {
		if g.Program == v.Program && g.Generation == v.Generation {
			v.instance, v.settled = g.instance, g.settled
			*g = v
		}
	}
}

// over reports whether nothing is left to wait for.
func (w *wait) over() bool { return w.ended || w.goals != nil && len(w.pending()) == 0 }

// pending returns the goals that are not reached.
func (w *wait) pending() (goals []*ProgramVerdict) {
	for _, g := range w.goals {
		if g.Outcome == program.Pending {
			goals = append(goals, g)
		}
	}
	return goals
}

// concerns reports whether an update is about one of the programs.
func (w *wait) concerns(u supervisor.Update) bool {
	return slices.ContainsFunc(w.goals, func(g *ProgramVerdict) bool { return g.Program == u.Program })
}

func (w *wait) verdict() *Verdict {
	v := &Verdict{Outcome: program.Serves, Programs: []ProgramVerdict{}}
	if w.until == untilDown {
		v.Outcome = Down
	}
	for i, g := range w.goals {
		v.Programs = append(v.Programs, *g)
		if i == 0 || slices.Index(outcomes, g.Outcome) > slices.Index(outcomes, v.Outcome) {
			v.Outcome = g.Outcome
		}
	}
	return v
}

// see reads the record that an update brings.
func (w *wait) see(u supervisor.Update) {
	for _, g := range w.goals {
		switch {
		case g.Program != u.Program, g.settled:
		case w.until == untilDown:
			g.readStop(u.Stop, u.Kind == program.TrialBegan && u.Generation > g.Generation)
		case u.Reload != nil && u.Reload.Generation == g.Generation:
			g.readReload(u.Reload, w.until)
		}
	}
}

// disown ends the waits for generations of a supervisord before the one with this status, which has given their numbers
// to others.
func (w *wait) disown(st *supervisor.Status) {
	for _, g := range w.pending() {
		if g.instance != "" && g.instance != st.Instance {
			g.unknown("supervisord exited and left no record of this request", st.Program(g.Program))
		}
	}
}

// look reads the records in a status.
func (w *wait) look(st *supervisor.Status) {
	w.disown(st)
	for _, g := range w.goals {
		if p := st.Program(g.Program); p != nil && g.From != 0 {
			if r := p.FindReload(g.From); r != nil {
				g.AskedBy = r.RolledBackBy
			}
		}
	}
	for _, g := range w.pending() {
		p := st.Program(g.Program)
		switch {
		case p == nil && w.until == untilDown:
			g.end(Down, "")
		case p == nil:
			g.end(program.Stopped, "the configuration has no such program")
		case w.until != untilDown:
			g.lookReload(p, w.until)
		case p.State == program.Down && p.Stop == nil: // the program has never run
			g.end(Down, "")
		case g.Generation > p.Newest:
			g.neverGiven(p)
		default:
			g.readStop(p.Stop, p.Newest > g.Generation || p.State != program.ShuttingOff)
		}
	}
}

func (g *ProgramVerdict) end(o program.Outcome, reason string) { g.Outcome, g.Reason = o, reason }

func (g *ProgramVerdict) lookReload(p *supervisor.ProgramStatus, u Until) {
	switch r := p.FindReload(g.Generation); {
	case r != nil:
		g.readReload(r, u)
	case g.Generation > p.Newest:
		g.neverGiven(p)
	default:
		g.unknown("supervisord has dropped the record after many later reloads; the log says how this one went", p)
	}
}

// neverGiven ends the wait for a number that the program has not reached: a supervisord gave the number away and
// died before recording it, somebody removed the program and configured it again, or the number is a mistake.
func (g *ProgramVerdict) neverGiven(p *supervisor.ProgramStatus) {
	g.unknown(fmt.Sprintf("supervisord knows no generation %d, the newest is %d: look at `supervisord status %s`, "+
		"and ask again if your change is missing", g.Generation, p.Newest, p.Name), p)
}

// unknown ends the wait for a reload without a record. p is the present status of the program, or nil.
func (g *ProgramVerdict) unknown(reason string, p *supervisor.ProgramStatus) {
	g.end(Unknown, reason)
	if p == nil {
		return
	}
	for _, s := range p.Generations {
		if s.Role == program.RoleServing {
			g.Serving = s.Number
		}
	}
}

// readReload reads the record of a reload. After Serves only the drain and a rollback can follow; other ends are final.
func (g *ProgramVerdict) readReload(r *program.ReloadRecord, u Until) {
	if g.Outcome != program.Pending && g.Outcome != program.Serves {
		return
	}
	g.Reload, g.AskedBy, g.Outcome = r, r.AskedBy, r.Outcome
	if r.Failure != nil {
		g.Reason = r.Failure.Reason
	}
	if r.Outcome != program.Serves {
		g.Serving = r.Replaced
	}
	switch {
	case !r.RolledBack.IsZero() && r.Outcome == program.Serves:
		g.rolledBack(r)
	case r.Gap == program.GapOpen, r.Outcome == program.Held && u != untilHeld, r.Outcome == program.Serves &&
		u == untilDrained && r.Ended.IsZero():
		g.Outcome = program.Pending
	case r.Outcome == program.Serves && u == untilDrained && r.Killed > 0:
		g.Outcome = Killed
	case r.Outcome == program.Serves:
		g.Serving = 0
	case r.Outcome == program.Stopped:
		g.Serving, g.Reason = 0, "the program was stopped"
	case r.Gap == program.GapLasts:
		g.Serving = 0
	case r.Outcome == program.Superseded:
		g.Reason = "something newer took its place"
	}
}

// rolledBack ends the wait for a generation that served and no longer does.
func (g *ProgramVerdict) rolledBack(r *program.ReloadRecord) {
	g.Serving = r.Replaced
	g.end(RolledBack, "it served for "+r.RolledBack.Sub(r.Decided).Round(time.Second).String())
	if r.RolledBackBy != "" {
		g.Reason += ", until " + r.RolledBackBy + " asked for a rollback"
	}
}

// readStop reads the record of a stop. Without a record, or with that of another stop, the program may have been
// started again.
func (g *ProgramVerdict) readStop(s *program.StopRecord, startedAgain bool) {
	switch {
	case g.Outcome != program.Pending:
	case s != nil && s.Generation == g.Generation && !s.Ended.IsZero():
		g.Outcome, g.Stop, g.AskedBy = Down, s, s.AskedBy
		if s.Killed > 0 {
			g.Outcome = Killed
		}
	case startedAgain:
		g.end(program.Superseded, "the program was started again")
	}
}

// timeOut ends all pending goals, and says what each still waits for, if st tells.
func (w *wait) timeOut(st *supervisor.Status) {
	what := "timed out waiting; the reload is still running"
	if w.until == untilDown {
		what = "timed out waiting; the program is still stopping"
	}
	for _, g := range w.pending() {
		g.end(TimedOut, what+g.waitsFor(st.Program(g.Program)))
	}
}

// waitsFor says what a generation waits for; "" if that is unknown, or if the generation waits only for its workers.
func (g *ProgramVerdict) waitsFor(p *supervisor.ProgramStatus) string {
	if p == nil {
		return ""
	}
	if p.Due != nil && g.Generation > p.Newest {
		return "; the reload waits: " + p.Due.Waits
	}
	for _, s := range p.Generations {
		switch {
		case s.Number == g.Generation && s.Held:
			return "; the canary is held"
		case g.Reload != nil && s.Number == g.Reload.Replaced && !s.KeptTill.IsZero():
			return fmt.Sprintf("; generation %d is kept until %s", s.Number, s.KeptTill.Local().Format(time.TimeOnly))
		case g.Reload != nil && s.Number == g.Reload.Replaced && s.Role == program.RoleKept:
			return fmt.Sprintf("; generation %d keeps serving a listener that another program is to have", s.Number)
		case g.Reload != nil && s.Number == g.Reload.Replaced && s.Role == program.RoleDraining:
			return fmt.Sprintf("; generation %d still drains", s.Number)
		}
	}
	return ""
}

// WaitLine is a line of the answer to a wait: one of the fields is set.
type WaitLine struct {
	Tickets []supervisor.Ticket `json:"tickets,omitempty"` // first
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

var errTimeout = errors.New("timed out waiting")

// change makes the change that a client asks for, and returns the tickets that show its progress.
type change func(ctx context.Context) ([]supervisor.Ticket, error)

// answer makes a change and answers with its tickets. If the client says until when it waits (?until=), the answer is a
// stream of WaitLines, the last with a Verdict. answer follows before it asks, to miss nothing.
func (a *API) answer(w http.ResponseWriter, r *http.Request, otherwise Until, make change) error {
	u, timeout, err := parseWait(r.URL.Query(), otherwise)
	if err != nil {
		return err
	}
	if u == "" {
		tickets, err := make(r.Context())
		if err != nil {
			return err
		}
		return respond(w, accepted{append([]supervisor.Ticket{}, tickets...)})
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errTimeout)
	defer cancel()
	updates, err := ask(r.Context(), a.Loop.Subscribe)
	if err != nil {
		return err
	}
	tickets, err := make(ctx)
	if err != nil {
		a.Loop.Unsubscribe(updates)
		if errors.Is(err, errTimeout) {
			err = apiError(TooSlow, "the change has not begun in time, and may still begin", "look at `supervisord status`")
		}
		return err
	}
	a.follow(ctx, &waitAnswer{wait: wait{until: u}, out: newLines(w), told: map[*ProgramVerdict]bool{}}, tickets, updates)
	return nil
}

// wait takes up a wait again, after an upgrade for example: for ?ticket=web:7, perhaps several times.
func (a *API) wait(w http.ResponseWriter, r *http.Request) error {
	tickets, err := parseTickets(r.URL.Query()["ticket"])
	if err != nil {
		return err
	}
	return a.answer(w, r, untilServes, func(context.Context) ([]supervisor.Ticket, error) { return tickets, nil })
}

// waitAnswer is the answer to one wait: every line is folded as it is written.
type waitAnswer struct {
	wait
	out  *ndjson
	told map[*ProgramVerdict]bool
}

func (w *waitAnswer) tell(l WaitLine) {
	w.fold(l)
	w.out.write(l)
}

// pass tells of an update, if it is about one of the programs.
func (w *waitAnswer) pass(u *supervisor.Update) {
	if w.concerns(*u) {
		w.tell(WaitLine{Update: u})
	}
}

// tellEnds tells once of each program that is done.
func (w *waitAnswer) tellEnds() {
	for _, g := range w.goals {
		if g.Outcome != program.Pending && !w.told[g] {
			w.told[g] = true
			w.out.write(WaitLine{Program: g})
		}
	}
}

// follow writes what happens until the wait is over or the client is gone, and ends the subscription.
func (a *API) follow(ctx context.Context, w *waitAnswer, tickets []supervisor.Ticket,
	updates <-chan *supervisor.Update) {
	defer func() { a.Loop.Unsubscribe(updates) }()
	w.tell(WaitLine{Tickets: tickets})
	clients.Lasts(ctx) // with the tickets the client can ask the next image
	for missed := true; w.out.err == nil; {
		if missed {
			a.catchUp(ctx, w, updates)
		}
		if w.tellEnds(); len(w.pending()) == 0 {
			break
		}
		missed = false
		select {
		case u, open := <-updates:
			if open {
				w.pass(u)
				continue
			}
			updates, _ = ask(ctx, a.Loop.Subscribe) // the loop dropped a slow reader, or supervisord ends: catchUp tells
			missed = true
		case <-ctx.Done():
			a.timeOut(ctx, &w.wait)
		}
	}
	w.out.write(WaitLine{Verdict: w.verdict()})
}

// catchUp reads the records in the status, for everything that happened before the subscription or was missed. catchUp
// passes on the waiting updates first, so that the client reads them before the verdict; but before those it says which
// waits they are not about. Without an answer of the loop the wait is over.
func (a *API) catchUp(ctx context.Context, w *waitAnswer, updates <-chan *supervisor.Update) {
	st, err := a.status(ctx, "")
	if err == nil {
		w.disown(st)
		w.tellEnds()
	}
	for n := len(updates); n > 0; n-- {
		w.pass(<-updates)
	}
	switch {
	case err == nil:
		w.look(st)
	case ctx.Err() == nil:
		for _, g := range w.pending() {
			g.end(program.Stopped, err.Error())
		}
	}
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

// parseWait reads until when a client waits, and for how long.
func parseWait(q url.Values, otherwise Until) (u Until, timeout time.Duration, err error) {
	u = cmp.Or(Until(q.Get("until")), otherwise)
	switch {
	case u == "" && q.Has("timeout"):
		return u, 0, apiError(BadRequest, "timeout needs until", "say until when to wait, such as until=serves")
	case u != "" && !slices.Contains([]Until{untilServes, untilDrained, untilHeld, untilDown}, u):
		return u, 0, apiError(BadRequest, fmt.Sprintf("until: unknown value %q", u), "write serves, drained, held or down")
	}
	timeout, err = duration("timeout", q.Get("timeout"), defaultWait)
	return u, timeout, err
}

// duration reads a duration, or takes the default for "".
func duration(key, text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxWait {
		return 0, apiError(BadRequest, fmt.Sprintf("%s: %q is not a duration", key, text),
			`write a duration such as "30s" or "5m", at most 24h`)
	}
	return d, nil
}

func parseTickets(texts []string) (tickets []supervisor.Ticket, err error) {
	if len(texts) == 0 || len(texts) > maxTickets {
		return nil, apiError(BadRequest, fmt.Sprintf("%d tickets were given", len(texts)),
			fmt.Sprintf("give 1 to %d", maxTickets))
	}
	for _, text := range texts {
		t, ok := parseTicket(text)
		if !ok {
			return nil, apiError(BadRequest, fmt.Sprintf("%q is not a ticket", text),
				"write program:generation, as in the answer to a reload")
		}
		tickets = append(tickets, t)
	}
	return tickets, nil
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
