package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
)

// reloading is the command reload with its flags.
type reloading struct {
	asking
	drained, hold  bool
	canary, reason string
	holdFor        time.Duration // --for
}

func reloadCommand(path *string) *cobra.Command {
	r := &reloading{asking: asking{path: path}}
	c := &cobra.Command{
		Use:   "reload [PROGRAM...]",
		Short: "replace workers without downtime, and report how it went",
		Long: `reload makes a running supervisord read its configuration and replace the workers of these programs, or of
all, as HUP does. Unlike HUP, reload waits and reports the outcome. If the new generation fails, the old
generation was never touched.

A canary tries the new generation first. --canary 5% gives the new generation 5% of the new connections;
--canary 2 starts two of its workers beside the old workers. Then promote --canary 25% changes the share,
promote deploys the whole generation, and abort ends it.

A canary changes only the programs that you name, and begins at once. If a canary is impossible, reload fails,
says why, and changes nothing: while another generation has begun and does not serve yet, or a reload waits,
while nothing serves, with strategy stop-first, if the canary would be all workers, if a share is asked of a
listener that the generations share, and if the configuration changes other programs too.

Ctrl-C ends the waiting, not the reload.

With several programs, the worst outcome decides. ` + "`supervisord help exit-status`" + ` explains the exit status.`,
		Example: `  supervisord reload
  supervisord reload web --drained --timeout 10m
  supervisord reload web --canary 5% --for 5m
  supervisord reload web --canary 1 --hold`,
		ValidArgsFunction: r.programs(0),
	}
	r.flags(c)
	return r.command(c, func(ctx context.Context, args []string) error {
		canary, err := r.size(c.Flags().Changed("canary"))
		if err != nil {
			return err
		}
		return r.run(ctx, control.ReloadBody{Programs: args, Reason: r.reason, Hold: r.hold, Canary: canary})
	})
}

func (r *reloading) flags(c *cobra.Command) {
	r.waits(c)
	flags := c.Flags()
	flags.BoolVar(&r.drained, "drained", false,
		"also wait until the old generation has ended, and fail if its workers had to be killed")
	flags.StringVar(&r.canary, "canary", "",
		"try the new generation first: on a `share` of the new connections such as 5%, or on a number of workers; needs "+
			"--hold or --for")
	completeShares(c)
	flags.BoolVar(&r.hold, "hold", false, "hold the canary until promote or abort, or for as long as --for says")
	flags.DurationVar(&r.holdFor, "for", 0, "promote the canary if it stays well for this long")
	flags.StringVar(&r.reason, "reason", "", "why, for the log")
	c.MarkFlagsMutuallyExclusive("drained", "no-wait")
	c.MarkFlagsMutuallyExclusive("drained", "hold")
}

// size is the size of the canary; nil: there is none.
func (r *reloading) size(given bool) (*control.Canary, error) {
	if !given {
		return nil, nil
	}
	if r.canary == "0" { // such as a tenth of few workers, computed by a script: do not replace all workers
		return nil, commandline.Usagef("--canary 0 is not a canary; nothing has changed: write a number of workers from 1, " +
			"a share such as 5%%, or omit --canary to replace all")
	}
	canary, err := parseCanary(r.canary)
	if err == nil && !r.hold && r.holdFor == 0 {
		err = commandline.Usagef("a canary needs an end: write --hold to decide by promote or abort, or --for 5m to " +
			"promote a canary that stays well for so long")
	}
	return &canary, err
}

func (r *reloading) run(ctx context.Context, b control.ReloadBody) error {
	until := control.Until("serves")
	switch {
	case r.hold && r.holdFor == 0:
		until = "held"
	case r.drained:
		until = "drained"
	}
	if r.holdFor > 0 {
		b.For = r.holdFor.String()
	}
	if r.timeout == defaultTimeout {
		r.timeout += r.holdFor // --for is not a delay
	}
	return r.await(ctx, control.OfReload(b), until)
}

// completeShares completes the usual values of --canary.
func completeShares(c *cobra.Command) {
	c.RegisterFlagCompletionFunc("canary", //nolint:errcheck // the flag is there
		cobra.FixedCompletions([]string{"1%", "5%", "25%", "50%"}, cobra.ShellCompDirectiveNoFileComp))
}

