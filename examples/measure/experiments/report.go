package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"
)

// section is one experiment's part of the report.
type section struct {
	experiment
	size sizes
	text strings.Builder
	load string
}

func newSection(e experiment, size sizes) *section {
	return &section{experiment: e, size: size, load: machineLoad()}
}

// say adds a paragraph.
func (s *section) say(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	s.text.WriteString(format + "\n\n")
}

// table adds a table, and shows it at once to whoever waits.
func (s *section) table(head []string, rows [][]string) {
	var t strings.Builder
	row := func(cells []string) { fmt.Fprintf(&t, "| %s |\n", strings.Join(cells, " | ")) }
	row(head)
	dashes := make([]string, len(head))
	for i := range dashes {
		dashes[i] = "---:"
	}
	dashes[0] = "---"
	row(dashes)
	for _, r := range rows {
		row(r)
	}
	fmt.Fprint(os.Stderr, t.String())
	s.text.WriteString(t.String() + "\n")
}

func (s *section) marks() (begin, end string) {
	return fmt.Sprintf("<!-- experiment %d -->\n", s.number), fmt.Sprintf("<!-- end of experiment %d -->\n", s.number)
}

// String is the section as it stands in the report.
func (s *section) String() string {
	begin, end := s.marks()
	return fmt.Sprintf("%s## %d. %s\n\n**Published:** %s\n\n%s*`scripts/experiments --only %d`, %s sizes, %s; load average %s before and %s after.*\n%s",
		begin, s.number, s.title, s.published, s.text.String(), s.number, s.size.name, time.Now().Format(time.DateOnly), s.load, machineLoad(), end)
}

// into puts the section into the report: in the place of the one before, or in the order of the numbers.
func (s *section) into(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	report := head()
	for _, e := range experiments() {
		one := &section{experiment: e}
		begin, end := one.marks()
		_, rest, found := strings.Cut(string(old), begin)
		before, _, whole := strings.Cut(rest, end)
		switch {
		case e.number == s.number:
			report += "\n" + s.String()
		case found && whole:
			report += "\n" + begin + before + end
		}
	}
	return os.WriteFile(path, []byte(report), 0o644)
}

// head is what stands before the sections.
func head() string {
	return fmt.Sprintf(`# The experiments, reproduced

What others have published about deploys without downtime, run again with supervisord, and without it where that is the point.
`+"`scripts/experiments`"+` writes this page and its pictures; `+"`--only N`"+` runs one, `+"`--quick`"+` all in about two minutes.

How to read the figures:

- They come from one machine (%s, %d CPUs, Linux %s) on which client, supervisord and workers compete for the CPUs, often with other work:
  the load average stands under each table. Compare within a table, by ratios; absolute figures elsewhere were measured on other hardware.
- No client sends a request again. Go's http.Transport would, silently; so HTTP is spoken by a client without that habit, and
  ab. gRPC's own transparent retry, of calls that a server has refused by GOAWAY, is part of gRPC and is on.
- Everything is on loopback, where a close is seen at once. `+"`supervisord prove`"+` can put a round trip in between.
- `+"`max_draining`"+` is 100 in all of them: HUPs come faster than a worker with kept connections drains (up to 28 s), and with
  the default, 4, most of them would wait and become one reload.

The pictures: grey lines are redeploys (HUP), the blue line is the median, the bands reach to p95 and p99, dots are the slowest
answers, red is what failed.

`, runtime.Version(), runtime.NumCPU(), release())
}

func release() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	number, _, _ := strings.Cut(strings.TrimSpace(string(text)), "-") // what follows is the distribution's
	return number
}
