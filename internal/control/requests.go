package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// accepted is the answer to a change that takes effect gradually.
type accepted struct {
	Tickets []supervisor.Ticket `json:"tickets"` // to wait for, with GET /v1/wait
}

// receiptsAnswer is the answer to …/receipts.
type receiptsAnswer struct {
	Receipts []receipt.Receipt `json:"receipts"` // newest first; a receipt without "ended" is not complete yet
}

// verb is a change of a program: POST /v1/programs/{name}/VERB.
type verb struct {
	name   string
	waits  bool                                                           // a client can wait for the outcome
	role   program.Role                                                   // of its generation; "": none
	events func(r *http.Request, askedBy string) ([]program.Event, error) // for the loop, in this order
}

// verbs are the changes that are events for the loop. The page's buttons ask for the same.
var verbs = []verb{
	{"start", true, "", always(func(by string) []program.Event { return []program.Event{program.Start{AskedBy: by}} })},
	{"stop", true, program.RoleServing,
		always(func(by string) []program.Event { return []program.Event{program.Stop{AskedBy: by}} })},
	// even if the client goes away between the two, the program does not stay stopped
	{"restart", true, program.RoleServing, always(func(by string) []program.Event {
		return []program.Event{program.Stop{AskedBy: by}, program.Start{AskedBy: by}}
	})},
	{"rollback", true, program.RoleServing,
		always(func(by string) []program.Event { return []program.Event{program.Rollback{AskedBy: by}} })},
	{"promote", true, program.RoleTrial, wished[PromoteBody]},
	{"abort", false, program.RoleTrial, wished[AbortBody]},
	{"scale", false, "", wished[ScaleBody]},
	{"pause", false, "", wished[PauseBody]},
	{"resume", false, "",
		always(func(by string) []program.Event { return []program.Event{program.Unpause{AskedBy: by}} })},
}

// always are the events of a verb whose request has no body.
func always(events func(by string) []program.Event) func(*http.Request, string) ([]program.Event, error) {
	return func(_ *http.Request, by string) ([]program.Event, error) { return events(by), nil }
}

// wished is the event of a verb whose request has a W as its body. Errors: *APIError.
func wished[W interface {
	event(askedBy string) (program.Event, error)
}](r *http.Request, by string) ([]program.Event, error) {
	var w W
	if err := body(r, &w); err != nil {
		return nil, err
	}
	e, err := w.event(by)
	return []program.Event{e}, err
}

// do gives a program the events of a verb, all of them or none, even if the client goes away. The answer has the ticket
// of the last event.
func (v verb) do(a *API, w http.ResponseWriter, r *http.Request) error {
	events, err := v.events(r, whoAsks(r.Context()))
	if err != nil {
		return err
	}
	return a.answer(w, r, "", func(ctx context.Context) ([]supervisor.Ticket, error) {
		var last supervisor.Ticket
		for _, e := range events {
			var err error
			last, err = ask(context.WithoutCancel(ctx), func(ctx context.Context) (supervisor.Ticket, error) {
				return a.Loop.Act(ctx, r.PathValue("name"), e)
			})
			if err != nil {
				return nil, err
			}
		}
		return []supervisor.Ticket{last}, nil
	})
}

// ScaleBody is the body of …/scale.
type ScaleBody struct {
	Workers int `json:"workers"`
}

func (b ScaleBody) event(by string) (program.Event, error) {
	return program.Scale{Workers: b.Workers, AskedBy: by}, nil
}

// SignalBody is the body of …/signal.
type SignalBody struct {
	Signal     string `json:"signal"`     // "USR1", "SIGUSR1" or "10"
	Generation int    `json:"generation"` // 0: every worker that is not stopping
}

// AbortBody is the body of …/abort.
type AbortBody struct {
	Reason string `json:"reason"`
	// begin the reload that waits behind the canary, instead of dropping that reload
	ThenReload bool `json:"then_reload,omitempty"`
}

// maxReason bounds a text that goes into the log.
const maxReason = 200

func (b AbortBody) event(by string) (program.Event, error) {
	if len(b.Reason) > maxReason {
		return nil, apiError(BadRequest, "the reason is too long", fmt.Sprintf("send at most %d bytes", maxReason))
	}
	return program.Abort{Reason: cmp.Or(printable(b.Reason, maxReason), "requested"), ThenReload: b.ThenReload,
		AskedBy: by}, nil
}

