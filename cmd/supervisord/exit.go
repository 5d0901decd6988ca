package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// Exit codes: one for each kind of outcome, so that a script can tell them apart. Those from 64 up are of sysexits.h.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitPrepare     = 10
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

// exitTable describes them; docs/control.md has the same.
var exitTable = []struct {
	code    int
	meaning string
}{
	{0, "success: the new generation serves, a canary is well and held, …"},
	{exitFailure, "any other error, such as a program that does not exist"},
	{exitUsage, "the command line is wrong: an unknown command or flag, a missing argument, an invalid value"},
	{exitPrepare, "the generation could not be prepared, or its preflight failed"},
	{exitWorker, "a worker failed: it could not be started, or exited too soon"},
	{exitNotReady, "a worker was not ready in time"},
	{exitSuperseded, "the reload was aborted, superseded by a newer one, or rolled back, or the program was stopped"},
	{exitTimeout, "timed out: not finished within --timeout, and still running"},
	{exitUnknown, "unknown: supervisord has no record of how the change ended, or died before it answered"},
	{exitKilled, "done, but workers of the old generation had to be killed (--drained, stop)"},
	{exitUnavailable, "no supervisord answers"},
	{exitPermission, "not permitted"},
	{exitConfig, "the configuration was refused; nothing has changed"},
	{exitInterrupted, "interrupted; the operation continues"},
}

// exitStatusTopic is the name of the help topic with all codes.
const exitStatusTopic = "exit-status"

// exitStatusHelp is a help topic: a command that does nothing but explain itself.
func exitStatusHelp() *cobra.Command {
	text := "Exit status:\n"
	for _, row := range exitTable {
		text += fmt.Sprintf("  %-3d  %s\n", row.code, row.meaning)
	}
	return &cobra.Command{
		Use: exitStatusTopic, Short: "the exit status of every command",
		Long: text + "\nOf several programs the worst outcome decides. stderr says what failed.",
	}
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code   int
	err    error                  // nil: the command has printed everything
	report *control.CommandReport // for --json
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

// outcomeCodes are the exit codes of verdicts.
var outcomeCodes = map[program.Outcome]int{
	program.Serves: 0, program.Held: 0, control.Down: 0, control.Killed: exitKilled,
	program.Superseded: exitSuperseded, program.Aborted: exitSuperseded, program.Stopped: exitSuperseded,
	control.RolledBack: exitSuperseded,
	control.TimedOut:   exitTimeout, control.Unknown: exitUnknown, program.NotReady: exitNotReady,
	program.NotPrepared: exitPrepare, program.WorkerDown: exitWorker,
}

type failure struct {
	err  error
	code control.Code
}

// failures are the codes of errors of other packages. The first that is in the chain counts.
var failures = []failure{
	{control.ErrForbidden, control.NotPermitted},
	{control.ErrNotThere, control.NoAnswer},
	{control.ErrStranger, control.NoAnswer},
	{control.ErrBroken, control.NoAnswer},
	{errInterrupted, control.Interrupted},
	{context.Canceled, control.Interrupted},
}

var errInterrupted = errors.New("interrupted; the operation continues")

// failureCodes are the exit codes of errors that have another one than exitFailure.
var failureCodes = map[control.Code]int{
	control.BadRequest: exitUsage, // a value that only supervisord could judge, too
	control.Refused:    exitConfig, control.NotPermitted: exitPermission, control.NoAnswer: exitUnavailable,
	control.Stopping: exitUnavailable, control.TooSlow: exitUnavailable, control.TooMany: exitUnavailable,
	control.OtherConfig: exitUnavailable, control.Interrupted: exitInterrupted,
}

// classify returns the outcome, the code for programs and the exit code for an error of any package.
func classify(err error) (outcome program.Outcome, code control.Code, exit int) {
	switch {
	case errors.Is(err, control.ErrUnknown):
		return control.Unknown, "", exitUnknown
	case errors.Is(err, control.ErrLate):
		return control.TimedOut, "", exitTimeout
	}
	code = control.OtherError
	if _, is := errors.AsType[*commandline.UsageError](err); is {
		code = control.BadRequest
	} else if _, is := errors.AsType[*document.Error](err); is {
		code = control.Refused
	} else if p, is := errors.AsType[*control.APIError](err); is {
		code = p.Code
	} else if i := slices.IndexFunc(failures, func(f failure) bool { return errors.Is(err, f.err) }); i >= 0 {
		code = failures[i].code
	}
	return control.Failed, code, cmp.Or(failureCodes[code], exitFailure)
}

// exitCode returns the exit code for an error of any package.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	_, _, exit := classify(err)
	return exit
}
