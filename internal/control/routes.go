package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
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

// route is one thing that can be asked for.
type route struct {
	method, path string
	change       bool     // needs the right to change things
	query        []string // the parameters that may stand behind the path
	answer       func(*Server, http.ResponseWriter, *http.Request) error
}

// routes is everything there is; docs/openapi.yaml describes the same.
var routes = []route{
	{"GET", "/v1/status", false, []string{"program", "usage"}, (*Server).status},
	{"GET", "/v1/events", false, []string{"program"}, (*Server).events},
	{"GET", "/v1/wait", false, []string{"ticket", "until", "timeout"}, (*Server).wait},
	{"POST", "/v1/reload", true, nil, (*Server).reload},
	{"POST", "/v1/programs/{name}/start", true, nil, (*Server).start},
	{"POST", "/v1/programs/{name}/stop", true, nil, (*Server).stop},
	{"POST", "/v1/programs/{name}/restart", true, nil, (*Server).restart},
	{"POST", "/v1/programs/{name}/scale", true, nil, (*Server).scale},
	{"POST", "/v1/programs/{name}/signal", true, nil, (*Server).signal},
	{"POST", "/v1/programs/{name}/abort", true, nil, (*Server).abort},
	{"POST", "/v1/programs/{name}/promote", true, nil, (*Server).promote},
	{"POST", "/v1/programs/{name}/kill", true, nil, (*Server).kill},
	{"GET", "/v1/programs/{name}/logs", false, []string{"lines", "follow"}, (*Server).logs},
	{"GET", "/v1/programs/{name}/receipts", false, nil, (*Server).receipts},
	{"PUT", "/v1/log-level", true, nil, (*Server).logLevel},
	{"POST", "/v1/upgrade", true, nil, (*Server).upgrade},
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.method+" "+r.path, s.guarded(r))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(NoPath, fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path), "docs/openapi.yaml lists what there is").Write(w)
	})
	return mux
}

// guarded lets through who may ask, and bounds what they send.
func (s *Server) guarded(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := s.forbids(r, route.change); p != nil {
			p.Write(w)
			return
		}
		if p := s.misdirected(r.Header.Values(ConfigHeader)); p != nil {
			p.Write(w)
			return
		}
		for key := range r.URL.Query() {
			if !slices.Contains(route.query, key) {
				problem(BadRequest, fmt.Sprintf("the parameter %q is not known here", key), "docs/openapi.yaml lists them").Write(w)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := route.answer(s, w, r); err != nil {
			ProblemOf(err).Write(w)
		}
	})
}

// ConfigHeader is a header in which a client may say which configuration file it means, as a path in percent encoding: a supervisord
// that runs with another one then refuses. It may be given twice, before and after symlinks are resolved.
const ConfigHeader = "Supervisord-Config"

// misdirected says that a client means another supervisord.
func (s *Server) misdirected(means []string) *Problem {
	if len(means) == 0 {
		return nil
	}
	resolved, err := filepath.EvalSymlinks(s.Config)
	for _, text := range means {
		path, bad := url.PathUnescape(text)
		if bad == nil && (path == s.Config || err == nil && path == resolved) {
			return nil
		}
	}
	with := "with " + s.Config
	if s.Config == "" {
		with = "without a configuration file"
	}
	return problem(OtherConfig, fmt.Sprintf("the supervisord that answers here (PID %d) runs %s", os.Getpid(), with),
		"that with the configuration which was meant does not run, or has its control socket elsewhere; to ask this one, use --socket or its -c")
}

// forbids says why whoever asks may not, or nil.
func (s *Server) forbids(r *http.Request, change bool) *Problem {
	p, known := peerFrom(r.Context())
	switch {
	case !known:
		return problem(NotPermitted, "it is not known who asks", "")
	case s.rights.mayChange(p):
		return nil
	case change:
		return problem(NotPermitted, fmt.Sprintf("user %d may not change anything", p.UID),
			"ask as root, as the user of supervisord, or as a member of control_group in [supervisor]")
	case !s.rights.mayRead(p):
		return problem(NotPermitted, fmt.Sprintf("user %d may not read", p.UID),
			`ask as root, as the user of supervisord or as a member of control_group, or set control_read = "any" in [supervisor]`)
	}
	return nil
}

// respond writes an answer.
func respond(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client may be gone
	return nil
}

// body reads what was sent into v. Nothing at all is what v is already; a key that is not known is an error.
func body(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == nil {
			err = errors.New("something follows the object")
		}
	}
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return problem(BadRequest, "the body is too long", fmt.Sprintf("send at most %d bytes", tooLong.Limit))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return problem(BadRequest, "the body is not what is expected: "+err.Error(), "docs/openapi.yaml describes it")
	}
	return nil
}

// Accepted is the answer to what takes effect by and by.
type Accepted struct {
	Tickets []supervisor.Ticket `json:"tickets"` // to wait for, with GET /v1/wait
}

// ReceiptsAnswer is the answer to …/receipts.
type ReceiptsAnswer struct {
	Receipts []receipt.Receipt `json:"receipts"` // the newest first; one without "ended" is as far as it is known by now
}

// ScaleBody is the body of …/scale.
type ScaleBody struct {
	Workers int `json:"workers"`
}

// SignalBody is the body of …/signal.
type SignalBody struct {
	Signal     string `json:"signal"`     // "USR1", "SIGUSR1" or "10"
	Generation int    `json:"generation"` // 0: every worker that does not stop
}

// AbortBody is the body of …/abort.
type AbortBody struct {
	Reason string `json:"reason"`
}

