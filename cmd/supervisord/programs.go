package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
)

// waited makes a command that asks for something to happen to a program, and waits for its end.
func waited(path *string, verb, until, short, long string, codes ...int) *cobra.Command {
	a, s, noWait := &asking{path: path}, &showing{}, false
	c := &cobra.Command{
		Use: verb + " [PROGRAM]", Short: short, Long: long,
		ValidArgsFunction: a.programs(1),
	}
	exits(c, codes...)
	s.flags(c)
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		args, err := withProgram(ctx, client, c, args)
		if err != nil {
			return err
		}
		return s.await(ctx, client, control.OfProgram(args[0], verb, nil), until, noWait)
	})
}

// await makes a request and shows how what it asked for ends.
func (s *showing) await(ctx context.Context, client *control.Client, request control.Request, until string,
	noWait bool) error {
	if !noWait {
		return s.wait(ctx, client, request, until)
	}
	tickets, err := client.Ask(ctx, request)
	switch v := control.Settled(tickets); {
	case err != nil:
		return err
	case s.json:
		return printTickets(s.command, tickets)
	case v != nil: // there was nothing to do
		fmt.Println(describe(v.Programs[0], terminal.Colors(os.Stdout)))
	case s.command == "reload":
		for _, t := range tickets {
			fmt.Printf("%s: generation %d is asked for\n", t.Program, t.Generation)
		}
	}
	return nil
}

func startCommand(path *string) *cobra.Command {
	return waited(path, "start", "serves", "start a stopped program",
		"start starts a program, and waits until it serves. It does not touch a program that already runs.", endings...)
}

func stopCommand(path *string) *cobra.Command {
	return waited(path, "stop", "down", "stop a program by its stop plan",
		"stop ends the workers of a program by its stop plan, and waits until they are gone. The program stays stopped, "+
			"even over\nreloads, until start.", exitTimeout, exitUnknown, exitKilled)
}

func restartCommand(path *string) *cobra.Command {
	return waited(path, "restart", "serves", "stop a program and start it again, with downtime",
		`restart stops a program and starts it again at once: the old workers get the stop signal before the new ones are ready. It does
not read the configuration. To replace workers without downtime, use reload.`, endings...)
}

// request makes a command that asks for something to happen to a program, and is done with the answer. prepare returns
// the body of the request, and what a line for people then says of the program.
func request(path *string, c *cobra.Command,
	prepare func(ctx context.Context, client *control.Client, args []string) (body any,
		done func(supervisor.Ticket) string, err error)) *cobra.Command {
	a, asJSON := &asking{path: path}, false
	c.ValidArgsFunction = a.programs(1)
	reportFlag(c, &asJSON, "print one JSON document, also after a failure")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		args, err := withProgram(ctx, client, c, args)
		if err != nil {
			return err
		}
		body, done, err := prepare(ctx, client, args)
		if err != nil {
			return err
		}
		tickets, err := client.Ask(ctx, control.OfProgram(args[0], c.Name(), body))
		switch {
		case err != nil:
			return err
		case asJSON:
			return printTickets(c.Name(), tickets)
		}
		var t supervisor.Ticket
		if len(tickets) > 0 {
			t = tickets[0]
		}
		fmt.Printf("%s: %s\n", args[0], done(t))
		return nil
	})
}

// says is the line of a request whose answer adds nothing.
func says(text string) func(supervisor.Ticket) string {
	return func(supervisor.Ticket) string { return text }
}

func scaleCommand(path *string) *cobra.Command {
	c := &cobra.Command{
		Use: "scale [PROGRAM] N", Short: "change the number of workers",
		Long: `scale changes how many workers a program has: it starts more beside those that serve, or stops those in the last slots by the
stop plan. The number holds until the configuration is read again. With a listener that has a socket for each worker
(per_slot = true), or where a socket would be left without a worker, scale makes a new generation of that size.`,
	}
	return request(path, c, func(ctx context.Context, client *control.Client, args []string) (any,
		func(supervisor.Ticket) string, error) {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, nil, commandline.Usagef("%q is not a number of workers: write a number such as 4", args[1])
		}
		switch {
		case n < 1:
			return nil, nil, commandline.Usagef("cannot scale to %d: use `supervisord stop %s`", n, args[0])
		case n > supervisor.MaxWorkers:
			return nil, nil, commandline.Usagef("cannot scale to %d: at most %d workers", n, supervisor.MaxWorkers)
		}
		return control.ScaleBody{Workers: n}, says(count(n, "worker") + workersOf(ctx, client, args[0])), nil
	})
}

// workersOf says how many workers the newest generation of a program should have.
func workersOf(ctx context.Context, client *control.Client, name string) string {
	st, err := client.Status(ctx, name, false)
	if err != nil || len(st.Programs) == 0 || len(st.Programs[0].Generations) == 0 {
		return "" // after an error, the request itself says why
	}
	return fmt.Sprintf(" (was %d)", st.Programs[0].Generations[0].Slots)
}

