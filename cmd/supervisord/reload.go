package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// defaultTimeout is how long a command waits by default.
const defaultTimeout = 5 * time.Minute

// reloadFlags are the flags of reload.
type reloadFlags struct {
	noWait, drained, hold bool
	canary                int
	hour                  time.Duration // --for
	reason                string
	show                  showing
}

func reloadCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	f := &reloadFlags{}
	c := &cobra.Command{
		Use:   "reload [PROGRAM...]",
		Short: "replace the workers of programs, and wait until the new ones serve",
		Long: `reload has a running supervisord read its configuration and replace the workers of these programs, or of all, as HUP does;
but it waits, and says how it went. If the new generation fails, the old one was never touched.

A canary changes nothing but the programs that it is for, and begins at once. Where that cannot be, reload fails, says why, and
changes nothing: while a generation is on trial or a reload waits, where nothing serves, with strategy stop-first, where the
canary would be all workers, and where the configuration changes other programs, too.

Ctrl-C ends the waiting, not the reload.

` + exitCodes + `

Of several programs the worst decides.`,
		Example: `  supervisord reload
  supervisord reload web --drained --timeout 10m
  supervisord reload web --canary 1 --for 5m`,
		ValidArgsFunction: a.programs(0),
	}
	flags := c.Flags()
	f.show.flags(c)
	flags.Bool("wait", true, "wait for the new generation (the default)")
	flags.BoolVar(&f.noWait, "no-wait", false, "return when the configuration is accepted")
	flags.BoolVar(&f.drained, "drained", false, "wait for the end of the old generation, too, and fail if it had to be killed")
	flags.IntVar(&f.canary, "canary", 0, "start only so many workers of the new generation, beside the old ones; needs --hold or --for")
	flags.BoolVar(&f.hold, "hold", false, "hold the canary until promote or abort, or for as long as --for says")
	flags.DurationVar(&f.hour, "for", 0, "promote the canary if it was well for so long")
	flags.StringVar(&f.reason, "reason", "", "why, for the log")
	c.MarkFlagsMutuallyExclusive("wait", "no-wait")
	c.MarkFlagsMutuallyExclusive("no-wait", "drained")
	c.MarkFlagsMutuallyExclusive("hold", "drained")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		if wait, _ := flags.GetBool("wait"); !wait {
			f.noWait = true
		}
		if flags.Changed("canary") && f.canary == 0 { // such as a tenth of few workers, and not a wish for all of them
			return errors.New("--canary 0 is no canary; nothing has changed: write how many workers, from 1, or leave it out to replace all")
		}
		return f.run(ctx, client, args)
	})
}

func (f *reloadFlags) run(ctx context.Context, client *control.Client, programs []string) error {
	b := control.ReloadBody{Programs: programs, Reason: f.reason, Canary: f.canary, Hold: f.hold, Wait: !f.noWait, Drained: f.drained}
	if f.hour > 0 {
		b.For = f.hour.String()
	}
	if f.noWait {
		return client.Reload(ctx, b, f.show.tickets)
	}
	timeout := f.show.timeout
	if timeout == defaultTimeout {
		timeout += f.hour // what is asked to take long is not too late
	}
	b.Timeout = timeout.String()
	until := "serves"
	switch {
	case f.hold && f.hour == 0:
		until = "held"
	case f.drained:
		until = "drained"
	}
	return f.show.wait(ctx, client, until, timeout, func(ctx context.Context, see func(control.Line)) error {
		return client.Reload(ctx, b, see)
	})
}

// showing is how whoever waits is shown what goes on.
type showing struct {
	timeout       time.Duration
	json, verbose bool
}

func (s *showing) flags(c *cobra.Command) {
	c.Flags().DurationVar(&s.timeout, "timeout", defaultTimeout, "how long to wait")
	c.Flags().BoolVar(&s.json, "json", false, "write the verdict as JSON")
	c.Flags().BoolVarP(&s.verbose, "verbose", "v", false, "say more: every event, and the receipt (without --drained: as far as it is written)")
}

// tickets is for who does not wait.
func (s *showing) tickets(l control.Line) {
	if s.json {
		printJSON(os.Stdout, control.Accepted{Tickets: l.Tickets}) //nolint:errcheck // nobody reads it
		return
	}
	for _, t := range l.Tickets {
		fmt.Printf("%s: generation %d is asked for\n", t.Program, t.Generation)
	}
}

