package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// request makes a command that asks for something to happen to a program, and is done with the answer. prepare returns
// the body of the request, and the line for people when supervisord has accepted the request.
func request(path *string, c *cobra.Command,
	prepare func(ctx context.Context, a *asking, args []string) (body any, says string, err error)) *cobra.Command {
	a := &asking{path: path}
	a.reports(c)
	return a.ofProgram(c, func(ctx context.Context, args []string) error {
		body, says, err := prepare(ctx, a, args)
		if err != nil {
			return err
		}
		tickets, err := a.client.Ask(ctx, control.OfProgram(args[0], a.name, body))
		switch {
		case err != nil:
			return err
		case a.json:
			return printTickets(a.name, tickets)
		}
		fmt.Printf("%s: %s\n", args[0], says)
		return nil
	})
}

func pauseCommand(path *string) *cobra.Command {
	var length time.Duration
	c := &cobra.Command{
		Use: "pause [PROGRAM] --for DURATION", Short: "let new connections wait in the kernel for a short time",
		Long: `pause lets new connections to a program wait in the kernel, for example while a database fails over. The
kernel refuses no connection, and passes none to a worker. Workers keep serving the connections that they have
accepted, and reloads continue. The kernel of a client that waits tries to connect again after a second, then at
growing intervals.

The pause ends after --for, at most 2m, or sooner by resume. Another pause replaces the first. All listeners of
the program must be TCP.`,
		Example: "  supervisord pause web --for 10s",
	}
	c.Flags().DurationVar(&length, "for", 0, "how long at most")
	return request(path, c, func(_ context.Context, _ *asking, args []string) (any, string, error) {
		return control.PauseBody{For: length.String()}, fmt.Sprintf(
			"paused for %s at most: new connections wait; `supervisord resume %s` ends the pause sooner",
			program.Short(length), args[0]), nil
	})
}

func resumeCommand(path *string) *cobra.Command {
	c := &cobra.Command{
		Use: "resume [PROGRAM]", Short: "end a pause",
		Long: `resume ends a pause. A connection that waits comes through when the client's kernel tries again: that may take
about as long as the pause lasted.`,
	}
	return request(path, c, func(context.Context, *asking, []string) (any, string, error) { return nil, "resumed", nil })
}

func scaleCommand(path *string) *cobra.Command {
	c := &cobra.Command{
		Use: "scale [PROGRAM] N", Short: "change the number of workers",
		Long: `scale changes how many workers a program has: supervisord starts more beside those that serve, or stops those
in the last slots by the stop plan. The number holds until supervisord reads the configuration again. With a
listener that has a socket for each worker (per_slot = true), scale makes a new generation of that size.`,
	}
	return request(path, c, func(ctx context.Context, a *asking, args []string) (any, string, error) {
		n, err := strconv.Atoi(args[1])
		switch {
		case err != nil:
			return nil, "", commandline.Usagef("%q is not a number of workers: write a number such as 4", args[1])
		case n < 1:
			return nil, "", commandline.Usagef("cannot scale to %d: use `supervisord stop %s`", n, args[0])
		case n > program.MaxWorkers:
			return nil, "", commandline.Usagef("cannot scale to %d: at most %d workers", n, program.MaxWorkers)
		}
		says := count(n, "worker")
		if p := a.program(ctx, args[0]); p != nil && len(p.Generations) > 0 {
			says += fmt.Sprintf(" (was %d)", p.Generations[0].Slots)
		}
		return control.ScaleBody{Workers: n}, says, nil
	})
}

func signalCommand(path *string) *cobra.Command {
	var generation int
	c := &cobra.Command{
		Use: "signal [PROGRAM] SIGNAL", Short: "send a signal to the workers of a program",
		Long: `signal sends a signal to every worker of a program that is not being stopped, or to the workers of one
generation.`,
		Example: "  supervisord signal web USR1",
	}
	c.Flags().IntVar(&generation, "generation", 0,
		"signal only the workers of this generation, also workers that are being stopped")
	return request(path, c, func(_ context.Context, _ *asking, args []string) (any, string, error) {
		says := strings.TrimPrefix(strings.ToUpper(args[1]), "SIG") + " sent to the workers"
		if generation != 0 {
			says += fmt.Sprintf(" of generation %d", generation)
		}
		return control.SignalBody{Signal: args[1], Generation: generation}, says, nil
	})
}

func abortCommand(path *string) *cobra.Command {
	var b control.AbortBody
	c := &cobra.Command{
		Use: "abort [PROGRAM]", Short: "give up a canary or a reload; the serving generation stays",
		Long: `abort ends a generation that does not serve yet, also one that waits as a canary. The serving generation gets
all new connections again, and a canary finishes the connections that it has ([program.NAME.drain]). A reload
that was asked for while the canary was held would deploy the same release, so supervisord drops that reload and
tells its client so (13); --then-reload begins it.`,
	}
	c.Flags().BoolVar(&b.ThenReload, "then-reload", false, "begin the reload that waits behind the canary")
	c.Flags().StringVar(&b.Reason, "reason", "aborted by an operator",
		"why, for the log and for clients that wait for the reload")
	return request(path, c, func(ctx context.Context, a *asking, args []string) (any, string, error) {
		return b, "aborted" + waitingReload(a.program(ctx, args[0]), b.ThenReload), nil
	})
}

// waitingReload says whether the reload that waits behind the trial is dropped or follows.
func waitingReload(p *supervisor.ProgramStatus, begins bool) string {
	if p == nil || p.Due == nil {
		return ""
	}
	waited := fmt.Sprintf("; the reload that waited (%s) ", p.Due.Reason+by(p.Due.AskedBy))
	canary := slices.ContainsFunc(p.Generations, func(g supervisor.GenerationStatus) bool { return g.Held || g.Share > 0 })
	if canary && !begins {
		return waited + "is dropped: reload again when you have fixed the release"
	}
	return waited + "follows, with the newest configuration"
}

func killCommand(path *string) *cobra.Command {
	var generation int
	c := &cobra.Command{
		Use: "kill [PROGRAM] --generation N", Short: "kill the workers of a generation now",
		Long: `kill sends KILL to the process groups of a generation, for example of one that takes too long to drain.
supervisord starts workers of the serving generation again.`,
	}
	c.Flags().IntVar(&generation, "generation", 0, "the generation's `number`")
	return request(path, c, func(context.Context, *asking, []string) (any, string, error) {
		return control.KillBody{Generation: generation},
			fmt.Sprintf("KILL sent to the workers of generation %d", generation), nil
	})
}

var logLevels = []string{"debug", "info", "warn", "error"}

func logLevelCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	return a.command(&cobra.Command{
		Use: "log-level LEVEL", Short: "change the log level until the configuration is read again",
		ValidArgsFunction: cobra.FixedCompletions(logLevels, cobra.ShellCompDirectiveNoFileComp),
	}, func(ctx context.Context, args []string) error {
		if !slices.Contains(logLevels, args[0]) {
			return commandline.Usagef("%q is not a log level: write one of %s", args[0], strings.Join(logLevels, ", "))
		}
		if err := a.client.Level(ctx, args[0]); err != nil {
			return err
		}
		fmt.Printf("log level %s, until the configuration is read again\n", args[0])
		return nil
	})
}
