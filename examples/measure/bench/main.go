// Bench measures what supervisord promises on this machine, with real workers and real load, and prints one Markdown
// table. docs/performance.md explains the figures. scripts/bench runs it.
//
// It measures everything from outside: from /proc, by the clocks of the processes, with clients, by what the workers
// record (package light), and by when a line of the log arrives. supervisord contains nothing for it.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/systemd"
)

// bench is one run.
type bench struct {
	dir                 string
	now, before         string // the builds of supervisord; before may be ""
	hello, light, naive string // the workers
	quick               bool
	requests            int          // of the storm
	lab                 *systemd.Lab // nil: it was not needed so far
	side                side         // what is measured now
	others              string       // CPUs that others used before the part began
	rows                []*row
}

// part is one part of the table.
type part struct {
	name, what string
	run        func(*bench, context.Context) error // measures b.side
	together   func(*bench, context.Context, []side) error
	systemd    bool   // under a real systemd, too
	place      string // "": everywhere; "plain", "systemd": only there
}

// Those that open many connections come last: for a minute the kernel remembers each, and looks through them whenever
// it is asked for the connections of a socket.
var parts = []part{
	{name: "idle", what: "CPU, memory, descriptors and wake-ups when idle", run: (*bench).measureIdle, systemd: true},
	{name: "leak", what: "CPU of a reload; descriptors and memory over 1,000", run: (*bench).measureLeak, systemd: true},
	{name: "start", what: "from HUP to the worker's main, in parts, and from READY=1 to TERM",
		together: (*bench).measureStart, systemd: true},
	{name: "bind", what: "what a server costs that opens its port", run: (*bench).measureBind},
	{name: "thousand", what: "1,000 workers roll", run: (*bench).measureThousand, systemd: true},
	{name: "busy", what: "1,000 workers roll under four busy clients", run: (*bench).measureBusy},
	{name: "herd", what: "what a request costs many workers at one socket, at several, and at one each",
		run: (*bench).measureHerd},
	{name: "many", what: "600 programs reload, under systemd and without", together: (*bench).measureMany, systemd: true},
	{name: "crowd", what: "the life of 300 programs, and of 1,000 workers", run: (*bench).measureCrowd},
	{name: "peers", what: "the same worker under other supervisors, and without one", together: (*bench).measurePeers},
	{name: "failed", what: "requests that fail during reloads", run: (*bench).measureFailed},
	{name: "storm", what: "of a million new connections; --requests makes them more", run: (*bench).measureStorm},
	{name: "naive", what: "what is lost of a worker that stops badly, with a shared socket and steered",
		run: (*bench).measureNaive},
	{name: "parts", what: "what is lost of answers in parts", run: (*bench).measureParts},
	{name: "lanes", what: "how fast and how exactly new connections move, and what lanes cost",
		run: (*bench).measureLanes},
	{name: "datagrams", what: "what each handover of UDP costs a datagram", run: (*bench).measureDatagrams},
	{name: "latency", what: "latency and gaps at a constant rate", run: (*bench).measureLatency},
}

func main() {
	only := flag.String("only", "",
		"measure only these, by `name`, separated by commas; NAME/plain and NAME/systemd: only there")
	quick := flag.Bool("quick", false, "less of everything: about a minute")
	binary := flag.String("supervisord", "", "measure this `binary` instead of one built from the sources here")
	requests := flag.Int("requests", 1_000_000, "how many requests the storm has")
	before := flag.String("before", "", "measure this `binary` beside it, in a column of its own")
	flag.Usage = usage
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	b := &bench{now: *binary, before: *before, quick: *quick, requests: *requests}
	if err := b.run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(),
		"usage: scripts/bench [--only NAME,…] [--quick] [--supervisord BINARY] [--before BINARY] [--requests N]\n\n")
	flag.PrintDefaults()
	fmt.Fprintln(flag.CommandLine.Output(), "\nNames:")
	for _, p := range parts {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-10s %s\n", p.name, p.what)
	}
}

