// Bench measures what supervisord promises, on this machine, with real workers and real load, and prints one table in Markdown.
// docs/performance.md says what the figures mean. scripts/bench runs it.
//
// Everything is measured from outside: by /proc, by the clocks of the processes, by clients, by what workers write down
// (light), and by when a line of the log comes out of the pipe. Nothing in supervisord is there for this.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// binaries is what is run.
type binaries struct {
	supervisord, hello, light string
	runtime                   string // for supervisord's sockets
}

// bench is one run.
type bench struct {
	binaries
	children children
	dir      string
	quick    bool
	rows     []row
}

// measurement is one part of the table.
type measurement struct {
	name, what string
	run        func(*bench) error
}

func measurements() []measurement {
	return []measurement{
		{"failed", "requests that fail while reloads go on", (*bench).measureFailed},
		{"handover", "from HUP to ready, to TERM and to the first answer", (*bench).measureHandover},
		{"latency", "latency and gaps at a constant rate", (*bench).measureLatency},
		{"idle", "CPU, memory, descriptors and wake-ups when idle", (*bench).measureIdle},
		{"thousand", "1,000 workers start, roll and stop", (*bench).measureThousand},
		{"leak", "descriptors and memory over 1,000 reloads", (*bench).measureLeak},
		{"rivals", "the same worker without a supervisor, and under start_server", (*bench).measureRivals},
	}
}

func main() {
	only := flag.String("only", "", "measure only these, by `name`, separated by commas")
	quick := flag.Bool("quick", false, "less of everything: about a minute")
	binary := flag.String("supervisord", "", "measure this `binary` instead of one built from the sources here")
	flag.Usage = usage
	flag.Parse()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	b := &bench{quick: *quick, children: children{broken: make(chan struct{})}}
	ended := make(chan error, 1)
	go func() { ended <- b.run(*only, *binary) }()
	for {
		select {
		case <-signals:
			b.children.breakOff()
		case err := <-ended:
			if err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
				os.Exit(1)
			}
			return
		}
	}
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), "usage: scripts/bench [--only NAME,…] [--quick] [--supervisord BINARY]\n\n")
	flag.PrintDefaults()
	fmt.Fprintln(flag.CommandLine.Output(), "\nNames:")
	for _, m := range measurements() {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-10s %s\n", m.name, m.what)
	}
}

func (b *bench) run(only, binary string) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.runtime, err = os.MkdirTemp(tmpfs(), "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.runtime)
	if err := b.build(binary); err != nil {
		return err
	}
	return b.measure(chosen)
}

// measure measures and prints the table, as far as it got.
func (b *bench) measure(chosen []measurement) error {
	begin := machineLoad()
	var errs []error
	for _, m := range chosen {
		fmt.Fprintf(os.Stderr, "bench: %s: %s (load %s)\n", m.name, m.what, machineLoad())
		if err := m.run(b); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	fmt.Printf("%s, %d CPUs, Linux %s, load average %s before and %s after, %s.\n\n", runtime.Version(), runtime.NumCPU(), release(),
		begin, machineLoad(), time.Now().Format(time.DateOnly))
	head(os.Stdout)
	for _, r := range b.rows {
		r.print(os.Stdout)
	}
	return errors.Join(errs...)
}

func choose(only string) ([]measurement, error) {
	all := measurements()
	if only == "" {
		return all, nil
	}
	var chosen []measurement
	for _, name := range strings.Split(only, ",") {
		found := false
		for _, m := range all {
			if m.name == name {
				chosen, found = append(chosen, m), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no measurement %q; --help lists them", name)
		}
	}
	return chosen, nil
}

// tmpfs is where supervisord's sockets lie in this run: in memory, as in /run.
func tmpfs() string {
	if stat, err := os.Stat("/dev/shm"); err == nil && stat.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func (b *bench) build(binary string) error {
	b.supervisord, b.hello, b.light = filepath.Join(b.dir, "supervisord"), filepath.Join(b.dir, "hello"), filepath.Join(b.dir, "light")
	packages := map[string]string{b.hello: "examples/hello", b.light: "examples/measure/light"}
	if binary == "" {
		packages[b.supervisord] = "cmd/supervisord"
	} else {
		b.supervisord = binary
	}
	for out, name := range packages {
		if text, err := exec.Command("go", "build", "-C", name, "-trimpath", "-o", out, ".").CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w\n%s", name, err, text)
		}
	}
	return nil
}

// row adds a line to the table and shows it at once.
func (b *bench) row(what, required, measured string, met verdict) {
	r := row{what, required, measured, met}
	b.rows = append(b.rows, r)
	r.print(os.Stderr)
}

// folder makes a folder for one measurement.
func (b *bench) folder() (string, error) { return os.MkdirTemp(b.dir, "run") }

// less chooses between the whole measurement and the quick one.
func (b *bench) less(whole, quick int) int {
	if b.quick {
		return quick
	}
	return whole
}

func release() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}
