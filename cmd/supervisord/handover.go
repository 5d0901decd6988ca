package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
)

func promoteCommand(path *string) *cobra.Command {
	a, s, share, noWait := &asking{path: path}, &showing{}, "", false
	c := &cobra.Command{
		Use: "promote [PROGRAM]", Short: "deploy a canary to all, or change its share",
		Long: `promote deploys a canary: its generation gets all new connections, the slots that are still empty are filled, and promote
waits until the generation serves. With --canary the generation stays a canary and gets another share of the new connections, more
or less than before.`,
		Example: `  supervisord promote web --canary 25%
  supervisord promote web`,
		ValidArgsFunction: a.programs(1),
	}
	exits(c, endings...)
	s.flags(c)
	c.Flags().StringVar(&share, "canary", "",
		"give the canary this `share` of the new connections, such as 25%, and keep holding it")
	completeShares(c)
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		args, err := withProgram(ctx, client, c, args)
		if err != nil {
			return err
		}
		if !c.Flags().Changed("canary") {
			return s.await(ctx, client, control.OfProgram(args[0], "promote", nil), "serves", noWait)
		}
		canary, err := parseCanary(share)
		if err != nil {
			return err
		}
		return s.await(ctx, client, control.OfProgram(args[0], "promote", control.PromoteBody{Canary: &canary}), "held",
			noWait)
	})
}

func rollbackCommand(path *string) *cobra.Command {
	a, s := &asking{path: path}, &showing{timeout: defaultTimeout}
	c := &cobra.Command{
		Use: "rollback [PROGRAM]", Short: "switch back to the previous version immediately",
		Long: `rollback sends all new connections back to the generation that served before, while that generation is kept (reload.keep). No process is
started, and the configuration file is not read. The generation that is rolled back finishes what it has, and ends. When the old
generation is no longer kept, reload with the old version instead.`,
		ValidArgsFunction: a.programs(1),
	}
	s.reports(c)
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		args, err := withProgram(ctx, client, c, args)
		if err != nil {
			return err
		}
		return s.await(ctx, client, control.OfProgram(args[0], "rollback", nil), "serves", false)
	})
}

func pauseCommand(path *string) *cobra.Command {
	var length time.Duration
	c := &cobra.Command{
		Use: "pause [PROGRAM] --for DURATION", Short: "let new connections wait in the kernel for a short time",
		Long: `pause lets new connections to a program wait in the kernel, for example while a database fails over. No connection is refused, and none
reaches a worker. Workers keep serving the connections that they have accepted, and reloads continue. The kernel of a client that waits tries to connect
again after a second, then at growing intervals.

The pause ends after --for, at most 2m, or sooner by resume. Another pause replaces the first. All listeners of the program must be TCP.`,
		Example: "  supervisord pause web --for 10s",
	}
	c.Flags().DurationVar(&length, "for", 0, "how long at most")
	return request(path, c, func(_ context.Context, _ *control.Client, args []string) (any, func(supervisor.Ticket) string,
		error) {
		if !c.Flags().Changed("for") {
			return nil, nil, commandline.Usagef("a pause ends by itself: say how long it lasts at most, such as --for 30s")
		}
		return control.PauseBody{For: length.String()}, func(t supervisor.Ticket) string {
			return fmt.Sprintf("paused until %s: new connections wait; `supervisord resume %s` ends it sooner", clock(t.Until),
				args[0])
		}, nil
	})
}

func resumeCommand(path *string) *cobra.Command {
	c := &cobra.Command{
		Use: "resume [PROGRAM]", Short: "end a pause",
		Long: `resume ends a pause. A connection that waits comes through when the client's kernel tries again: that may take about as long as the
pause lasted.`,
	}
	return request(path, c, func(context.Context, *control.Client, []string) (any, func(supervisor.Ticket) string, error) {
		return nil, says("resumed"), nil
	})
}

// clock returns a time of day for people.
func clock(t *time.Time) string {
	if t == nil {
		return "?"
	}
	return t.Local().Format(time.TimeOnly)
}
