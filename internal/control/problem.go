package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"example.org/supervisord/supervisor"
)

// Problem is an answer that is no success: what is wrong, and what to do about it. It is the error that a Client returns.
type Problem struct {
	Status int    `json:"-"`     // of HTTP
	Code   Code   `json:"code"`  // for programs
	What   string `json:"error"` // for people
	Remedy string `json:"remedy,omitempty"`
}

func (p *Problem) Error() string {
	if p.Remedy == "" {
		return p.What
	}
	if strings.Contains(p.What, "\n") { // a configuration with several faults, each of which has its own
		return p.What + "\n" + p.Remedy
	}
	return p.What + ": " + p.Remedy
}

// Code tells kinds of problems apart.
type Code string

// The codes of problems.
const (
	BadRequest   Code = "bad_request"
	NotPermitted Code = "not_permitted"
	NoProgram    Code = "no_program"
	NoPath       Code = "no_path"
	NotNow       Code = "not_now"      // the program is not in a state for this
	Refused      Code = "refused"      // the configuration
	BadBinary    Code = "bad_binary"   // the one that was to take over
	OtherConfig  Code = "other_config" // see ConfigHeader
	TooMany      Code = "too_many"     // there is no room for one more connection
	Stopping     Code = "stopping"
	TooSlow      Code = "too_slow" // no answer in time
	Internal     Code = "internal"
)

var statusOf = map[Code]int{
	BadRequest: http.StatusBadRequest, NotPermitted: http.StatusForbidden, NoProgram: http.StatusNotFound, NoPath: http.StatusNotFound,
	NotNow: http.StatusConflict, Refused: http.StatusUnprocessableEntity, BadBinary: http.StatusUnprocessableEntity, OtherConfig: http.StatusMisdirectedRequest, TooMany: http.StatusServiceUnavailable,
	Stopping: http.StatusServiceUnavailable, TooSlow: http.StatusGatewayTimeout, Internal: http.StatusInternalServerError,
}

func problem(code Code, what, remedy string) *Problem {
	return &Problem{Status: statusOf[code], Code: code, What: what, Remedy: remedy}
}

// ProblemOf makes what the loop answered a Problem.
func ProblemOf(err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, supervisor.ErrNoProgram):
		return problem(NoProgram, err.Error(), "")
	case errors.Is(err, supervisor.ErrRefused):
		return problem(Refused, err.Error(), "put it right, run `supervisord check`, and reload again")
	case errors.Is(err, supervisor.ErrUpgrade):
		return problem(BadBinary, err.Error(), "put a binary that works in its place, and ask again")
	case errors.Is(err, supervisor.ErrState), errors.Is(err, supervisor.ErrCanary):
		return problem(NotNow, err.Error(), "")
	case errors.Is(err, supervisor.ErrStopping):
		return problem(Stopping, err.Error(), "start it again")
	case errors.Is(err, errSlow):
		return problem(TooSlow, err.Error(), "look into the log, and try again")
	}
	return problem(Internal, err.Error(), "")
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p) //nolint:errcheck // the client may be gone
}
