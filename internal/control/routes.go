package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/supervisor"
)

// route is one request that the API answers.
type route struct {
	method, path string
	change       bool     // needs the right to change things
	query        []string // the parameters that may follow the path
	answer       func(*API, http.ResponseWriter, *http.Request) error
}

// waits are the parameters of a request whose outcome a client can wait for: see answer.
var waits = []string{"until", "timeout"}

// routes are all routes. docs/openapi.yaml describes the same routes; a test compares the two.
var routes = append([]route{
	{"GET", "/v1/status", false, []string{"program", "usage"}, (*API).showStatus},
	{"GET", "/v1/events", false, []string{"program"}, (*API).events},
	{"GET", "/v1/wait", false, []string{"ticket", "until", "timeout"}, (*API).wait},
	{"POST", "/v1/reload", true, waits, (*API).reload},
	{"POST", programPrefix + "signal", true, nil, (*API).signal},
	{"POST", programPrefix + "kill", true, nil, (*API).kill},
	{"GET", programPrefix + "logs", false, []string{"lines", "follow"}, (*API).logs},
	{"GET", programPrefix + "receipts", false, nil, (*API).receipts},
	{"PUT", "/v1/log-level", true, nil, (*API).logLevel},
	{"POST", "/v1/upgrade", true, nil, (*API).upgrade},
}, verbRoutes()...)

const programPrefix = "/v1/programs/{name}/"

func verbRoutes() (list []route) {
	for _, v := range verbs {
		r := route{"POST", programPrefix + v.name, true, nil, v.do}
		if v.waits {
			r.query = waits
		}
		list = append(list, r)
	}
	return list
}

func (a *API) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.method+" "+r.path, a.guarded(r))
	}
	mux.Handle("/", answering(noPath))
	return mux
}

func noPath(_ http.ResponseWriter, r *http.Request) error {
	return apiError(NoPath, fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path), "docs/openapi.yaml lists all paths")
}

// guarded rejects clients without permission, and limits what a client may send.
func (a *API) guarded(route route) http.Handler {
	return answering(func(w http.ResponseWriter, r *http.Request) error {
		err := errors.Join(a.rights.check(r.Context(), route.change), a.misdirected(r), unknownParameter(r, route.query))
		if err != nil {
			return err
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		return route.answer(a, w, r)
	})
}

// answering is a handler whose error is the answer.
type answering func(http.ResponseWriter, *http.Request) error

// ServeHTTP implements http.Handler.
func (f answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f(w, r); err != nil {
		writeError(w, err)
	}
}

func unknownParameter(r *http.Request, known []string) error {
	for key := range r.URL.Query() {
		if !slices.Contains(known, key) {
			return apiError(BadRequest, fmt.Sprintf("unknown parameter %q", key), "docs/openapi.yaml lists all parameters")
		}
	}
	return nil
}

// configHeader is a header in which a client may say which configuration file it means, as a percent-encoded absolute
// path: a supervisord that runs with another file refuses. It may be given twice, before and after symlinks are
// resolved.
const configHeader = "Supervisord-Config"

// misdirected returns an error if the client means another supervisord.
func (a *API) misdirected(r *http.Request) error {
	means := r.Header.Values(configHeader)
	if len(means) == 0 {
		return nil
	}
	resolved, _ := filepath.EvalSymlinks(a.Config) // "" matches nothing
	for _, text := range means {
		if path, err := url.PathUnescape(text); err == nil && path != "" && (path == a.Config || path == resolved) {
			return nil
		}
	}
	with := "with " + a.Config
	if a.Config == "" {
		with = "without a configuration file"
	}
	return apiError(OtherConfig, fmt.Sprintf("the supervisord that answers here (PID %d) runs %s", os.Getpid(), with),
		"start your supervisord, or name this one with --socket")
}

// respond writes an answer. It returns nil.
func respond(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client may be gone
	return nil
}

// body decodes the body of a request into v. An empty body leaves v unchanged; an unknown key is an error.
func body(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == nil {
			err = errors.New("something follows the object")
		}
	}
	if refused, ok := errors.AsType[*APIError](err); ok {
		return refused
	}
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return apiError(BadRequest, "the body is too long", fmt.Sprintf("send at most %d bytes", tooLong.Limit))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return apiError(BadRequest, "cannot read the body: "+err.Error(), "docs/openapi.yaml describes it")
	}
	return nil
}