// PromoteBody is the body of …/promote.
type PromoteBody struct {
	// the new share of the canary, more or less than before; missing: promote to everything
	Canary *Canary `json:"canary,omitempty"`
}

func (b PromoteBody) event(by string) (program.Event, error) {
	switch {
	case b.Canary == nil:
		return program.Promote{AskedBy: by}, nil
	case b.Canary.Share == 0:
		return nil, apiError(BadRequest, "a canary is promoted to a share, and not to a number of workers",
			`write a share such as "25%", or leave canary out to promote it to everything`)
	}
	return program.Promote{Share: b.Canary.Share, AskedBy: by}, nil
}

// PauseBody is the body of …/pause.
type PauseBody struct {
	For string `json:"for"` // required: at most MaxPause
}

func (b PauseBody) event(by string) (program.Event, error) {
	d, err := time.ParseDuration(b.For)
	switch {
	case b.For == "":
		return nil, apiError(BadRequest, "for is missing: a pause ends by itself", `say how long, such as "30s"`)
	case err != nil || d <= 0:
		return nil, apiError(BadRequest, fmt.Sprintf("for: %q is not a duration", b.For), `write a duration such as "30s"`)
	case d > program.MaxPause:
		return nil, apiError(BadRequest,
			fmt.Sprintf("a pause of %s is too long: clients give up connecting after about two minutes", d),
			fmt.Sprintf("write at most %.0fs", program.MaxPause.Seconds()))
	}
	return program.Pause{For: d, AskedBy: by}, nil
}

// KillBody is the body of …/kill.
type KillBody struct {
	Generation int `json:"generation"`
}

// levelBody is the body of log-level.
type levelBody struct {
	Level string `json:"level"`
}

// showStatus answers with a supervisor.Status; ?usage=no leaves out the figures that only the kernel knows.
func (a *API) showStatus(w http.ResponseWriter, r *http.Request) error {
	withUsage, err := yes(r, "usage", true)
	if err != nil {
		return err
	}
	st, err := a.status(r.Context(), r.FormValue("program"))
	if err != nil {
		return err
	}
	if withUsage {
		a.Gauge.Fill(st)
	}
	return respond(w, st)
}

// receipts answers with the last receipts of a program.
func (a *API) receipts(w http.ResponseWriter, r *http.Request) error {
	st, err := a.status(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	p := st.Programs[0]
	return respond(w, receiptsAnswer{receipt.Of(p.Name, p.Known())})
}

func (a *API) signal(w http.ResponseWriter, r *http.Request) error {
	var b SignalBody
	if err := body(r, &b); err != nil {
		return err
	}
	sig, err := parseSignal(b.Signal)
	if err != nil {
		return err
	}
	return a.signalWorkers(w, r, b.Generation, sig)
}

func (a *API) kill(w http.ResponseWriter, r *http.Request) error {
	var b KillBody
	if err := body(r, &b); err != nil {
		return err
	}
	if b.Generation < 1 {
		return apiError(BadRequest, "no generation was given",
			"`supervisord status` shows their numbers; to end the program, use stop")
	}
	return a.signalWorkers(w, r, b.Generation, syscall.SIGKILL)
}

func (a *API) signalWorkers(w http.ResponseWriter, r *http.Request, generation int, sig syscall.Signal) error {
	o := supervisor.SignalOptions{Program: r.PathValue("name"), Generation: generation, Signal: sig,
		AskedBy: whoAsks(r.Context())}
	return done(w, within(r.Context(), askTimeout, func(ctx context.Context) error { return a.Loop.Signal(ctx, o) }))
}

// done answers a request that takes effect at once: with err, or with no tickets.
func done(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	return respond(w, accepted{[]supervisor.Ticket{}})
}

// parseSignal reads "USR1", "SIGUSR1" or "10".
func parseSignal(name string) (syscall.Signal, error) {
	upper := strings.ToUpper(name)
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(upper, "SIG")); sig != 0 {
		return sig, nil
	}
	const last = 64 // _NSIG
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= last {
		return syscall.Signal(n), nil
	}
	return 0, apiError(BadRequest, fmt.Sprintf("%q is not a signal", name), "write a name such as USR1, or a number")
}

func (a *API) logLevel(w http.ResponseWriter, r *http.Request) error {
	var b levelBody
	if err := body(r, &b); err != nil {
		return err
	}
	return done(w, within(r.Context(), askTimeout,
		func(ctx context.Context) error { return a.Loop.SetLevel(ctx, b.Level, whoAsks(ctx)) }))
}

