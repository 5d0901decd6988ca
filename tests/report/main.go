// Report reads the output of `go test -json` from its standard input and prints a report for people: a line for each
// package and the output of the tests that failed. It appends the counts "PASSED FAILED SKIPPED" to the file in its
// argument, and a line with the reason for each test that failed or was skipped.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json … | report FILE")
		os.Exit(2)
	}
	r := newReport(os.Stdout)
	err := r.read(os.Stdin)
	if err == nil {
		err = r.save(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
}

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// test is one test, or a whole package if it has no name.
type test struct{ pkg, name string }

// report holds the results so far.
type report struct {
	out     io.Writer
	output  map[test][]string
	parents map[test]bool // tests whose subtests are counted instead
	blamed  map[test]bool // tests that contain a counted failure
	passed  int
	failed  []string // with the first reason
	skipped []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test][]string{}, parents: map[test]bool{}, blamed: map[test]bool{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text()) // from the go command itself
			continue
		}
		r.add(e)
	}
	return lines.Err()
}

func (r *report) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.output[t] = append(r.output[t], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			r.parents[test{e.Package, e.Test[:i]}] = true
		}
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.packageEnded(e)
		} else {
			r.testEnded(t, e.Action)
		}
		delete(r.output, t)
	}
}

func (r *report) testEnded(t test, how string) {
	switch {
	case how == "fail":
		fmt.Fprintf(r.out, "--- FAIL: %s %s\n%s", t.pkg, t.name, strings.Join(r.output[t], ""))
		if !r.blamed[t] {
			r.failed = append(r.failed, fmt.Sprintf("%s %s: %s", t.pkg, t.name, cause(r.output[t])))
		}
		for name := t.name; name != ""; name = parent(name) {
			r.blamed[test{t.pkg, name}] = true
		}
		r.blamed[test{t.pkg, ""}] = true
	case r.parents[t]:
	case how == "skip":
		r.skipped = append(r.skipped, fmt.Sprintf("%s %s: %s", t.pkg, t.name, reason(r.output[t])))
	default:
		r.passed++
	}
}

// parent returns the name of the test that a subtest belongs to, or "".
func parent(name string) string { return name[:max(0, strings.LastIndexByte(name, '/'))] }

// reason returns what a test said last about a line of its source, as it does when it skips itself; otherwise, what it
// printed last. Below a script's own line stands all that the script did.
func reason(output []string) string {
	last := "no reason given"
	for _, l := range slices.Backward(output) {
		position, why, _ := strings.Cut(l, ": ")
		switch l = strings.TrimSpace(l); {
		case strings.HasPrefix(l, "--- "), strings.HasPrefix(l, "=== "), l == "":
		case source(position) && !strings.Contains(position, "testscript.go:"):
			return strings.TrimSpace(why)
		case last == "no reason given":
			last = l
		}
	}
	return last
}

// source reports whether a line that a test printed begins with a line of its source.
func source(l string) bool {
	l, indented := strings.CutPrefix(l, "    ")
	return indented && !strings.HasPrefix(l, " ") && strings.Contains(l, ".go:")
}

// cause returns the beginning, at most 600 bytes in one line, of what a failed test printed first about a line of its
// script or else of its source; otherwise, of all that it printed.
func cause(output []string) string {
	script := func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "FAIL: ") }
	first := slices.IndexFunc(output, script)
	if first < 0 {
		first = max(0, slices.IndexFunc(output, source))
	}
	words := strings.Fields(strings.Join(output[first:], ""))
	return fmt.Sprintf("%.600s", cmp.Or(strings.Join(words, " "), "it printed nothing"))
}

// packageEnded reports how a package ended. A package that fails without a failed test could not be built, or was cut
// off.
func (r *report) packageEnded(e event) {
	all := test{e.Package, ""}
	switch {
	case e.Action == "pass":
		fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	case e.Action == "fail":
		fmt.Fprintf(r.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
		if !r.blamed[all] {
			fmt.Fprint(r.out, strings.Join(r.output[all], ""))
			r.unfinished(e.Package)
			r.failed = append(r.failed, fmt.Sprintf("%s: %s", e.Package, cause(r.output[all])))
		}
	}
}

// unfinished prints the output of the tests that were still running when their package ended.
func (r *report) unfinished(pkg string) {
	for t, lines := range r.output {
		if t.pkg == pkg && t.name != "" {
			fmt.Fprintf(r.out, "--- CUT OFF: %s %s\n%s", pkg, t.name, strings.Join(lines, ""))
		}
	}
}

func (r *report) save(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Fprintln(f, r.passed, len(r.failed), len(r.skipped))
	for _, s := range r.failed {
		fmt.Fprintln(f, "failed", s)
	}
	for _, s := range r.skipped {
		fmt.Fprintln(f, "skipped", s)
	}
	return f.Close()
}
