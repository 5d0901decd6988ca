package main

import (
	"context"
	"errors"
	"fmt"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// Exit codes: one for each kind of outcome, so that a script can tell them apart. Those from 64 up are of sysexits.h.
const (
	exitFailure     = 1
	exitPreflight   = 10
	exitWorker      = 11
	exitNotReady    = 12
	exitSuperseded  = 13
	exitTimeout     = 14
	exitUnknown     = 15
	exitKilled      = 16
	exitUnavailable = 69
	exitPermission  = 77
	exitConfig      = 78 // starting again will not help
	exitInterrupted = 130
)

// exitCodes describes them for --help and the manual page; docs/control.md has the same.
const exitCodes = `Exit status:
  0    success: the new generation serves, a canary is well and held, …
  1    any other error: an invalid argument, a program that does not exist
  10   the preflight failed, or the generation could not be prepared
  11   a worker failed: it could not be started, or exited too soon
  12   a worker was not ready in time
  13   the trial was aborted, superseded by a newer one, or rolled back, or the program was stopped
  14   timed out: not finished within --timeout, and still running
  15   unknown: the supervisord that was asked is gone with its records
  16   done, but workers of the old generation had to be killed (--drained, stop)
  69   no supervisord answers
  77   not permitted
  78   the configuration was refused; nothing has changed
  130  interrupted; what was begun goes on`

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error // nil: everything has been printed
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

// outcomeCodes are the exit codes of what was waited for.
var outcomeCodes = map[program.Outcome]int{
	program.Serves: 0, program.Held: 0, control.Down: 0, control.Killed: exitKilled,
	program.Superseded: exitSuperseded, program.Aborted: exitSuperseded, program.Stopped: exitSuperseded, control.RolledBack: exitSuperseded,
	control.TimedOut: exitTimeout, control.Unknown: exitUnknown, program.NotReady: exitNotReady,
	program.Preflight: exitPreflight, program.WorkerDown: exitWorker,
}

// errorCodes are the exit codes of errors. The first that is in the chain counts.
var errorCodes = []struct {
	err  error
	code int
}{
	{control.ErrUnknown, exitUnknown},
	{control.ErrLate, exitTimeout},
	{control.ErrForbidden, exitPermission},
	{control.ErrNotThere, exitUnavailable},
	{control.ErrStranger, exitUnavailable},
	{control.ErrBroken, exitUnavailable},
	{context.Canceled, exitInterrupted},
}

// exitCode returns the exit code for an error of any package.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*document.Error](err); ok {
		return exitConfig
	}
	for _, e := range errorCodes {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	if p, ok := errors.AsType[*control.APIError](err); ok {
		return problemCode(p.Code)
	}
	return exitFailure
}

func problemCode(c control.Code) int {
	switch c {
	case control.Refused:
		return exitConfig
	case control.NotPermitted:
		return exitPermission
	case control.Stopping, control.TooSlow, control.TooMany, control.OtherConfig:
		return exitUnavailable
	}
	return exitFailure
}