func (b *bench) run(ctx context.Context, only string) (err error) {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	b.hello, b.light, b.naive = at("hello"), at("light"), at("naive")
	defer func() {
		if b.lab != nil {
			err = errors.Join(err, b.lab.Close())
		}
	}()
	packages := []string{"examples/hello", "examples/measure/light", "examples/measure/naive"}
	if b.now == "" {
		b.now, packages = at("supervisord"), append(packages, "cmd/supervisord")
	}
	if err := kit.Build(ctx, b.dir, packages...); err != nil {
		return err
	}
	return b.measure(ctx, chosen)
}

func choose(only string) (chosen []part, err error) {
	if only == "" {
		return parts, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		name, place, limited := strings.Cut(name, "/")
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 || limited && (!parts[i].systemd || place != "plain" && place != "systemd") {
			return nil, fmt.Errorf("there is no measurement %q; --help lists them", name)
		}
		p := parts[i]
		p.place = place
		chosen = append(chosen, p)
	}
	return chosen, nil
}

// measure measures and prints the table, also if a part of it fails.
func (b *bench) measure(ctx context.Context, chosen []part) error {
	load := kit.LoadAverage()
	var errs []error
	for _, p := range chosen {
		fmt.Fprintf(os.Stderr, "bench: %s: %s (load %s)\n", p.name, p.what, kit.LoadAverage())
		if err := b.measurePart(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Printf("%s, %d CPUs, Linux %s, load average %s before and %s after, %s; others: how many CPUs were in use just "+
		"before.\n\n", runtime.Version(), runtime.NumCPU(), kit.Kernel(), load,
		kit.LoadAverage(), time.Now().Format(time.DateOnly))
	if b.before == "" {
		fmt.Println("| what | required | measured | met | others |\n| --- | --- | --- | --- | --- |")
	} else {
		fmt.Println("| what | required | measured | met | before | others |\n| --- | --- | --- | --- | --- | --- |")
	}
	for _, r := range b.rows {
		fmt.Println(r.line(b.before != ""))
	}
	return errors.Join(errs...)
}

// measurePart measures every side of a part, in turn or together.
func (b *bench) measurePart(ctx context.Context, p part) error {
	sides, err := b.sides(p)
	if unable, ok := errors.AsType[systemd.UnableError](err); ok {
		b.others = kit.Others(ctx)
		b.show(p.what+", under systemd", "not measured: "+unable.Error())
	} else if err != nil {
		return err
	}
	if p.together != nil {
		b.others = kit.Others(ctx)
		return p.together(b, ctx, sides)
	}
	var errs []error
	for _, s := range sides {
		b.side, b.others = s, kit.Others(ctx)
		if err := p.run(b, ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", s.Binary, s, err))
		}
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
type row struct{ what, required, measured, met, before, others string }

func (r *row) line(before bool) string {
	if before {
		return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", r.what, r.required, r.measured, r.met, r.before, r.others)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", r.what, r.required, r.measured, r.met, r.others)
}

// show adds a line without a requirement to the table, and prints it at once.
func (b *bench) show(what, measured string) { b.add(row{what: what, measured: measured}) }

// require adds a line with a requirement to the table, and prints it at once.
func (b *bench) require(what, required, measured string, met bool) {
	b.add(row{what: what, required: required, measured: measured, met: map[bool]string{true: "yes", false: "**no**"}[met]})
}

// add adds a line for b.side, or completes the one of the other build.
func (b *bench) add(r row) {
	r.what += b.side.String()
	r.others = b.others
	if b.side.before {
		r.before, r.measured, r.met = r.measured, "", ""
	}
	fmt.Fprintln(os.Stderr, r.line(b.before != ""))
	for _, other := range b.rows {
		if other.what == r.what {
			other.before = r.before
			return
		}
	}
	b.rows = append(b.rows, &r)
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
