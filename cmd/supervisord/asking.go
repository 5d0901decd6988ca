package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
)

// asking is a command that asks a running supervisord, with the flags that such commands have in common.
type asking struct {
	path   *string // of the configuration
	socket string  // --socket

	timeout               time.Duration // --timeout
	noWait, verbose, json bool

	name   string          // of the command
	client *control.Client // while the command runs
}

// command adds the flag --socket to a command, and makes Ctrl-C end the request.
func (a *asking) command(c *cobra.Command, ask func(ctx context.Context, args []string) error) *cobra.Command {
	a.name = c.Name()
	c.Flags().StringVar(&a.socket, "socket", "", "the control `socket` (default: what the configuration says)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if a.client, err = a.find(c, findConfig); err != nil {
			return err
		}
		defer a.client.Close()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return a.missing(ask(ctx, args))
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return c
}

// ofProgram is command for a command whose first argument is [PROGRAM]. If that is omitted, ask gets the only program.
func (a *asking) ofProgram(c *cobra.Command, ask func(ctx context.Context, args []string) error) *cobra.Command {
	c.ValidArgsFunction = a.programs(1)
	return a.command(c, func(ctx context.Context, args []string) error {
		args, err := a.withProgram(ctx, c, args)
		if err != nil {
			return err
		}
		return ask(ctx, args)
	})
}

// find finds the socket: --socket, else the one in the configuration, else the default. With -c, or another
// configuration that somebody chose, only a supervisord that runs this configuration is asked.
func (a *asking) find(c *cobra.Command,
	find func(*cobra.Command, *string) (commandline.ConfigFile, error)) (*control.Client, error) {
	if a.socket != "" {
		return control.NewClient(a.socket), nil
	}
	found, err := find(c, a.path)
	if err != nil {
		return nil, err
	}
	sockets := config.ControlSockets(*a.path)
	if len(sockets) == 0 {
		return nil, fmt.Errorf("%w: control is off in %s: send signals, or set control in [supervisor]",
			control.ErrNotThere, *a.path)
	}
	client := control.NewClient(sockets...)
	client.Trust(*a.path)
	if found.Named {
		client.Means(*a.path)
	}
	return client, nil
}

// missing adds to an error that the configuration does not exist, if another supervisord answered or none: the name of
// the configuration may be mistyped.
func (a *asking) missing(err error) error {
	refused, is := errors.AsType[*control.APIError](err)
	if is && refused.Code == control.OtherConfig || errors.Is(err, control.ErrNotThere) {
		if _, missing := os.Stat(*a.path); errors.Is(missing, fs.ErrNotExist) {
			return fmt.Errorf("there is no %s, and %w", *a.path, err)
		}
	}
	return err
}

// withProgram inserts the only program as the first argument of a command, if [PROGRAM] is omitted.
func (a *asking) withProgram(ctx context.Context, c *cobra.Command, args []string) ([]string, error) {
	rest := commandline.Behind(c) // what follows PROGRAM
	if len(args) > len(rest) {
		return args, nil
	}
	st, err := a.client.Status(ctx, "", false)
	switch {
	case err != nil:
		return nil, err
	case len(args) > 0 && st.Program(args[0]) != nil:
		return nil, commandline.Usagef("%s is missing: write `%s %s %s`", rest[0], c.CommandPath(), args[0], rest[0])
	case len(st.Programs) == 1:
		return slices.Insert(args, 0, st.Programs[0].Name), nil
	case len(st.Programs) == 0:
		return nil, errNoPrograms
	}
	return nil, commandline.Usagef("there are several programs: name one of %s", strings.Join(programNames(st), ", "))
}

var errNoPrograms = errors.New("no program is configured: add a [program.NAME] table")

func programNames(st *supervisor.Status) (names []string) {
	for _, p := range st.Programs {
		names = append(names, p.Name)
	}
	return names
}

// program returns the status of a program, or nil after an error, which the request that follows reports.
func (a *asking) program(ctx context.Context, name string) *supervisor.ProgramStatus {
	st, err := a.client.Status(ctx, name, false)
	if err != nil {
		return nil
	}
	return st.Program(name)
}

// completionTimeout is how long Tab waits for supervisord.
const completionTimeout = time.Second

// programs completes the names of programs, at most n of them (0: any number).
func (a *asking) programs(n int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		client, err := a.find(c, commandline.FindConfig)
		if err != nil || n > 0 && len(args) >= n {
			return nil, directive
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		st, err := client.Status(ctx, "", false)
		if err != nil {
			return nil, directive
		}
		for _, p := range st.Programs {
			if !slices.Contains(args, p.Name) {
				names = append(names, p.Name+"\t"+string(p.State))
			}
		}
		return names, directive
	}
}

// printJSON prints an object, indented.
func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine prints an object in one line.
func printLine(v any) {
	json.NewEncoder(os.Stdout).Encode(v) //nolint:errcheck // SIGPIPE ends this command if the reader has gone
}

// untilInterrupted makes Ctrl-C the proper end of a command that has no end of its own.
func untilInterrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// first returns the first argument, or "".
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
