package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/kit"
)

// chapter is one experiment's part of the report.
type chapter struct {
	experiment
	size, load string // its name; the load average before it
	text       strings.Builder
}

// say adds a paragraph.
func (c *chapter) say(format string, args ...any) { fmt.Fprintf(&c.text, format+"\n\n", args...) }

// table adds a table, and prints it at once.
func (c *chapter) table(head []string, rows [][]string) {
	text := "| " + strings.Join(head, " | ") + " |\n| ---" + strings.Repeat(" | ---:", len(head)-1) + " |\n"
	for _, row := range rows {
		text += "| " + strings.Join(row, " | ") + " |\n"
	}
	fmt.Fprint(os.Stderr, text)
	c.text.WriteString(text + "\n")
}

// picture writes an SVG beside the report and shows it.
func (r *rig) picture(c *chapter, name, about string, svg []byte) error {
	c.say("![%s](%s)", about, name)
	return os.WriteFile(filepath.Join(r.out, name), svg, 0o644)
}

// verdict is a sentence about what must be none.
func verdict(failed int, who string) string {
	if failed == 0 {
		return who + " lost nothing."
	}
	return fmt.Sprintf("**%s lost %s, which is a defect.**", who, count(failed))
}

// count writes a number with its thousands apart.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return count(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

func (e experiment) marks() (begin, end string) {
	return fmt.Sprintf("<!-- experiment %d -->\n", e.number), fmt.Sprintf("<!-- end of experiment %d -->\n", e.number)
}

// String returns the chapter as it stands in the report.
func (c *chapter) String() string {
	begin, end := c.marks()
	return fmt.Sprintf("%s## %d. %s\n\n**Published:** %s\n\n"+
		"%s*`scripts/experiments --only %d`, %s sizes, %s; load average %s before and %s after.*\n%s",
		begin, c.number, c.title, c.published, c.text.String(), c.number, c.size, time.Now().Format(
			time.DateOnly), c.load, kit.LoadAverage(), end)
}

// into puts the chapter into the report, in place of the one before or in the order of the numbers.
func (c *chapter) into(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	report := introduction()
	for _, e := range experiments() {
		begin, end := e.marks()
		_, rest, found := strings.Cut(string(old), begin)
		before, _, whole := strings.Cut(rest, end)
		switch {
		case e.number == c.number:
			report += "\n" + c.String()
		case found && whole:
			report += "\n" + begin + before + end
		}
	}
	return os.WriteFile(path, []byte(report), 0o644)
}

func introduction() string {
	release, _, _ := strings.Cut(kit.Kernel(), "-") // the rest is the distribution's
	return fmt.Sprintf(`# The experiments, reproduced

Published measurements of deploys without downtime, repeated with supervisord, and without it where that is the point.
`+"`scripts/experiments`"+` writes this page and its pictures; `+"`--only N`"+` runs one experiment,
`+"`--quick`"+` all of them in about two minutes.

How to read the figures:

- They come from one machine (%s, %d CPUs, Linux %s) on which client, supervisord and workers compete for the
  CPUs, often with other work: the load average is below each table. Compare ratios within a table; absolute figures
  differ on other hardware.
- No client sends a request twice. Go's http.Transport would do that silently, so the HTTP clients are ab and a client
  that belongs to this repository. gRPC's transparent retry, of calls that a server has refused by GOAWAY, is part of
  gRPC and is enabled.
- Everything runs on loopback, where a client sees a close at once. `+"`supervisord prove`"+` can simulate a client that
  is a round trip away.
- `+"`max_draining`"+` is 100 in all experiments: HUPs come faster than a worker with keep-alive connections drains
  (up to 28 s), and with the default, 4, most HUPs would wait and be merged into one reload.

In the pictures grey lines are redeploys (HUP), the blue line is the median, the bands reach to p95 and p99, dots are
the slowest answers, and coloured bars are requests that failed.

`, runtime.Version(), runtime.NumCPU(), release)
}