// KillBody is the body of …/kill.
type KillBody struct {
	Generation int `json:"generation"`
}

// LevelBody is the body of log-level.
type LevelBody struct {
	Level string `json:"level"`
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) error {
	return s.happen(w, r, program.Start{})
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) error {
	return s.happen(w, r, program.Stop{})
}

// restart is a stop and a start at once: who asks may go away, and the program is not left stopped.
func (s *Server) restart(w http.ResponseWriter, r *http.Request) error {
	return s.happen(w, r, program.Stop{}, program.Start{})
}

func (s *Server) scale(w http.ResponseWriter, r *http.Request) error {
	var b ScaleBody
	if err := body(r, &b); err != nil {
		return err
	}
	return s.happen(w, r, program.Scale{Workers: b.Workers})
}

// maxReason bounds a text that goes into the log.
const maxReason = 200

func (s *Server) abort(w http.ResponseWriter, r *http.Request) error {
	b := AbortBody{Reason: "asked to"}
	if err := body(r, &b); err != nil {
		return err
	}
	if len(b.Reason) > maxReason {
		return problem(BadRequest, "the reason is too long", fmt.Sprintf("at most %d bytes", maxReason))
	}
	return s.happen(w, r, program.Abort{Reason: printable(b.Reason, maxReason)})
}

func (s *Server) promote(w http.ResponseWriter, r *http.Request) error {
	return s.happen(w, r, program.Promote{})
}

// happen gives a program events, and says which generation shows how it went.
func (s *Server) happen(w http.ResponseWriter, r *http.Request, events ...program.Event) error {
	var last any
	ctx, by := context.WithoutCancel(r.Context()), whoAsks(r.Context()) // all of them or none
	for _, e := range events {
		var err error
		if last, err = s.ask(ctx, askTimeout, supervisor.ProgramRequest{Program: r.PathValue("name"), Event: e, AskedBy: by}); err != nil {
			return err
		}
	}
	return respond(w, Accepted{[]supervisor.Ticket{last.(supervisor.Ticket)}})
}

func (s *Server) signal(w http.ResponseWriter, r *http.Request) error {
	var b SignalBody
	if err := body(r, &b); err != nil {
		return err
	}
	sig, err := signalNumber(b.Signal)
	if err != nil {
		return err
	}
	return s.signalTo(w, r, supervisor.SignalRequest{Program: r.PathValue("name"), Generation: b.Generation, Signal: sig})
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) error {
	var b KillBody
	if err := body(r, &b); err != nil {
		return err
	}
	if b.Generation < 1 {
		return problem(BadRequest, "no generation was named", "`supervisord status` shows their numbers; to end the program, use stop")
	}
	return s.signalTo(w, r, supervisor.SignalRequest{Program: r.PathValue("name"), Generation: b.Generation, Signal: syscall.SIGKILL})
}

func (s *Server) signalTo(w http.ResponseWriter, r *http.Request, q supervisor.SignalRequest) error {
	q.AskedBy = whoAsks(r.Context())
	if _, err := s.ask(r.Context(), askTimeout, q); err != nil {
		return err
	}
	return respond(w, Accepted{[]supervisor.Ticket{}})
}

// signalNumber reads "USR1", "SIGUSR1" or "10".
func signalNumber(name string) (syscall.Signal, error) {
	upper := strings.ToUpper(name)
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(upper, "SIG")); sig != 0 {
		return sig, nil
	}
	const last = 64 // _NSIG
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= last {
		return syscall.Signal(n), nil
	}
	return 0, problem(BadRequest, fmt.Sprintf("%q is no signal", name), "write one such as USR1, or its number")
}

func (s *Server) logLevel(w http.ResponseWriter, r *http.Request) error {
	var b LevelBody
	if err := body(r, &b); err != nil {
		return err
	}
	if _, err := s.ask(r.Context(), askTimeout, supervisor.LevelRequest{Level: b.Level, AskedBy: whoAsks(r.Context())}); err != nil {
		return err
	}
	return respond(w, Accepted{[]supervisor.Ticket{}})
}

// upgradeTimeout is longer than a new binary is tried for.
const upgradeTimeout = 40 * time.Second

// upgrade answers when the new binary has been tried, and only then has it take over: the answer is complete before this image
// ends. Whoever asked may go away; the upgrade goes on.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) error {
	ctx := context.WithoutCancel(r.Context())
	if _, err := s.ask(ctx, upgradeTimeout, supervisor.UpgradeRequest{AskedBy: whoAsks(ctx)}); err != nil {
		return err
	}
	text, err := json.Marshal(Accepted{[]supervisor.Ticket{}})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)                                      //nolint:errcheck // the client may be gone
	http.NewResponseController(w).Flush()              //nolint:errcheck // likewise
	s.ask(ctx, askTimeout, supervisor.SwitchRequest{}) //nolint:errcheck // the status says why it failed
	return nil
}

// newLines prepares an answer without an end of its own.
func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, control: http.NewResponseController(w)}
}

// lines writes one JSON object a line, each at once. After an error it writes no more.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (l *lines) begin() {
	l.w.Header().Set("Content-Type", "application/x-ndjson")
	l.flush()
}

func (l *lines) write(v any) error {
	if l.err == nil {
		l.control.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:errcheck // it is a socket
		l.err = json.NewEncoder(l.w).Encode(v)
		l.flush()
	}
	return l.err
}

func (l *lines) flush() { l.err = errors.Join(l.err, l.control.Flush()) }
