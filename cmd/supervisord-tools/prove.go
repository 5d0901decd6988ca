package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/prove"
	"example.org/supervisord/internal/terminal"
)

func proveCommand(path *string) *cobra.Command {
	var o prove.Plan
	var asJSON bool
	var plot string
	c := &cobra.Command{
		Use:   "prove",
		Short: "put load on a program, reload it again and again, and report what was lost and why",
		Long: `prove starts the configuration (or uses a running supervisord: --pid, or the one that holds pid_file), puts
load on the program's own listener, reloads it again and again, and reports how many requests were lost, how, when, and
what to change. It exits with 0 only if nothing was lost and every reload served. Ctrl-C ends it with a report on what
was tried.`,
		Example: `  supervisord prove
  supervisord prove -c config.toml --program web --url /healthz --rate 2000 --reloads 20 --duration 1m --plot deploy.svg
  supervisord prove -c config.toml --pid "$(pidof supervisord)" --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := runProof(c, path, o, plot)
			if err != nil {
				return err
			}
			return deliverProof(v, asJSON, plot)
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
	flags.DurationVar(&o.RoundTrip, "round-trip", 20*time.Millisecond,
		"act like a client behind a network with this round trip")
	flags.BoolVar(&asJSON, "json", false, "write the report as JSON")
	flags.StringVar(&plot, "plot", "", "draw latency, reloads and losses into this SVG `file`")
	return c
}

// errControlOff is wrapped by the error of prove with a configuration that has no control socket.
var errControlOff = errors.New("control is off")

func runProof(c *cobra.Command, file *string, o prove.Plan, plot string) (*prove.Findings, error) {
	if err := o.Check(); err != nil {
		return nil, commandline.Usagef("%v", err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	found, err := commandline.FindConfig(c, file)
	if err != nil {
		return nil, err
	}
	if found.Note != "" && terminal.Is(os.Stderr) {
		fmt.Fprintf(os.Stderr, "supervisord: %s\n", found.Note)
	}
	path := found.Path
	if o.Config, err = config.Load(path); err != nil {
		return nil, err
	}
	if plot != "" {
		if _, err := os.Stat(filepath.Dir(plot)); err != nil { // now, not when the proof is done
			return nil, fmt.Errorf("--plot: %w", err)
		}
	}
	sockets := config.ControlSockets(path)
	if len(sockets) == 0 {
		return nil, fmt.Errorf("prove asks supervisord what became of each reload, and %w in %s: set control in [supervisor]",
			errControlOff, path)
	}
	o.Client = control.NewClient(sockets...)
	defer o.Client.Close()
	o.Client.Trust(path)
	o.Client.Means(path)
	daemon, err := supervisord()
	if err != nil {
		return nil, err
	}
	o.Command = []string{daemon, "run", "--config", path}
	o.Announce = func(text string) { fmt.Fprintln(os.Stderr, text) }
	o.Live = terminal.NewLines(os.Stderr, time.Second)
	return prove.Run(ctx, o)
}

// deliverProof prints the findings, and returns an error if it is not a pass.
func deliverProof(v *prove.Findings, asJSON bool, plot string) error {
	if plot != "" {
		if err := os.WriteFile(plot, v.Plot(), 0o644); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	var err error
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(v)
	} else {
		err = v.Text(os.Stdout, terminal.Colors(os.Stdout))
	}
	if err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	if !v.Passed() {
		return fmt.Errorf("FAILED: %s", strings.Join(v.Reasons, "; "))
	}
	return nil
}
