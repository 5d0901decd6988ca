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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
)

// asking is what the commands have in common that ask a running supervisord.
type asking struct {
	path   *string // of the configuration
	socket string  // --socket
}

// client finds the socket: --socket, else the one in the configuration, else the default. With -c, or another
// configuration that somebody chose, only a supervisord that runs this configuration is asked.
func (a *asking) client(c *cobra.Command,
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
		return nil, &exitError{code: exitUnavailable,
			err: errors.New("control is off in " + *a.path + ": send signals, or set control in [supervisor]")}
	}
	client := control.NewClient(sockets...)
	client.Trust(*a.path)
	if found.Named {
		client.Means(*a.path)
	}
	return client, nil
}

// command completes a command that asks: it gets the flag --socket, and Ctrl-C ends the asking.
func (a *asking) command(c *cobra.Command,
	ask func(ctx context.Context, c *control.Client, args []string) error) *cobra.Command {
	c.Flags().StringVar(&a.socket, "socket", "", "the control `socket` (default: what the configuration says)")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client(c, findConfig)
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return a.missing(ask(ctx, client, args))
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return c
}

// missing adds to the answer of another supervisord, or to none, that the configuration does not exist: its name may be
// mistyped.
func (a *asking) missing(err error) error {
	refused, is := errors.AsType[*control.APIError](err)
	if is && refused.Code == control.OtherConfig || errors.Is(err, control.ErrNotThere) {
		if _, missing := os.Stat(*a.path); errors.Is(missing, fs.ErrNotExist) {
			return fmt.Errorf("there is no %s, and %w", *a.path, err)
		}
	}
	return err
}

// completionTimeout is how long Tab waits for supervisord.
const completionTimeout = time.Second

// programs completes the names of programs, at most n of them (0: any number).
func (a *asking) programs(n int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		client, err := a.client(c, commandline.FindConfig)
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
