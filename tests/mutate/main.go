// Command mutate shows what the tests do not look at: it makes one small mistake at a time in the source code, a
// mutant, and runs the tests of the package. A mutant that they pass has survived. scripts/mutate runs it.
//
// It writes nothing into the tree: the changed file lies elsewhere, and go test reads it with -overlay.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// By default mutants are made of what decides, steers, records and drains, if the tests of the package look at it:
// those of the built program test supervisor and the orphans of record.
var sources = []string{"supervisor/program", "supervisor/record/log.go", "supervisor/record/parts.go",
	"supervisor/record/store.go", "supervisor/record/read.go", "supervisor/record/record.go",
	"supervisor/record/pidfile.go", "socket/lane.go", "socket/steer.go", "socket/group.go",
	"socket/bpf.go", "socket/diag"}

// maxData is the memory of each process in bytes: a mutant may allocate forever.
const maxData = 4 << 30

func main() {
	count := flag.Int("count", 100, "how many mutants to try")
	seed := flag.Uint64("seed", 1, "draws the same mutants again")
	limit := flag.Duration("limit", 2*time.Minute, "the time for the tests of a mutant; what takes longer is killed")
	only := flag.String("only", "", "only the mutant of this place, FILE:LINE:COLUMN, in all its ways")
	run := flag.String("run", "", "only the tests with these names, a regular expression")
	with := flag.String("with", "", "also the tests of these directories, separated by spaces")
	short := flag.Bool("short", false, "a fifth of the random histories")
	flag.Parse()
	from := flag.Args()
	if len(from) == 0 {
		from = sources
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	survived, err := mutate(ctx, from, draw{*count, *seed, *only},
		tests{limit: *limit, run: *run, short: *short, with: strings.Fields(*with)})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// draw says which mutants are tried.
type draw struct {
	count int
	seed  uint64
	only  string // the place of the only ones; "": anywhere
}

// of returns mutants in the order in which they are tried.
func (d draw) of(all []mutant) []mutant {
	random := rand.New(rand.NewPCG(d.seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return slices.DeleteFunc(all, func(m mutant) bool { return d.only != "" && m.place() != d.only })
}

// mutate tries mutants of the sources, prints what became of each, and returns how many survived. It ends early, with
// nothing left behind, when ctx does.
func mutate(ctx context.Context, from []string, d draw, run tests) (survived int, err error) {
	all, err := mutants(from)
	if err != nil {
		return 0, err
	}
	if err := confine(); err != nil {
		return 0, err
	}
	if run.dir, err = os.MkdirTemp("", "mutate-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(run.dir)
	if err := run.unchanged(ctx, all); err != nil {
		return 0, err
	}
	tried, invalid := 0, 0
	for _, m := range d.of(all) {
		if tried == d.count {
			break
		}
		fate, took, err := run.try(ctx, m)
		switch {
		case err != nil:
			return survived, err
		case ctx.Err() != nil:
			return survived, fmt.Errorf("after %d mutants, of which %d survived: %w", tried, survived, context.Cause(ctx))
		case fate == "":
			invalid++
			continue
		case fate == survivor:
			survived++
		}
		tried++
		fmt.Printf("%s  %s: %s  (%s, %.0f s)\n", mark(fate), m.place(), m.what, fate, took.Seconds())
	}
	fmt.Printf("%d mutants, %d survived; %d more did not compile, of %d that could be made\n", tried, survived, invalid,
		len(all))
	return survived, nil
}

const survivor = "every test passed"

func mark(fate string) string {
	if fate == survivor {
		return "SURVIVED"
	}
	return "killed  "
}

// confine keeps what a mutant may do within bounds: its processes become children of this one, and have little memory.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: maxData, Max: maxData})
}

// tests runs the tests of packages.
type tests struct {
	dir   string // for the changed files
	limit time.Duration
	run   string
	short bool
	with  []string
}

// unchanged checks that the tests pass, and compiles what every mutant needs.
func (r tests) unchanged(ctx context.Context, all []mutant) error {
	for _, dir := range packages(all) {
		if fate, took := r.test(ctx, dir, filepath.Join(r.dir, "none.json"), nil); fate != survivor {
			return fmt.Errorf("%s without a change: %s", dir, cmp.Or(fate, "it does not compile"))
		} else {
			fmt.Printf("unchanged %s  (%s, %.0f s)\n", dir, fate, took.Seconds())
		}
	}
	return nil
}

// packages returns the directories of the mutants.
func packages(all []mutant) []string {
	var dirs []string
	for _, m := range all {
		dirs = append(dirs, filepath.Dir(m.file))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// try returns what became of a mutant: which test failed, survivor, or "" if it does not compile.
func (r tests) try(ctx context.Context, m mutant) (fate string, took time.Duration, err error) {
	original, err := os.ReadFile(m.file)
	if err != nil {
		return "", 0, err
	}
	changed := filepath.Join(r.dir, filepath.Base(m.file))
	text := slices.Concat(original[:m.from], []byte(m.text), original[m.to:])
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", 0, err
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", 0, err
	}
	for _, dir := range append([]string{filepath.Dir(m.file)}, r.with...) {
		var one time.Duration
		fate, one = r.test(ctx, dir, filepath.Join(r.dir, "overlay.json"), map[string]string{path: changed})
		if took += one; fate != survivor {
			break
		}
	}
	return fate, took, nil
}

var (
	failed     = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	uncompiled = regexp.MustCompile(`\[(build|setup) failed\]`)
)

// test runs the tests of a directory with some files replaced.
func (r tests) test(ctx context.Context, dir, overlay string, replace map[string]string) (
	fate string, took time.Duration) {
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err.Error(), 0
	}
	args := []string{"test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast", "-timeout", r.limit.String(),
		"-run", r.run, "-short=" + strconv.FormatBool(r.short), "./" + dir}
	if usesRapid(dir) { // it would write what fails into the tree
		args = append(args, "-args", "-rapid.nofailfile")
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*r.limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	killChildren()
	took = time.Since(began)
	switch name := failed.FindSubmatch(output); {
	case err == nil:
		return survivor, took
	case uncompiled.Match(output):
		return "", took
	case name != nil:
		return string(name[1]), took
	case bytes.Contains(output, []byte("panic: test timed out")) || ctx.Err() != nil:
		return "no end", took
	case bytes.Contains(output, []byte("panic: ")) || bytes.Contains(output, []byte("fatal error: ")):
		return "panic", took
	default:
		return "failed: " + lastLine(output), took
	}
}

// usesRapid reports whether tests of a directory know the flags of rapid.
func usesRapid(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return slices.ContainsFunc(files, func(name string) bool {
		text, _ := os.ReadFile(name)
		return bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	})
}

func lastLine(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1]
}

// killChildren ends the processes that a mutant left behind.
func killChildren() {
	for {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
}
