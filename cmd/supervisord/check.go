package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/platform"
	"example.org/supervisord/internal/terminal"
)

// finding is a problem as `check --json` prints it.
type finding struct {
	Severity string `json:"severity"` // error, warning or note
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"` // in bytes, from 1
	Key      string `json:"key,omitempty"`
	What     string `json:"what"`
	Remedy   string `json:"remedy,omitempty"`
}

// findings is the answer of `check --json`.
type findings struct {
	OK       bool      `json:"ok"`
	Files    []string  `json:"files,omitempty"`
	Findings []finding `json:"findings"`
}

func checkCommand(path *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "check the configuration: print what is wrong and where, or \"ok\"",
		Long: `check reads the configuration and prints a line for each problem:

  FILE:LINE:COLUMN: KEY: what is wrong: what to write

"warning:" or "note:" comes before KEY where supervisord accepts the configuration anyway.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := findConfig(c, path); err != nil {
				return err
			}
			problems, files, err := problemsOf(*path)
			if err != nil {
				return err
			}
			return conclude(problems, files, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// problemsOf reads a configuration. files are all files of the configuration; none: supervisord would refuse it.
func problemsOf(path string) (problems []document.Problem, files []string, err error) {
	c, err := config.Load(path)
	if refused, is := errors.AsType[*document.Error](err); is {
		return refused.Problems, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return append(c.Check(), lacks(c.Files[0])...), c.Files, nil
}

// conclude prints problems, and returns an error with its exit code if one of them is an error.
func conclude(problems []document.Problem, files []string, asJSON bool) (refusal error) {
	answer := findings{OK: !slices.ContainsFunc(problems, document.Problem.IsError), Files: files, Findings: []finding{}}
	if !answer.OK {
		refusal = &exitError{code: exitConfig}
	}
	if !asJSON {
		printProblems(problems, !answer.OK)
		return refusal
	}
	for _, p := range problems {
		answer.Findings = append(answer.Findings,
			finding{cmp.Or(string(p.Severity), "error"), p.File, p.Line, p.Column, p.Key, p.What, p.Remedy})
	}
	return errors.Join(printJSON(answer), refusal)
}

// lacks returns a problem of the whole file for each kernel feature that this machine lacks.
func lacks(file string) (problems []document.Problem) {
	for _, lack := range platform.Lacks() {
		severity := document.Note
		if lack.Needed {
			severity = document.Warning
		}
		problems = append(problems, document.Problem{File: file, Severity: severity, What: lack.What, Remedy: lack.Remedy})
	}
	return problems
}

// printProblems prints problems so that an editor finds their positions: no line begins with anything else than a file.
func printProblems(problems []document.Problem, refused bool) {
	out := os.Stdout
	if refused {
		out = os.Stderr
	}
	paint := terminal.Colors(out)
	for _, p := range problems {
		word, color := string(p.Severity), paint.Warn
		if word == "" {
			word, color = p.What, paint.Bad
		}
		fmt.Fprintln(out, strings.Replace(p.String(), ": "+word, ": "+color(word), 1))
	}
	if !refused {
		fmt.Fprintln(out, paint.Good("ok"))
	}
}
