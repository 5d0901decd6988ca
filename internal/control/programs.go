package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// accepted is the answer to what takes effect gradually.
type accepted struct {
	Tickets []supervisor.Ticket `json:"tickets"` // to wait for, with GET /v1/wait
}

// ReceiptsAnswer is the answer to …/receipts.
type ReceiptsAnswer struct {
	Receipts []receipt.Receipt    `json:"receipts"` // newest first; without "ended" a receipt is what is known so far
	Past     []program.PastReload `json:"past"`     // what is left of the reloads before, newest first
}

// command is the body of a request that gives a program an event. The page's buttons make the same commands.
type command interface {
	// event checks the command, and returns what it is for the loop. Errors: *APIError.
	event(askedBy string) (program.Event, error)
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
	Reason     string `json:"reason"`
	ThenReload bool   `json:"then_reload,omitempty"` // the reload that waits behind a canary begins; otherwise it is dropped
}

// maxReason bounds a text that goes into the log.
const maxReason = 200

func (b AbortBody) event(by string) (program.Event, error) {
	if len(b.Reason) > maxReason {
		return nil, apiError(BadRequest, "the reason is too long", fmt.Sprintf("send at most %d bytes", maxReason))
	}
	return program.Abort{Reason: cmp.Or(printable(b.Reason, maxReason), "requested"), ThenReload: b.ThenReload, AskedBy: by}, nil
}

// PromoteBody is the body of …/promote.
type PromoteBody struct {
	Canary *Canary `json:"canary,omitempty"` // give the canary this share from now on, more or less than it has; missing: everything
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
	case d > supervisor.MaxPause:
		return nil, apiError(BadRequest, fmt.Sprintf("a pause of %s is too long: clients give up connecting after about two minutes", d),
			fmt.Sprintf("write at most %.0fs", supervisor.MaxPause.Seconds()))
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

// showStatus answers with a supervisor.Status; ?usage=no leaves out what the kernel has to be asked for.
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
	past := append([]program.PastReload{}, p.Past...)
	slices.Reverse(past)
	return respond(w, ReceiptsAnswer{receipt.Of(p.Name, p.Reloads), past})
}

func (a *API) start(w http.ResponseWriter, r *http.Request) error {
	return a.act(w, r, program.Start{AskedBy: whoAsks(r.Context())})
}

func (a *API) stop(w http.ResponseWriter, r *http.Request) error {
	return a.act(w, r, program.Stop{AskedBy: whoAsks(r.Context())})
}

// restart is a stop and a start at once: even if the client goes away, the program is not left stopped.
func (a *API) restart(w http.ResponseWriter, r *http.Request) error {
	by := whoAsks(r.Context())
	return a.act(w, r, program.Stop{AskedBy: by}, program.Start{AskedBy: by})
}

func (a *API) rollback(w http.ResponseWriter, r *http.Request) error {
	return a.act(w, r, program.Rollback{AskedBy: whoAsks(r.Context())})
}

func (a *API) resume(w http.ResponseWriter, r *http.Request) error {
	return a.act(w, r, program.Unpause{AskedBy: whoAsks(r.Context())})
}

// perform answers a request whose body is a C.
func perform[C command](a *API, w http.ResponseWriter, r *http.Request) error {
	var c C
	if err := body(r, &c); err != nil {
		return err
	}
	e, err := c.event(whoAsks(r.Context()))
	if err != nil {
		return err
	}
	return a.act(w, r, e)
}

// act gives a program events, and says which generation will show the outcome.
func (a *API) act(w http.ResponseWriter, r *http.Request, events ...program.Event) error {
	var last supervisor.Ticket
	for _, e := range events {
		var err error
		last, err = ask(context.WithoutCancel(r.Context()), func(ctx context.Context) (supervisor.Ticket, error) {
			return a.Loop.Act(ctx, r.PathValue("name"), e)
		}) // all of them or none, even if the client goes away
		if err != nil {
			return err
		}
	}
	return respond(w, accepted{[]supervisor.Ticket{last}})
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
		return apiError(BadRequest, "no generation was given", "`supervisord status` shows their numbers; to end the program, use stop")
	}
	return a.signalWorkers(w, r, b.Generation, syscall.SIGKILL)
}

func (a *API) signalWorkers(w http.ResponseWriter, r *http.Request, generation int, sig syscall.Signal) error {
	o := supervisor.SignalOptions{Program: r.PathValue("name"), Generation: generation, Signal: sig, AskedBy: whoAsks(r.Context())}
	return done(w, within(r.Context(), askTimeout, func(ctx context.Context) error { return a.Loop.Signal(ctx, o) }))
}

// done answers a request that is done at once, if it succeeded.
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
	return done(w, within(r.Context(), askTimeout, func(ctx context.Context) error { return a.Loop.SetLevel(ctx, b.Level, whoAsks(ctx)) }))
}

// upgradeTimeout is longer than the pre-flight check of a new binary may take.
const upgradeTimeout = 40 * time.Second

// upgrade answers when the new binary has passed its pre-flight check, and only then lets it take over: the answer is complete before this
// image ends. The upgrade continues even if the client is gone.
func (a *API) upgrade(w http.ResponseWriter, r *http.Request) error {
	ctx := context.WithoutCancel(r.Context())
	if err := within(ctx, upgradeTimeout, func(ctx context.Context) error { return a.Loop.Upgrade(ctx, whoAsks(ctx)) }); err != nil {
		return err
	}
	text, err := json.Marshal(accepted{[]supervisor.Ticket{}})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)                          //nolint:errcheck // the client may be gone
	http.NewResponseController(w).Flush()  //nolint:errcheck // likewise
	within(ctx, askTimeout, a.Loop.Switch) //nolint:errcheck // the status says why it failed
	return nil
}