// yes reads a parameter that is yes or no.
func yes(r *http.Request, key string, otherwise bool) (bool, error) {
	switch value := r.FormValue(key); value {
	case "":
		return otherwise, nil
	case "yes", "no":
		return value == "yes", nil
	default:
		return false, apiError(BadRequest, fmt.Sprintf("%s: unknown value %q", key, value), "write yes or no")
	}
}

// APIError is an answer other than success: what is wrong, and what to do about it. A Client returns it as an error.
type APIError struct {
	Status int    `json:"-"`     // of HTTP
	Code   Code   `json:"code"`  // for programs
	What   string `json:"error"` // for people
	Remedy string `json:"remedy,omitempty"`
}

func (e *APIError) Error() string {
	if e.Remedy == "" {
		return e.What
	}
	if e.Code == Refused || strings.Contains(e.What, "\n") { // the errors of a configuration have remedies of their own
		return e.What + "\n" + e.Remedy
	}
	return e.What + ": " + e.Remedy
}

// Code is a kind of error.
type Code string

// The codes of errors.
const (
	BadRequest   Code = "bad_request"
	NotPermitted Code = "not_permitted"
	NoProgram    Code = "no_program"
	NoPath       Code = "no_path"
	NotNow       Code = "not_now"      // the program is not in a state for this
	Refused      Code = "refused"      // the configuration
	BadBinary    Code = "bad_binary"   // the new binary failed its pre-flight check
	OtherConfig  Code = "other_config" // see configHeader
	TooMany      Code = "too_many"     // no room for one more connection
	Stopping     Code = "stopping"
	TooSlow      Code = "too_slow" // no answer in time
	Internal     Code = "internal"
)

var statusOf = map[Code]int{
	BadRequest: http.StatusBadRequest, NotPermitted: http.StatusForbidden, NoProgram: http.StatusNotFound,
	NoPath: http.StatusNotFound,
	NotNow: http.StatusConflict, Refused: http.StatusUnprocessableEntity, BadBinary: http.StatusUnprocessableEntity,
	OtherConfig: http.StatusMisdirectedRequest, TooMany: http.StatusServiceUnavailable,
	Stopping: http.StatusServiceUnavailable,
	TooSlow:  http.StatusGatewayTimeout, Internal: http.StatusInternalServerError,
}

func apiError(code Code, what, remedy string) *APIError {
	return &APIError{Status: statusOf[code], Code: code, What: what, Remedy: remedy}
}

// remedies are those of the loop's errors.
var remedies = []struct {
	err    error
	code   Code
	remedy string
}{
	{supervisor.ErrNoProgram, NoProgram, ""},
	{supervisor.ErrRefused, Refused, "fix the configuration, run `supervisord check`, and reload again"},
	{supervisor.ErrUpgrade, BadBinary, "install a working binary, and upgrade again"},
	{supervisor.ErrState, NotNow, ""},
	{supervisor.ErrCanary, NotNow, ""},
	{supervisor.ErrStopping, Stopping, "start supervisord again"},
	{errSlow, TooSlow, "look at the log, and try again"},
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*APIError](err)
	if !ok {
		e = apiError(Internal, err.Error(), "")
		for _, r := range remedies {
			if errors.Is(err, r.err) {
				e = apiError(r.code, err.Error(), r.remedy)
				break
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	json.NewEncoder(w).Encode(e) //nolint:errcheck // the client may be gone
}
