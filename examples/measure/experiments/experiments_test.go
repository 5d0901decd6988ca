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

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
)

// TestMain runs the tests, or the role that an experiment requests from the test binary.
func TestMain(m *testing.M) {
	if role := roleOf(os.Args); role != nil {
		exit(role())
	}
	dir, err := os.MkdirTemp("", "experiments")
	if err != nil {
		exit(err)
	}
	if err := assemble(dir); err != nil {
		os.RemoveAll(dir)
		exit(err)
	}
	built = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built is the directory with the programs that TestMain brings.
var built string

// assemble brings the programs that scripts/test has built, or builds them.
func assemble(dir string) error {
	from := os.Getenv(lab.BuiltVariable)
	if from == "" {
		return build(context.Background(), dir)
	}
	self, err := os.Executable()
	err = errors.Join(err, os.Symlink(self, filepath.Join(dir, "experiments")))
	for _, pkg := range subjects {
		name := filepath.Base(pkg)
		err = errors.Join(err, os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)))
	}
	return err
}

// Every experiment, in miniature, finishes, loses nothing where nothing may be lost, draws valid XML, and leaves no
// process behind (run returns that as an error).
func TestEveryExperimentInMiniature(t *testing.T) {
	out := t.TempDir()
	must.Do(t, run(t.Context(), &rig{miniature, built, out}, 0))
	text := must.Get(os.ReadFile(filepath.Join(out, "README.md")))(t)
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

// lossesAreSeen fails unless requests are lost where some must be: an experiment that never finds a loss would prove
// nothing.
func lossesAreSeen(t *testing.T, report string) {
	t.Helper()
	for _, users := range []string{"gRPC, 5 users", "HTTP/1.1, 5 users"} {
		for way, want := range map[string]string{
			"killed":                           `\| 1 \| \d+ \| [1-9]\d* \| [1-9]\d* \|`, // in-flight requests too
			"stopped gracefully, no successor": `\| 1 \| \d+ \| [1-9]\d* \| 0 \|`,        // only later requests
			"redeployed by supervisord":        `\| 1 \| \d+ \| 0 \| 0 \| none \|`,
		} {
			if !regexp.MustCompile(regexp.QuoteMeta("| "+users+" | "+way+" ") + want).MatchString(report) {
				t.Errorf("%s, %s: the report lacks %s\n%s", users, way, want, report)
			}
		}
	}
}

func parse(t *testing.T, path string) {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	for d := xml.NewDecoder(f); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

func TestInterruptedRunLeavesNoProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	late := time.AfterFunc(time.Second, cancel) // at an arbitrary moment
	defer late.Stop()
	long := miniature
	long.stopped.before = time.Hour
	err := run(ctx, &rig{long, built, t.TempDir()}, 2)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v", err)
	}
	if left := children(); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func TestOneChapterIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	for _, write := range []struct {
		index int
		words string
	}{{3, "old four"}, {0, "one"}, {3, "new four"}} {
		c := &chapter{experiment: experiments()[write.index]}
		c.say("%s", write.words)
		must.Do(t, c.into(path))
	}
	text := must.Get(os.ReadFile(path))(t)
	got := string(text)
	one, four := strings.Index(got, "one\n"), strings.Index(got, "new four\n")
	if one < 0 || four < one || strings.Contains(got, "old four") || strings.Count(got, "# The experiments") != 1 {
		t.Error(got)
	}
}

func TestHistogramShowsOneRequest(t *testing.T) {
	many := slices.Repeat(load.Times{time.Millisecond}, 100_000)
	bars := func(first load.Times) int {
		return strings.Count(string(drawHistogram("", series{"a", first}, series{"b", many})), `class="calm"`)
	}
	without, with := bars(many), bars(append(slices.Clone(many), time.Second))
	if with != without+1 {
		t.Errorf("%d bars with one slow request, %d without", with, without)
	}
}
