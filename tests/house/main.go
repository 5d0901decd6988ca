// Command house measures the shape of the source code: sizes, names and the direction of imports. scripts/size runs it.
// What must hold is held by the tests of this package; what is only aimed at is printed beside its target.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// A measure is one row of the table.
type measure struct {
	what   string
	target string   // empty: no target
	now    string   //
	met    bool     //
	detail []string // what exceeds the target, for --list
}

func main() {
	list := flag.Bool("list", false, "list what exceeds each target")
	packages := flag.Bool("packages", false, "list the lines of code of each package")
	flag.Parse()
	root, err := readModule(".", "./examples")
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if *packages {
		printPackages(root)
		return
	}
	printMeasures(root.measures(), *list)
}

func printMeasures(measures []measure, list bool) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "measure\ttarget\tnow\t")
	for _, m := range measures {
		missed := ""
		if !m.met {
			missed = "missed"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.what, m.target, m.now, missed)
	}
	w.Flush()
	for _, m := range measures {
		if list && len(m.detail) > 0 {
			fmt.Printf("\n%s (target %s):\n  %s\n", m.what, m.target, strings.Join(m.detail, "\n  "))
		}
	}
}

func printPackages(m *module) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, p := range slices.SortedFunc(slices.Values(m.packages),
		func(a, b *parsed) int { return b.count.code - a.count.code }) {
		where := strings.ReplaceAll(strings.Join(p.programs, " "), "cmd/", "")
		if p.harness {
			where = "tests"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\n", p.count.code, p.short(), where)
	}
	w.Flush()
}
