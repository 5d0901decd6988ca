package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
)

// withProgram returns the arguments of a command whose first is [PROGRAM], with the only program in its place if it was
// omitted.
func withProgram(ctx context.Context, client *control.Client, c *cobra.Command, args []string) ([]string, error) {
	rest := commandline.Behind(c) // what follows PROGRAM
	if len(args) > len(rest) {
		return args, nil
	}
	st, err := client.Status(ctx, "", false)
	switch {
	case err != nil:
		return nil, err
	case len(args) > 0 && st.Program(args[0]) != nil:
		return nil, commandline.Usagef("%s is missing: write `%s %s %s`", rest[0], c.CommandPath(), args[0], rest[0])
	case len(st.Programs) == 1:
		return slices.Insert(args, 0, st.Programs[0].Name), nil
	case len(st.Programs) == 0:
		return nil, errors.New("no program is configured: add a [program.NAME] table")
	case c.Name() == "rollback":
		return nil, whichProgram(st)
	}
	return nil, commandline.Usagef("there are several programs: name one of %s", strings.Join(programNames(st), ", "))
}

func programNames(st *supervisor.Status) (names []string) {
	for _, p := range st.Programs {
		names = append(names, p.Name)
	}
	return names
}

// whichProgram asks for the name of a program, and says which can be rolled back.
func whichProgram(st *supervisor.Status) error {
	var kept []string
	for _, p := range st.Programs {
		for _, g := range p.Generations {
			if g.KeptTill != nil {
				kept = append(kept, fmt.Sprintf("%s (generation %d is kept until %s)", p.Name, g.Number,
					g.KeptTill.Local().Format(time.TimeOnly)))
			}
		}
	}
	if len(kept) == 0 {
		return errors.New("no program keeps the generation before: reload with the old version; programs: " +
			strings.Join(programNames(st), ", "))
	}
	return commandline.Usagef("name the program to roll back: %s", strings.Join(kept, ", "))
}
