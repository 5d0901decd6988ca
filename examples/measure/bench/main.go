// Bench measures what supervisord promises on this machine, with real workers and real load, and prints one Markdown table.
// docs/performance.md explains the figures. scripts/bench runs it.
//
// It measures everything from outside: from /proc, by the clocks of the processes, with clients, by what the workers record (package
// light), and by when a line of the log arrives. supervisord contains nothing for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"example.org/supervisord/examples/measure/kit"
)

// bench is one run.
type bench struct {
	dir                string
	supervisord, hello string // the programs
	light, naive       string
	quick              bool
	rows               []row
}

// part is one part of the table.
type part struct {
	name, what string
	run        func(*bench, context.Context) error
}

var parts = []part{
	{"failed", "requests that fail while reloads go on", (*bench).measureFailed},
	{"naive", "what is lost of a worker that stops badly, with a shared socket and steered", (*bench).measureNaive},
	{"lanes", "how fast and how exactly new connections move, and what lanes cost", (*bench).measureLanes},
	{"handover", "from HUP to ready, to TERM and to the first answer", (*bench).measureHandover},
	{"latency", "latency and gaps at a constant rate", (*bench).measureLatency},
	{"idle", "CPU, memory, descriptors and wake-ups when idle", (*bench).measureIdle},
	{"thousand", "1,000 workers start, roll and stop", (*bench).measureThousand},
	{"leak", "descriptors and memory over 1,000 reloads", (*bench).measureLeak},
	{"rivals", "the same worker without a supervisor, and under start_server", (*bench).measureRivals},
}

func main() {
	only := flag.String("only", "", "measure only these, by `name`, separated by commas")
	quick := flag.Bool("quick", false, "less of everything: about a minute")
	binary := flag.String("supervisord", "", "measure this `binary` instead of one built from the sources here")
	flag.Usage = usage
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *only, *binary, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), "usage: scripts/bench [--only NAME,…] [--quick] [--supervisord BINARY]\n\n")
	flag.PrintDefaults()
	fmt.Fprintln(flag.CommandLine.Output(), "\nNames:")
	for _, p := range parts {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-10s %s\n", p.name, p.what)
	}
}

func run(ctx context.Context, only, binary string, quick bool) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, supervisord: binary, hello: filepath.Join(dir, "hello"), light: filepath.Join(dir, "light"), naive: filepath.Join(dir, "naive"), quick: quick}
	packages := []string{"examples/hello", "examples/measure/light", "examples/measure/naive"}
	if binary == "" {
		b.supervisord, packages = filepath.Join(dir, "supervisord"), append(packages, "cmd/supervisord")
	}
	if err := kit.Build(ctx, dir, packages...); err != nil {
		return err
	}
	return b.measure(ctx, chosen)
}

func choose(only string) (chosen []part, err error) {
	if only == "" {
		return parts, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		before := len(chosen)
		for _, p := range parts {
			if p.name == name {
				chosen = append(chosen, p)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("there is no measurement %q; --help lists them", name)
		}
	}
	return chosen, nil
}

// measure measures and prints the table, also if a part of it fails.
func (b *bench) measure(ctx context.Context, chosen []part) error {
	load := kit.LoadAverage()
	var errs []error
	for _, p := range chosen {
		fmt.Fprintf(os.Stderr, "bench: %s: %s (load %s)\n", p.name, p.what, kit.LoadAverage())
		if err := p.run(b, ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Printf("%s, %d CPUs, Linux %s, load average %s before and %s after, %s.\n\n| what | required | measured | met |\n| --- | --- | --- | --- |\n",
		runtime.Version(), runtime.NumCPU(), kit.Kernel(), load, kit.LoadAverage(), time.Now().Format(time.DateOnly))
	for _, r := range b.rows {
		fmt.Print(r)
	}
	return errors.Join(errs...)
}

// less chooses between the whole measurement and the quick one.
func (b *bench) less(whole, quick int) int {
	if b.quick {
		return quick
	}
	return whole
}

// lessFloat is less for a bound.
func (b *bench) lessFloat(whole, quick float64) float64 {
	if b.quick {
		return quick
	}
	return whole
}

// row is one line of the table.
type row struct{ what, required, measured, met string }

func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s |\n", r.what, r.required, r.measured, r.met)
}

// show adds a line without a requirement to the table, and prints it at once.
func (b *bench) show(what, measured string) { b.add(row{what: what, measured: measured}) }

// require adds a line with a requirement to the table, and prints it at once.
func (b *bench) require(what, required, measured string, met bool) {
	b.add(row{what, required, measured, map[bool]string{true: "yes", false: "**no**"}[met]})
}

func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	fmt.Fprint(os.Stderr, r)
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
