package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"example.org/supervisord/supervisor"
)

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
	BadRequest: http.StatusBadRequest, NotPermitted: http.StatusForbidden, NoProgram: http.StatusNotFound, NoPath: http.StatusNotFound,
	NotNow: http.StatusConflict, Refused: http.StatusUnprocessableEntity, BadBinary: http.StatusUnprocessableEntity,
	OtherConfig: http.StatusMisdirectedRequest, TooMany: http.StatusServiceUnavailable, Stopping: http.StatusServiceUnavailable,
	TooSlow: http.StatusGatewayTimeout, Internal: http.StatusInternalServerError,
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
	{supervisor.ErrRefused, Refused, "fix it, run `supervisord check`, and reload again"},
	{supervisor.ErrUpgrade, BadBinary, "install a working binary, and upgrade again"},
	{supervisor.ErrState, NotNow, ""},
	{supervisor.ErrCanary, NotNow, ""},
	{supervisor.ErrStopping, Stopping, "start it again"},
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
