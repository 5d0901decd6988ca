package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The test binary plays the roles too.
func TestMain(m *testing.M) {
	if role := roleOf(os.Args); role != nil {
		exit(role())
	}
	dir, err := os.MkdirTemp("", "experiments")
	if err != nil {
		exit(err)
	}
	bin, err := build(context.Background(), dir)
	if err != nil {
		os.RemoveAll(dir)
		exit(err)
	}
	built = bin
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built is what TestMain has built.
var built binaries

// Every experiment, in miniature: it comes to an end, loses nothing where nothing may be lost, draws pictures that are XML, and
// leaves no process behind (run would return that as an error).
func TestEveryExperimentInMiniature(t *testing.T) {
	out := t.TempDir()
	if err := run(t.Context(), built, 0, miniature, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range experiments() {
		if !strings.Contains(string(text), fmt.Sprintf("## %d. %s", e.number, e.title)) {
			t.Errorf("the report lacks experiment %d", e.number)
		}
	}
	if found := regexp.MustCompile(`\*\*.* lost .*defect`).Find(text); found != nil {
		t.Errorf("%s\n%s", found, text)
	}
	lossesAreSeen(t, string(text))
	pictures, _ := filepath.Glob(filepath.Join(out, "*.svg"))
	if len(pictures) != 5 {
		t.Errorf("%d pictures: %v", len(pictures), pictures)
	}
	for _, path := range pictures {
		parse(t, path)
		if !strings.Contains(string(text), "("+filepath.Base(path)+")") {
			t.Errorf("the report does not show %s", filepath.Base(path))
		}
	}
	if left := children(); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// lossesAreSeen wants losses where there must be some: an experiment that never finds any would prove nothing.
func lossesAreSeen(t *testing.T, report string) {
	t.Helper()
	for _, users := range []string{"gRPC, 5 users", "HTTP/1.1, 5 users"} {
		for way, want := range map[string]string{
			"killed":                                `\| 1 \| \d+ \| [1-9]\d* \| [1-9]\d* \|`, // in hand, too
			"stopped gracefully, nobody takes over": `\| 1 \| \d+ \| [1-9]\d* \| 0 \|`,        // only those that came later
			"redeployed by supervisord":             `\| 1 \| \d+ \| 0 \| 0 \| none \|`,
		} {
			if !regexp.MustCompile(regexp.QuoteMeta("| "+users+" | "+way+" ") + want).MatchString(report) {
				t.Errorf("%s, %s: the report lacks %s\n%s", users, way, want, report)
			}
		}
	}
}

func parse(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := xml.NewDecoder(f); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// A run that is broken off ends soon and leaves no process behind.
func TestBrokenOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	late := time.AfterFunc(time.Second, cancel) // in the middle of anything
	defer late.Stop()
	long := miniature
	long.panel, long.stretch, long.before, long.gapLong = time.Hour, time.Hour, time.Hour, time.Hour
	err := run(ctx, built, 2, long, t.TempDir())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v", err)
	}
	if left := children(); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func TestOneSectionIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	for _, write := range []struct {
		index int
		words string
	}{{3, "old four"}, {0, "one"}, {3, "new four"}} {
		s := newSection(experiments()[write.index], full)
		s.say("%s", write.words)
		if err := s.into(path); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	one, four := strings.Index(got, "one\n"), strings.Index(got, "new four\n")
	if one < 0 || four < one || strings.Contains(got, "old four") || strings.Count(got, "# The experiments") != 1 {
		t.Error(got)
	}
}

func TestGap(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	all := samples{{ms(0), ms(10), ""}, {ms(15), ms(5), ""}, {ms(30), ms(5), "reset"}, {ms(40), ms(30), ""}}
	if got := all.gap(window{0, ms(80)}); got != ms(50) { // from 20 to 70: what failed is no answer
		t.Error(got)
	}
	if got := all.gap(window{ms(60), ms(200)}); got != ms(130) { // to the end of the window
		t.Error(got)
	}
}

func TestSpread(t *testing.T) {
	var s spread
	for i := range 100_000 {
		s = append(s, time.Duration(i+1))
	}
	slices.Sort(s)
	for part, want := range map[float64]time.Duration{0: 1, 0.5: 50_000, 0.999: 99_900, 1: 100_000} {
		if got := s.at(part); got != want {
			t.Errorf("at %g: %d, want %d", part, got, want)
		}
	}
	if got := spread(nil).at(1); got != 0 {
		t.Error(got)
	}
}

// One request in a hundred thousand must be seen.
func TestHistogramShowsOneRequest(t *testing.T) {
	many := make(spread, 100_000)
	for i := range many {
		many[i] = time.Millisecond
	}
	count := func(svg []byte) int { return strings.Count(string(svg), `class="calm"`) }
	without := count(drawHistogram("", []series{{"a", many}, {"b", many}}))
	with := count(drawHistogram("", []series{{"a", append(slices.Clone(many), time.Second)}, {"b", many}}))
	if with != without+1 {
		t.Errorf("%d bars with one slow request, %d without", with, without)
	}
}