func signalCommand(path *string) *cobra.Command {
	var generation int
	c := &cobra.Command{
		Use: "signal [PROGRAM] SIGNAL", Short: "send a signal to the workers of a program",
		Long: "signal sends a signal to every worker of a program that is not being stopped, or to those of one " +
			"generation.",
		Example: "  supervisord signal web USR1",
	}
	c.Flags().IntVar(&generation, "generation", 0,
		"send it to the workers of this generation only, even to those that are being stopped")
	return request(path, c, func(_ context.Context, _ *control.Client, args []string) (any, func(supervisor.Ticket) string,
		error) {
		text := strings.TrimPrefix(strings.ToUpper(args[1]), "SIG") + " sent to the workers"
		if generation != 0 {
			text += fmt.Sprintf(" of generation %d", generation)
		}
		return control.SignalBody{Signal: args[1], Generation: generation}, says(text), nil
	})
}

func abortCommand(path *string) *cobra.Command {
	var reason string
	var thenReload bool
	c := &cobra.Command{
		Use: "abort [PROGRAM]", Short: "give up a canary or a reload; the serving generation stays",
		Long: `abort ends a generation that does not serve yet, also one that waits as a canary. The serving generation has all new connections again, and a canary
finishes the connections that it has ([program.NAME.drain]). A reload that was asked for while the canary was held would deploy the
same release, so it is dropped and its client told so (13); --then-reload begins it.`,
	}
	c.Flags().BoolVar(&thenReload, "then-reload", false, "begin the reload that waits behind the canary")
	c.Flags().StringVar(&reason, "reason", "aborted by an operator",
		"why, for the log and for clients that wait for the reload")
	return request(path, c, func(ctx context.Context, client *control.Client, args []string) (any,
		func(supervisor.Ticket) string, error) {
		body := control.AbortBody{Reason: reason, ThenReload: thenReload}
		return body, says("aborted" + waitingReload(ctx, client, args[0], thenReload)), nil
	})
}

// waitingReload says what becomes of the reload that waits for the end of the trial.
func waitingReload(ctx context.Context, client *control.Client, name string, begins bool) string {
	st, err := client.Status(ctx, name, false)
	if err != nil || len(st.Programs) == 0 || st.Programs[0].Due == nil {
		return "" // after an error, the request itself says why
	}
	waited := fmt.Sprintf("; the reload that waited for it (%s) ",
		st.Programs[0].Due.Reason+by(st.Programs[0].Due.AskedBy))
	canary := slices.ContainsFunc(st.Programs[0].Generations, func(g supervisor.GenerationStatus) bool {
		return g.Held || g.Share > 0
	})
	if canary && !begins {
		return waited + "is dropped: reload when the release is fixed"
	}
	return waited + "follows, with the newest configuration"
}

func killCommand(path *string) *cobra.Command {
	var generation int
	c := &cobra.Command{
		Use: "kill [PROGRAM] --generation N", Short: "kill the workers of a generation now",
		Long: `kill sends KILL to the process groups of a generation, for example of one that takes too long to drain. Workers of the serving
generation are started again.`,
	}
	c.Flags().IntVar(&generation, "generation", 0, "the generation's `number`")
	c.MarkFlagRequired("generation") //nolint:errcheck // the flag is there
	return request(path, c, func(context.Context, *control.Client, []string) (any, func(supervisor.Ticket) string, error) {
		return control.KillBody{Generation: generation}, says(
			fmt.Sprintf("KILL sent to the workers of generation %d", generation)), nil
	})
}

var logLevels = []string{"debug", "info", "warn", "error"}

func logLevelCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	return a.command(&cobra.Command{
		Use: "log-level LEVEL", Short: "change the log level until the configuration is read again",
		ValidArgsFunction: cobra.FixedCompletions(logLevels, cobra.ShellCompDirectiveNoFileComp),
	}, func(ctx context.Context, client *control.Client, args []string) error {
		if !slices.Contains(logLevels, args[0]) {
			return commandline.Usagef("%q is not a log level: write one of %s", args[0], strings.Join(logLevels, ", "))
		}
		if err := client.Level(ctx, args[0]); err != nil {
			return err
		}
		fmt.Printf("log level %s, until the configuration is read again\n", args[0])
		return nil
	})
}

func eventsCommand(path *string) *cobra.Command {
	a, asJSON := &asking{path: path}, false
	c := &cobra.Command{
		Use: "events [PROGRAM]", Short: "print what happens, as it happens",
		ValidArgsFunction: a.programs(1),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		return untilInterrupted(client.Events(ctx, first(args), func(u supervisor.Update) {
			if asJSON {
				printLine(u)
			} else {
				fmt.Println(u.Time.Local().Format("15:04:05.000"), line(u))
			}
		}))
	})
}
