package main

import (
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
)

// reportMark marks the flag --json of commands that print a control.CommandReport if they fail.
const reportMark = "supervisord_report"

// reportFlag gives a command --json. Then it prints exactly one document on stdout, also if it fails.
func reportFlag(c *cobra.Command, asJSON *bool, usage string) {
	c.Flags().BoolVar(asJSON, "json", false, usage)
	c.Flags().SetAnnotation("json", reportMark, nil) //nolint:errcheck // the flag is there
}

// reports gives a command --json.
func (a *asking) reports(c *cobra.Command) {
	reportFlag(c, &a.json, "print one JSON document, also after a failure")
}

// wantsReport reports whether a command that failed should print a report. A mistake in the command line may stand
// before --json.
func wantsReport(c *cobra.Command, args []string) bool {
	f := c.Flags().Lookup("json")
	if f == nil {
		return false
	}
	_, has := f.Annotations[reportMark]
	return has && (f.Value.String() == "true" || slices.Contains(args, "--json"))
}

// failureReport returns the report for an error.
func failureReport(command string, err error) *control.CommandReport {
	if e, ok := errors.AsType[*exitError](err); ok && e.report != nil {
		return e.report
	}
	outcome, code, _ := classify(err)
	return &control.CommandReport{Command: command, Outcome: outcome, Code: code, Programs: []control.ProgramReport{}}
}

// printReport prints a report. err is the error of the command, or nil.
func printReport(r *control.CommandReport, err error, exit int) error {
	r.Host, _ = os.Hostname()
	r.Exit = exit
	if err != nil {
		r.Error = err.Error()
	}
	return printJSON(r)
}

// printTickets prints the report of a command that does not wait.
func printTickets(command string, tickets []supervisor.Ticket) error {
	return printReport(&control.CommandReport{Command: command, Outcome: control.Taken,
		Programs: []control.ProgramReport{}, Tickets: tickets}, nil, 0)
}
