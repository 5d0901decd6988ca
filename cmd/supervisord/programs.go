package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/supervisor"
)

// waited makes a command that has something happen to a program, and waits for its end.
func waited(path *string, verb, until, short, long string) *cobra.Command {
	a, s, noWait := &asking{path: path}, &showing{}, false
	c := &cobra.Command{
		Use: verb + " PROGRAM", Short: short, Long: long + "\n\n" + exitCodes,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.programs(1),
	}
	s.flags(c)
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		begin := ticketsOf(func(ctx context.Context) ([]supervisor.Ticket, error) { return client.Program(ctx, args[0], verb, nil) })
		if noWait {
			return begin(ctx, s.runsAlready)
		}
		return s.wait(ctx, client, until, s.timeout, begin)
	})
}

func startCommand(path *string) *cobra.Command {
	return waited(path, "start", "serves", "start a program that was stopped",
		"start starts a program, and waits until it serves. One that runs already goes on as it is.")
}

func stopCommand(path *string) *cobra.Command {
	return waited(path, "stop", "down", "stop a program by its stop plan",
		"stop ends the workers of a program by its stop plan, and waits until they are gone. It stays stopped, also over reloads, until start.")
}

func restartCommand(path *string) *cobra.Command {
	return waited(path, "restart", "serves", "stop a program and start it again, with downtime",
		`restart stops a program and starts it again at once: the old workers are told to go before the new ones are ready. It reads no
configuration. What replaces workers without downtime is reload.`)
}

func promoteCommand(path *string) *cobra.Command {
	return waited(path, "promote", "serves", "let a held canary become the whole generation",
		"promote fills the other slots of a canary's generation, and waits until it serves.")
}

// atOnce makes a command that has something happen to a program and needs no waiting.
func atOnce(path *string, c *cobra.Command, verb string, body func(args []string) (any, error)) *cobra.Command {
	a := &asking{path: path}
	c.ValidArgsFunction = a.programs(1)
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		b, err := body(args)
		if err != nil {
			return err
		}
		_, err = client.Program(ctx, args[0], verb, b)
		return err
	})
}

func scaleCommand(path *string) *cobra.Command {
	c := &cobra.Command{
		Use: "scale PROGRAM N", Short: "change the number of workers",
		Long: `scale changes how many workers a program has: more are started beside those that serve, or the last slots are told to go, by the stop plan.
It holds until the configuration is read again, which says how many there are. Where a listener has a socket for each
worker (per_slot) a new generation of that size is made.`,
		Args: cobra.ExactArgs(2),
	}
	return atOnce(path, c, "scale", func(args []string) (any, error) {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, fmt.Errorf("%q is no number of workers", args[1])
		}
		return control.ScaleBody{Workers: n}, nil
	})
}

func signalCommand(path *string) *cobra.Command {
	var generation int
	c := &cobra.Command{
		Use: "signal PROGRAM SIGNAL", Short: "send a signal to the workers of a program",
		Long:    "signal sends a signal to every worker of a program that is not on its way out, or to those of one generation.",
		Example: "  supervisord signal web USR1",
		Args:    cobra.ExactArgs(2),
	}
	c.Flags().IntVar(&generation, "generation", 0, "only to the workers of this one, whatever they are about")
	return atOnce(path, c, "signal", func(args []string) (any, error) {
		return control.SignalBody{Signal: args[1], Generation: generation}, nil
	})
}

func abortCommand(path *string) *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use: "abort PROGRAM", Short: "give up a trial: the generation that serves goes on",
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&reason, "reason", "aborted by an operator", "why, for the log and for who waits for the reload")
	a := &asking{path: path}
	c.ValidArgsFunction = a.programs(1)
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		follows := waitingReload(ctx, client, args[0])
		if _, err := client.Program(ctx, args[0], "abort", control.AbortBody{Reason: reason}); err != nil {
			return err
		}
		fmt.Printf("%s: the trial is aborted%s\n", args[0], follows)
		return nil
	})
}

// waitingReload says which reload begins when the trial ends: it deploys the configuration as it is now, which may be what is being
// aborted.
func waitingReload(ctx context.Context, client *control.Client, program string) string {
	st, err := client.Status(ctx, program, false)
	if err != nil {
		return "" // the request itself says why
	}
	for _, p := range st.Programs {
		if p.Name == program && p.Due != nil {
			return fmt.Sprintf("; the reload that waited for it (%s) follows, with the newest configuration", p.Due.Reason+by(p.Due.AskedBy))
		}
	}
	return ""
}

func killCommand(path *string) *cobra.Command {
	var generation int
	c := &cobra.Command{
		Use: "kill PROGRAM --generation N", Short: "kill the workers of a generation now",
		Long: `kill sends KILL to the process groups of a generation: of one that drains too long, for example. The workers of the
generation that serves are started again.`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().IntVar(&generation, "generation", 0, "which one")
	c.MarkFlagRequired("generation") //nolint:errcheck // the flag is there
	return atOnce(path, c, "kill", func([]string) (any, error) { return control.KillBody{Generation: generation}, nil })
}

func logLevelCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	levels := []string{"debug", "info", "warn", "error"}
	c := &cobra.Command{
		Use: "log-level LEVEL", Short: "change what supervisord logs, until the configuration is read again",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.FixedCompletions(levels, cobra.ShellCompDirectiveNoFileComp),
	}
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		return client.Level(ctx, args[0])
	})
}

func eventsCommand(path *string) *cobra.Command {
	a, asJSON := &asking{path: path}, false
	c := &cobra.Command{
		Use: "events [PROGRAM]", Short: "say what happens, as it happens",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.programs(1),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		show := func(u supervisor.Update) {
			fmt.Println(u.Time.Local().Format("15:04:05.000"), sentence(u))
		}
		if asJSON {
			show = func(u supervisor.Update) { printLine(os.Stdout, u) }
		}
		return untilInterrupted(client.Events(ctx, first(args), show))
	})
}

func logsCommand(path *string) *cobra.Command {
	a, asJSON, raw, follow, n := &asking{path: path}, false, false, false, 0
	c := &cobra.Command{
		Use: "logs PROGRAM", Short: "print what the workers of a program wrote last, where that is captured",
		Long: `logs prints the last lines that the workers of a program wrote to a captured stream.
On a terminal it shows control characters as ^[ instead of sending them, except for colors; --raw, a pipe and a file get them as
they were written.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.programs(1),
	}
	c.Flags().IntVarP(&n, "lines", "n", 100, "how many `lines`")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what they write from now on")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, with time, worker and stream")
	c.Flags().BoolVar(&raw, "raw", false, "control characters as they were written, on a terminal too")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		text := visible
		if raw || !daemon.IsTerminal(os.Stdout) {
			text = func(line string) string { return line }
		}
		return untilInterrupted(client.Logs(ctx, args[0], n, follow, func(e control.LogEntry) {
			switch {
			case asJSON:
				printLine(os.Stdout, e)
			case e.LogLine != nil:
				fmt.Println(text(e.Text))
			default:
				fmt.Fprintf(os.Stderr, "(%d lines were missed)\n", e.Missed)
			}
		}))
	})
}
