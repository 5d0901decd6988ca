package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
)

// asking is what the commands have in common that ask a running supervisord.
type asking struct {
	path   *string // of the configuration
	socket string
}

// client finds the socket: --socket, else what the configuration says, else where it is by default. Where -c names a configuration
// only a supervisord that runs with it is asked.
func (a *asking) client(c *cobra.Command) (*control.Client, error) {
	if a.socket != "" {
		return control.NewClient(a.socket), nil
	}
	places := config.ControlSockets(*a.path)
	if len(places) == 0 {
		return nil, &exitError{exitUnavailable, errors.New("control is off in " + *a.path + ": send signals, or set control in [supervisor]")}
	}
	client := control.NewClient(places...)
	client.Trust(*a.path)
	if c.Flags().Changed("config") {
		client.Means(*a.path)
	}
	return client, nil
}

// command makes a command that asks: it can be told where, and Ctrl-C ends the asking.
func (a *asking) command(c *cobra.Command, ask func(ctx context.Context, c *control.Client, args []string) error) *cobra.Command {
	c.Flags().StringVar(&a.socket, "socket", "", "the control `socket` (default: what the configuration says)")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client(c)
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return ask(ctx, client, args)
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return c
}

// completionTimeout is how long whoever presses Tab is kept waiting.
const completionTimeout = time.Second

// programs completes the names of programs, at most n of them (0: any number), by asking.
func (a *asking) programs(n int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := a.client(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		st, err := client.Status(ctx, "", false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range st.Programs {
			if !slices.Contains(args, p.Name) {
				names = append(names, p.Name+"\t"+string(p.State))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// printJSON writes an object for people and programs.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine writes an object in one line.
func printLine(w io.Writer, v any) {
	json.NewEncoder(w).Encode(v) //nolint:errcheck // whoever read it has gone; SIGPIPE ends this command
}

// untilInterrupted makes Ctrl-C the proper end of a command that has no end of its own.
func untilInterrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// first is the first argument, or "".
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