// wait waits for the end of what begin asks for, and shows it.
func (s *showing) wait(ctx context.Context, client *control.Client, until string, timeout time.Duration,
	begin func(context.Context, func(control.Line)) error) error {
	if timeout < time.Second || timeout > 24*time.Hour {
		return fmt.Errorf("--timeout %s is out of range: 1s to 24h", timeout)
	}
	live := newLive(client, os.Stderr, s.verbose)
	defer live.close()
	w := &waiting{client: client, until: until, timeout: timeout, see: func(l control.Line) {
		live.follow(l.Tickets)
		live.notice()
		if l.Update != nil && (s.verbose || !live.drawn() && milestone(l.Update.Kind)) {
			live.say(sentence(*l.Update))
		}
	}}
	err := w.run(ctx, begin)
	live.close()
	if errors.Is(err, context.Canceled) {
		return &exitError{exitInterrupted, errors.New("interrupted; what was begun goes on")}
	}
	if err != nil {
		return err
	}
	return s.conclude(ctx, client, w.verdict)
}

// conclusion is what --json writes.
type conclusion struct {
	*control.Verdict
	Receipts []receipt.Receipt `json:"receipts,omitempty"`
}

func (s *showing) conclude(ctx context.Context, client *control.Client, v *control.Verdict) error {
	c := conclusion{Verdict: v}
	if s.json || s.verbose {
		c.Receipts = receipts(ctx, client, v)
	}
	if !s.json {
		err := report(os.Stdout, v)
		for _, r := range c.Receipts {
			writeReceipt(os.Stdout, r)
		}
		return err
	}
	if err := printJSON(os.Stdout, c); err != nil {
		return err
	}
	return report(io.Discard, v)
}

// receipts finds those of the generations that were waited for. Where the old generation still drains that is what is known by now.
func receipts(ctx context.Context, client *control.Client, v *control.Verdict) []receipt.Receipt {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var found []receipt.Receipt
	for _, p := range v.Programs {
		a, err := client.Receipts(ctx, p.Program)
		if err != nil {
			continue
		}
		for _, r := range a.Receipts {
			if r.Generation == p.Generation && !r.Outcome.Open() {
				found = append(found, r)
			}
		}
	}
	return found
}

// writeReceipt says what a reload cost.
func writeReceipt(out io.Writer, r receipt.Receipt) {
	fmt.Fprintf(out, "receipt of %s, generation %d: %s\n", r.Program, r.Generation, r.Outcome)
	fmt.Fprintf(out, "  took %s, spawn to ready %s", short(r.Took), short(r.SpawnToReady))
	switch {
	case r.Ended.IsZero():
		fmt.Fprintf(out, "; this is what is known by now: the drain goes on")
	case r.Replaced != 0:
		fmt.Fprintf(out, ", overlap %s, drain %s", short(r.Overlap), short(r.Drain))
	}
	fmt.Fprintln(out)
	fmt.Fprintf(out, "  longest accept queue %d, ListenOverflows %+d, ListenDrops %+d\n", r.LongestQueue(), r.ListenOverflows, r.ListenDrops)
	if n := len(r.Connections); n > 0 {
		fmt.Fprintf(out, "  connections on the old generation: %d at first, %d after %s\n", r.Connections[0].Open, r.Connections[n-1].Open, short(r.Connections[n-1].At))
	}
	if r.ConnectionsWhy != "" {
		fmt.Fprintf(out, "  connections on the old generation: not known: %s\n", r.ConnectionsWhy)
	}
	for _, k := range r.Kills {
		fmt.Fprintf(out, "  killed: worker %d of generation %d (PID %d): %s\n", k.Worker, k.Generation, k.PID, k.Reason)
	}
	if more := r.Killed - len(r.Kills); more > 0 {
		fmt.Fprintf(out, "  killed: %d more\n", more)
	}
}

// ticketsOf makes an answer of tickets the beginning of a wait.
func ticketsOf(ask func(context.Context) ([]supervisor.Ticket, error)) func(context.Context, func(control.Line)) error {
	return func(ctx context.Context, see func(control.Line)) error {
		tickets, err := ask(ctx)
		if err != nil {
			return err
		}
		see(control.Line{Tickets: tickets})
		if v := already(tickets); v != nil {
			see(control.Line{Program: &v.Programs[0]})
			see(control.Line{Verdict: v})
		}
		return nil
	}
}

// already is the verdict on a start of a program that runs, or a stop of one that does not; nil: there is something to wait for.
func already(tickets []supervisor.Ticket) *control.Verdict {
	if len(tickets) != 1 {
		return nil
	}
	t := tickets[0]
	p := control.ProgramVerdict{Program: t.Program, Generation: t.Generation, Since: t.Since, Already: t.Stopped}
	switch {
	case t.Since != nil:
		p.Outcome = program.Serves
	case t.Stopped:
		p.Outcome, p.Drained = control.Down, true
	default:
		return nil
	}
	return &control.Verdict{Outcome: p.Outcome, Programs: []control.ProgramVerdict{p}}
}

// runsAlready says so to whoever does not wait for a start, or a stop.
func (s *showing) runsAlready(l control.Line) {
	if v := l.Program; v != nil && !s.json {
		fmt.Println(describe(*v))
	}
}
