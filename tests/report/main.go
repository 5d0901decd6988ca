// Report reads what `go test -json` writes, from its standard input, and makes a report of it that a person can read: a line
// for each package, the output of what failed, and why each test that was skipped was skipped. It adds "PASSED FAILED SKIPPED"
// to the file that is its argument, and each skipped test with its reason as a line more.
package main

import (
	"bufio"
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

// event is a line of test2json (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// test is one test, or, without a name, a package as a whole.
type test struct{ pkg, name string }

// report is what is known so far.
type report struct {
	out     io.Writer
	output  map[test][]string
	parents map[test]bool // has subtests, which are counted in its place
	blamed  map[test]bool // something in it was counted as failed
	passed  int
	failed  int
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
			fmt.Fprintln(r.out, lines.Text()) // of the go command itself
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *report) take(e event) {
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
			r.whole(e)
		} else {
			r.ended(t, e.Action)
		}
		delete(r.output, t)
	}
}

func (r *report) ended(t test, how string) {
	switch {
	case how == "fail":
		fmt.Fprintf(r.out, "--- FAIL: %s %s\n%s", t.pkg, t.name, strings.Join(r.output[t], ""))
		if !r.blamed[t] {
			r.failed++
		}
		for name := t.name; name != ""; name = up(name) {
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

// up is the name of the test that has this one as a subtest, or "".
func up(name string) string { return name[:max(0, strings.LastIndexByte(name, '/'))] }

// reason is what a test said when it skipped itself.
func reason(output []string) string {
	for _, l := range slices.Backward(output) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "--- ") || strings.HasPrefix(l, "=== ") || l == "" {
			continue
		}
		if place, why, ok := strings.Cut(l, ": "); ok && strings.Contains(place, ".go:") {
			return why
		}
		return l
	}
	return "it does not say why"
}

// whole says how a package as a whole ended. One that fails without a test that failed could not be built, or was cut off.
func (r *report) whole(e event) {
	all := test{e.Package, ""}
	switch {
	case e.Action == "pass":
		fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	case e.Action == "fail":
		fmt.Fprintf(r.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
		if !r.blamed[all] {
			fmt.Fprint(r.out, strings.Join(r.output[all], ""))
			r.unfinished(e.Package)
			r.failed++
		}
	}
}

// unfinished shows the output of the tests that had not ended when their package did.
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
	fmt.Fprintln(f, r.passed, r.failed, len(r.skipped))
	for _, s := range r.skipped {
		fmt.Fprintln(f, "skipped", s)
	}
	return f.Close()
}
