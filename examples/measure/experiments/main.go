// Experiments repeats what others have published about deploys without downtime, with supervisord and without, and
// writes one report with pictures. scripts/experiments runs it.
//
// An experiment (ab.go, stopped.go, latency.go and sealed.go, gaps.go, compare.go, ways.go) starts supervisord or
// workers by themselves (rig.go), puts traffic on them (traffic.go), and fills a chapter of the report (report.go) with
// tables and pictures (pictures.go). The same binary is also the worker and the sealed-off process that some
// experiments need besides the examples (roles.go, sealed.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"example.org/supervisord/examples/measure/kit"
)

func main() {
	if role := roleOf(os.Args); role != nil {
		exit(role())
	}
	only := flag.Int("only", 0, "run only experiment `N`, and replace only its part of the report")
	quick := flag.Bool("quick", false, "less of everything: about two minutes")
	out := flag.String("out", "", "write the report into this `folder` (default docs/experiments; with --quick one in "+
		"the temporary folder)")
	flag.Usage = usage
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	size := full
	if *quick {
		size = quickly
	}
	exit(buildAndRun(ctx, *only, size, folder(*out, *quick)))
}

func buildAndRun(ctx context.Context, only int, size sizes, out string) error {
	dir, err := os.MkdirTemp("", "experiments")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir); err != nil {
		return err
	}
	return run(ctx, &rig{size, dir, out}, only)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "experiments:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), "usage: scripts/experiments [--only N] [--quick] [--out DIR]\n\n")
	flag.PrintDefaults()
	fmt.Fprintln(flag.CommandLine.Output(), "\nThe experiments:")
	for _, e := range experiments() {
		fmt.Fprintf(flag.CommandLine.Output(), "  %d  %s\n", e.number, e.title)
	}
}

// folder is where the report goes. Quick figures do not replace the full ones unless that is asked for.
func folder(out string, quick bool) string {
	switch {
	case out != "":
		return out
	case quick:
		return filepath.Join(os.TempDir(), "supervisord-experiments")
	}
	return filepath.Join("docs", "experiments")
}

// experiment is one that somebody has published.
type experiment struct {
	number    int
	title     string
	published string // in words, with the source
	run       func(context.Context, *rig, *chapter) error
}

func experiments() []experiment {
	return []experiment{
		{1, "ab with a HUP each second", publishedAB, runAB},
		{2, "gRPC and HTTP clients of a server that is stopped", publishedStopped, runStopped},
		{3, "Latency as a whole, and slow names", publishedLatency, runLatency},
		{4, "The longest gap, with 1, 2, 4 and auto workers", publishedGaps, runGaps},
		{5, "JSON over HTTP/1.1 against gRPC", publishedCompare, runCompare},
		{6, "The same server with supervisord and without", publishedWays, runWays},
	}
}

// run runs one experiment, or all if only is 0, and writes the report.
func run(ctx context.Context, r *rig, only int) (err error) {
	if only < 0 || only > len(experiments()) {
		return fmt.Errorf("there is no experiment %d: choose 1 to %d, or leave --only out for all", only, len(experiments()))
	}
	if err := errors.Join(os.MkdirAll(r.out, 0o755), inherit()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, killChildren()) }()
	report := filepath.Join(r.out, "README.md")
	for _, e := range experiments() {
		if only != 0 && only != e.number {
			continue
		}
		fmt.Fprintf(os.Stderr, "experiment %d: %s (load average %s)\n", e.number, e.title, kit.LoadAverage())
		c := &chapter{experiment: e, size: r.name, load: kit.LoadAverage()}
		if err := e.run(ctx, r, c); err != nil {
			return fmt.Errorf("experiment %d: %w", e.number, err)
		}
		if err := c.into(report); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "the report is", report)
	return nil
}
