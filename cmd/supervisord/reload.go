package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
)

// reloadFlags are the flags of reload.
type reloadFlags struct {
	wait, noWait, drained, hold bool
	canary                      string
	size                        *control.Canary // what canary says; nil: nothing
	holdFor                     time.Duration   // --for
	reason                      string
	showing                     showing
}

func reloadCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	f := &reloadFlags{}
	c := &cobra.Command{
		Use:   "reload [PROGRAM...]",
		Short: "replace workers without downtime, and report how it went",
		Long: `reload makes a running supervisord read its configuration and replace the workers of these programs, or of all, as HUP does.
Unlike HUP, it waits and reports the outcome. If the new generation fails, the old one was never touched.

A canary tries the new generation first. --canary 5% gives it 5% of the new connections; --canary 2 starts two of its workers beside the
old ones. Then promote --canary 25% changes the share, promote deploys the whole generation, and abort ends it.

A canary changes only the programs that it is for, and begins at once. If that is impossible, reload fails, says why, and changes
nothing: while another generation has begun and does not serve yet, or a reload waits, while nothing serves, with strategy stop-first, if the canary would be
all workers, if a share is asked of a listener that the generations share, and if the configuration changes other programs too.

Ctrl-C ends the waiting, not the reload.

With several programs, the worst outcome decides.`,
		Example: `  supervisord reload
  supervisord reload web --drained --timeout 10m
  supervisord reload web --canary 5% --for 5m
  supervisord reload web --canary 1 --hold`,
		ValidArgsFunction: a.programs(0),
	}
	exits(c, append(slices.Clone(endings), exitKilled, exitConfig)...)
	flags := c.Flags()
	f.showing.flags(c)
	flags.BoolVar(&f.wait, "wait", true, "wait for the new generation (the default)")
	flags.BoolVar(&f.noWait, "no-wait", false, "return when the configuration is accepted")
	flags.BoolVar(&f.drained, "drained", false,
		"also wait for the end of the old generation, and fail if it had to be killed")
	flags.StringVar(&f.canary, "canary", "",
		"try the new generation first: on a `share` of the new connections such as 5%, or on a number of workers; needs "+
			"--hold or --for")
	completeShares(c)
	flags.BoolVar(&f.hold, "hold", false, "hold the canary until promote or abort, or for as long as --for says")
	flags.DurationVar(&f.holdFor, "for", 0, "promote the canary if it stays well for this long")
	flags.StringVar(&f.reason, "reason", "", "why, for the log")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		f.noWait = f.noWait || !f.wait
		if err := f.check(flags.Changed); err != nil {
			return err
		}
		return f.run(ctx, client, args)
	})
}

// check rejects flags that contradict each other.
func (f *reloadFlags) check(given func(name string) bool) error {
	switch {
	case given("wait") && f.wait && f.noWait:
		return commandline.Usagef("--wait and --no-wait contradict each other: remove one")
	case f.noWait && f.drained:
		return commandline.Usagef("--drained waits for the old generation, and --no-wait does not wait: remove one")
	case f.hold && f.drained:
		return commandline.Usagef("the old generation serves while --hold holds the canary, so --drained would wait for " +
			"nothing: remove one, and after " +
			"`supervisord promote` see `supervisord status` for what still drains")
	case !given("canary"):
		return nil
	case f.canary == "0": // such as a tenth of few workers: not a request to replace all of them
		return commandline.Usagef("--canary 0 is not a canary; nothing has changed: write a number of workers from 1, a " +
			"share such as 5%%, or omit --canary to replace all")
	}
	canary, err := parseCanary(f.canary)
	f.size = &canary
	if err == nil && !f.hold && f.holdFor == 0 {
		return commandline.Usagef("a canary needs an end: --hold keeps it until promote or abort, --for 5m promotes it if " +
			"it stays well for so long")
	}
	return err
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

func (f *reloadFlags) run(ctx context.Context, client *control.Client, programs []string) error {
	b := control.ReloadBody{Programs: programs, Reason: f.reason, Hold: f.hold, Canary: f.size}
	if f.holdFor > 0 {
		b.For = f.holdFor.String()
	}
	if f.showing.timeout == defaultTimeout {
		f.showing.timeout += f.holdFor // what is meant to take long is not late
	}
	return f.showing.await(ctx, client, control.OfReload(b), f.until(), f.noWait)
}

func (f *reloadFlags) until() string {
	switch {
	case f.hold && f.holdFor == 0:
		return "held"
	case f.drained:
		return "drained"
	}
	return "serves"
}