// upgradeTimeout is longer than the pre-flight check of a new binary may take.
const upgradeTimeout = 40 * time.Second

// upgrade answers when the new binary has passed its pre-flight check. When this answer is complete, too, the new
// binary takes over. The upgrade continues even if the client is gone.
func (a *API) upgrade(w http.ResponseWriter, r *http.Request) error {
	return done(w, within(context.WithoutCancel(r.Context()), upgradeTimeout,
		func(ctx context.Context) error { return a.Loop.Upgrade(ctx, whoAsks(ctx)) }))
}

// ReloadBody is the body of POST /v1/reload.
type ReloadBody struct {
	Programs []string `json:"programs"`         // none: all of them
	Reason   string   `json:"reason"`           // for the log
	Canary   *Canary  `json:"canary,omitempty"` // try the new generation on so much first, and change nothing else
	Hold     bool     `json:"hold"`             // hold the canary until promote or abort, or for as long as For says
	For      string   `json:"for"`              // promote a canary that stays well for this long: "5m"
}

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
	case !isHeld:
		return q, apiError(BadRequest, "a canary needs hold or for",
			"hold waits for promote or abort, for promotes it after a time")
	}
	q.Canary, q.Share = b.Canary.Workers, b.Canary.Share
	return q, nil
}

// reload answers when the configuration has been applied. The reload continues even if the client is gone.
func (a *API) reload(w http.ResponseWriter, r *http.Request) error {
	var b ReloadBody
	if err := body(r, &b); err != nil {
		return err
	}
	q, err := b.options(whoAsks(r.Context()))
	if err != nil {
		return err
	}
	return a.answer(w, r, "", func(ctx context.Context) (tickets []supervisor.Ticket, err error) {
		err = within(ctx, reloadTimeout, func(ctx context.Context) error {
			tickets, err = a.Loop.Reload(ctx, q)
			return err
		})
		return tickets, err
	})
}

// Canary says how large a canary is: a number of workers, or a share of the new connections. In JSON: 2, or "5%".
type Canary struct {
	Workers int `json:"-"` // 0: Share counts
	Share   int `json:"-"` // parts of program.Whole; 0: Workers counts
}

const isNoCanary = `write a number of workers such as 1, or a share of the new connections such as "5%"`

// ParseCanary reads "2" or "12.5%". Errors: *APIError with a remedy.
func ParseCanary(text string) (c Canary, err error) {
	refuse := func(what, remedy string) (Canary, error) {
		return Canary{}, apiError(BadRequest, fmt.Sprintf(what, text), remedy)
	}
	share, isShare := strings.CutSuffix(text, "%")
	if !isShare {
		switch c.Workers, err = strconv.Atoi(text); {
		case err != nil:
			return refuse("%.40q is not a canary", isNoCanary)
		case c.Workers < 1 || c.Workers > program.MaxWorkers:
			return refuse("canary %s is out of range", fmt.Sprintf("write at least 1 and at most %d, or leave canary out to "+
				"replace all workers", program.MaxWorkers))
		}
		return c, nil
	}
	percent, err := strconv.ParseFloat(share, 64)
	c.Share = int(math.Round(percent * program.Whole / 100))
	switch {
	case err != nil || !(math.Abs(percent) < 1000): // not a number, too
		return refuse("%q is not a share", `write a percentage such as "5%" or "12.5%"`)
	case math.Abs(percent*program.Whole/100-float64(c.Share)) > 1e-6:
		return refuse("the share %q is too precise", "write at most two decimals")
	case c.Share < 1:
		return refuse("a canary with a share of %s would be none", "write at least 0.01%; to end a canary, use abort")
	case c.Share >= program.Whole:
		return refuse("%s is not a canary", "write at most 99.99%; for everything, leave canary out")
	}
	return c, nil
}

// MarshalJSON implements json.Marshaler.
func (c Canary) MarshalJSON() ([]byte, error) {
	if c.Share != 0 {
		return json.Marshal(program.Percentage(c.Share))
	}
	return json.Marshal(c.Workers)
}

// UnmarshalJSON implements json.Unmarshaler. Errors: *APIError with a remedy.
func (c *Canary) UnmarshalJSON(text []byte) (err error) {
	*c, err = ParseCanary(strings.Trim(string(text), `"`))
	return err
}