// parseCanary reads the value of --canary.
func parseCanary(text string) (control.Canary, error) {
	c, err := control.ParseCanary(text)
	if err != nil {
		return c, commandline.Usagef("--canary: %v", err)
	}
	return c, nil
}

func promoteCommand(path *string) *cobra.Command {
	a, share := &asking{path: path}, ""
	c := &cobra.Command{
		Use: "promote [PROGRAM]", Short: "deploy a canary to all, or change its share",
		Long: `promote deploys a canary: its generation gets all new connections, supervisord fills the slots that are still
empty, and promote waits until the generation serves. With --canary the generation stays a canary and gets
another share of the new connections, more or less than before.`,
		Example: `  supervisord promote web --canary 25%
  supervisord promote web`,
	}
	a.waits(c)
	c.Flags().StringVar(&share, "canary", "",
		"give the canary this `share` of the new connections, such as 25%, and keep holding the canary")
	completeShares(c)
	return a.ofProgram(c, func(ctx context.Context, args []string) error {
		if !c.Flags().Changed("canary") {
			return a.await(ctx, control.OfProgram(args[0], "promote", nil), "serves")
		}
		canary, err := parseCanary(share)
		if err != nil {
			return err
		}
		return a.await(ctx, control.OfProgram(args[0], "promote", control.PromoteBody{Canary: &canary}), "held")
	})
}

func rollbackCommand(path *string) *cobra.Command {
	a := &asking{path: path, timeout: defaultTimeout}
	c := &cobra.Command{
		Use: "rollback [PROGRAM]", Short: "switch back to the previous version immediately",
		Long: `rollback sends all new connections back to the generation that served before, while supervisord keeps that
generation (reload.keep). No process is started, and the configuration file is not read. The generation that is
rolled back finishes the requests that it has, and ends. When the old generation is no longer kept, reload with
the old version instead.`,
	}
	a.reports(c)
	return a.ofProgram(c, a.verb("serves"))
}

// waited makes a command that asks for something to happen to a program, and waits for its end.
func waited(path *string, verb string, until control.Until, short, long string) *cobra.Command {
	a, c := &asking{path: path}, &cobra.Command{Use: verb + " [PROGRAM]", Short: short, Long: long}
	a.waits(c)
	return a.ofProgram(c, a.verb(until))
}

// verb asks for the change that gives the command its name.
func (a *asking) verb(until control.Until) func(ctx context.Context, args []string) error {
	return func(ctx context.Context, args []string) error {
		return a.await(ctx, control.OfProgram(args[0], a.name, nil), until)
	}
}

func startCommand(path *string) *cobra.Command {
	return waited(path, "start", "serves", "start a stopped program",
		"start starts a program, and waits until the program serves. start does not touch a program that already runs.")
}

func stopCommand(path *string) *cobra.Command {
	return waited(path, "stop", "down", "stop a program by its stop plan",
		`stop ends the workers of a program by its stop plan, and waits until they are gone. The program stays stopped,
even over reloads, until start.`)
}

func restartCommand(path *string) *cobra.Command {
	return waited(path, "restart", "serves", "stop a program and start it again, with downtime",
		`restart stops a program and starts it again at once: the old workers get the stop signal before the new ones
are ready. restart does not read the configuration. To replace workers without downtime, use reload.`)
}

// waits gives a command the flags of one that waits.
func (a *asking) waits(c *cobra.Command) {
	c.Flags().DurationVar(&a.timeout, "timeout", defaultTimeout, "how long to wait")
	a.reports(c)
	c.Flags().BoolVarP(&a.verbose, "verbose", "v", false,
		"also print every event, and how long the parts of the reload took")
	c.Flags().BoolVar(&a.noWait, "no-wait", false, "return when supervisord has accepted the request")
}

// await makes a request and, unless --no-wait was given, shows the outcome.
func (a *asking) await(ctx context.Context, request control.Request, until control.Until) error {
	if !a.noWait {
		return a.wait(ctx, request, until)
	}
	tickets, err := a.client.Ask(ctx, request)
	switch v := control.Settled(tickets); {
	case err != nil:
		return err
	case a.json:
		return printTickets(a.name, tickets)
	case v != nil: // there was nothing to do
		fmt.Println(describe(v.Programs[0], time.Now(), terminal.Colors(os.Stdout)))
	case a.name == "reload":
		for _, t := range tickets {
			fmt.Printf("%s: generation %d is asked for\n", t.Program, t.Generation)
		}
	}
	return nil
}
