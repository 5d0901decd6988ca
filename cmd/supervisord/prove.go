package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/internal/prove"
)

// proveFlags are the flags of prove that are not options of the proof.
type proveFlags struct {
	json bool
	plot string
}

func proveCommand(path *string) *cobra.Command {
	var o prove.Options
	var f proveFlags
	c := &cobra.Command{
		Use:   "prove",
		Short: "put load on a program, reload again and again, and say what was lost and why",
		Long: `prove starts the configuration (or uses the supervisord that runs: --pid, or the one that holds pid_file), puts load on the
program's own listener, sends HUP again and again, and says what came of it: how many requests were lost, how, when, and what
to change. It exits with 0 only if nothing was lost and every reload served. Ctrl-C ends it with a verdict on what was tried.`,
		Example: `  supervisord prove -c config.toml
  supervisord prove -c config.toml --program web --url /healthz --rate 2000 --reloads 20 --duration 1m --plot deploy.svg
  supervisord prove -c config.toml --pid "$(pidof supervisord)" --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runProof(cmd.Context(), cmd.OutOrStdout(), *path, o, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.Program, "program", "", "the program to prove, if several have listeners")
	flags.StringVar(&o.URL, "url", "", "a path on the program's own listener, or a whole URL (then of any machine)")
	flags.IntVar(&o.Rate, "rate", 500, "requests each second, half of them on new connections")
	flags.IntVar(&o.Reloads, "reloads", 10, "how often to reload")
	flags.DurationVar(&o.Duration, "duration", 30*time.Second, "how long; the reloads are spread over it")
	flags.IntVar(&o.PID, "pid", 0, "use the supervisord that runs with this PID")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "a request without an answer after this time is lost")
	flags.DurationVar(&o.RoundTrip, "round-trip", 20*time.Millisecond, "act as a client with a network of this round trip before it")
	flags.BoolVar(&f.json, "json", false, "write the verdict as JSON")
	flags.StringVar(&f.plot, "plot", "", "draw latency, reloads and losses into this SVG `file`")
	return c
}

func runProof(ctx context.Context, out io.Writer, path string, o prove.Options, f proveFlags) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	var err error
	if o.Config, err = config.Load(path); err != nil {
		return err
	}
	if f.plot != "" {
		if _, err := os.Stat(filepath.Dir(f.plot)); err != nil { // now, not when the proof is done
			return fmt.Errorf("--plot: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Command = []string{self, "run", "--config", path}
	if daemon.IsTerminal(os.Stderr) {
		o.Live = os.Stderr
	}
	v, err := prove.Run(ctx, o)
	if err != nil {
		return err
	}
	return deliver(v, out, f)
}

// deliver writes the verdict in the forms that were asked for. The error of a proof that has not passed says why in a line.
func deliver(v *prove.Verdict, out io.Writer, f proveFlags) error {
	if f.plot != "" {
		if err := os.WriteFile(f.plot, v.Plot(), 0o644); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	write, why := v.Text, "not proved"
	if f.json {
		why += ": " + strings.Join(v.Reasons, "; ")
		write = func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(v)
		}
	}
	if err := write(out); err != nil {
		return fmt.Errorf("cannot write the verdict: %w", err)
	}
	if !v.Passed() {
		return errors.New(why)
	}
	return nil
}
