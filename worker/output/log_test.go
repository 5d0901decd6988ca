package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// complaints collects the reported errors of log files.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) errors() *LogErrors {
	return NewLogErrors(func(what string, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.said = append(c.said, what+": "+err.Error())
	})
}

func (c *complaints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said...)
}

func (c *complaints) nothing(t *testing.T) {
	t.Helper()
	if said := c.all(); len(said) > 0 {
		t.Errorf("it is said %q", said)
	}
}

// opened opens a log file until the end of the test.
func opened(t *testing.T, s LogFileSpec, c *complaints) *LogFile {
	t.Helper()
	log := must.Get(OpenLogFile(t.Context(), s, c.errors()))(t)
	t.Cleanup(func() { log.Close(context.Background()) })
	return log
}

// written returns the content of a log file after all writes.
func written(t *testing.T, log *LogFile) string {
	t.Helper()
	must.Do(t, log.Flush(t.Context()))
	return string(must.Get(os.ReadFile(log.spec.Path))(t))
}

// has compares the content of a file.
func has(t *testing.T, path, want string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("%s has %d bytes, %.100q, %v, want %q", path, len(data), data, err, want)
	}
}

// holds is has of a log file after all writes.
func holds(t *testing.T, log *LogFile, want string) {
	t.Helper()
	written(t, log)
	has(t, log.spec.Path, want)
}

// captured opens a log whose errors are collected, until the end of the test.
func captured(t *testing.T) (*Log, func() []string) {
	t.Helper()
	c := new(complaints)
	l := NewLog(c.errors(), nil)
	t.Cleanup(func() {
		if file := l.End(); file != nil {
			file.Close(context.Background())
		}
	})
	return l, c.all
}

func texts(lines []LogLine) string {
	var words []string
	for _, line := range lines {
		words = append(words, line.Stream+":"+line.Text)
	}
	return strings.Join(words, " ")
}

func TestLogKeepsTheEndOfEachStream(t *testing.T) {
	log := NewLog(nil, nil)
	put := log.Of(1)
	put(Stderr, 1, []byte("early\n"))
	for i := range 3000 {
		put(Stdout, 1, fmt.Appendf(nil, "%d\n", i))
	}
	lines, _ := log.Last(10_000)
	if len(lines) != keptLines+1 || lines[0].Text != "early" || lines[1].Text != "2000" ||
		lines[keptLines].Text != "2999" {
		t.Errorf("%d lines: %s …", len(lines), texts(lines[:2]))
	}
	if last, _ := log.Last(2); texts(last) != "stdout:2998 stdout:2999" {
		t.Errorf("last %s", texts(last))
	}
	for range 100 {
		put(Stdout, 1, []byte(strings.Repeat("x", 20_000)+"\n"))
	}
	if log.rings[0].bytes > keptBytes {
		t.Errorf("%d bytes are kept", log.rings[0].bytes)
	}
}

func TestReaderFollowsAndLearnsHowManyLinesItMissed(t *testing.T) {
	log := NewLog(nil, nil)
	put := log.Of(1)
	put(Stdout, 1, []byte("a\nb\n"))
	lines, reader := log.Last(1)
	if texts(lines) != "stdout:b" {
		t.Errorf("last %s", texts(lines))
	}
	go put(Stderr, 1, []byte("c\nd"))
	if lines, missed, err := reader.Next(t.Context()); texts(lines) != "stderr:c stderr:d" || missed != 0 || err != nil {
		t.Errorf("%s, %d missed, %v", texts(lines), missed, err)
	}
	for range keptLines + 5 {
		put(Stdout, 1, []byte("x\n"))
	}
	if lines, missed, err := reader.Next(t.Context()); len(lines) != keptLines || missed != 5 || err != nil {
		t.Errorf("%d lines, %d missed, %v", len(lines), missed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := reader.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	go log.End()
	if _, _, err := reader.Next(t.Context()); err != io.EOF {
		t.Errorf("%v", err)
	}
}

func TestChangedLogFileGetsLaterOutput(t *testing.T) {
	log, _ := captured(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	put := log.Of(1)
	for _, path := range []string{one, two, one, ""} {
		must.Do(t, log.SetFile(t.Context(), LogFileSpec{Path: path, MaxSize: 1 << 20}))
		put(Stdout, 1, []byte("to "+filepath.Base(path)+"\n"))
		if path == two {
			file := log.File()
			defer func() { <-file.spool.Done() }()
		}
	}
	must.Become(t, "in the first file", func() bool {
		data, _ := os.ReadFile(one)
		return string(data) == "to one\nto one\n"
	})
	has(t, two, "to two\n")
}

func TestFileThatCannotBeUsedIsRefusedAndTheOldOneStays(t *testing.T) {
	log, _ := captured(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	must.Do(t, log.SetFile(t.Context(), LogFileSpec{Path: good, MaxSize: 1 << 20}))
	for path, want := range map[string]string{filepath.Join(dir, "no", "log"): "no such file or directory",
		"/dev/null": "not a regular file", dir: "is a directory"} {
		if err := log.SetFile(t.Context(), LogFileSpec{Path: path, MaxSize: 1 << 20}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	log.Of(1)(Stdout, 1, []byte("still\n"))
	log.File().Flush(t.Context())
	has(t, good, "still\n")
}

func TestErrorsOfTheFileAreReportedOnceForASeries(t *testing.T) {
	log, reports := captured(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "d", "log")
	log.UseFile(LogFileSpec{Path: path, MaxSize: 1 << 20})
	must.Do(t, os.WriteFile(filepath.Dir(path), nil, 0o600)) // a file in place of the directory
	put := log.Of(1)
	for range 3 {
		put(Stdout, 1, []byte("lost\n"))
		log.File().Flush(t.Context())
	}
	if got := reports(); len(got) != 1 || !strings.Contains(got[0], "1 lines are lost") || log.errors.Lost() != 3 {
		t.Errorf("%q, %d lost", got, log.errors.Lost())
	}
	os.Remove(filepath.Dir(path))
	os.Mkdir(filepath.Dir(path), 0o755)
	put(Stdout, 1, []byte("kept\n"))
	log.File().Flush(t.Context())
	if got := reports(); len(got) != 2 || !strings.Contains(got[1], "2 lines were lost") {
		t.Errorf("%q", got)
	}
	has(t, path, "kept\n")
}

func TestReopenThatFailsKeepsTheOldFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	os.Mkdir(dir, 0o755)
	said := new(complaints)
	log := opened(t, LogFileSpec{Path: filepath.Join(dir, "log")}, said)
	os.Rename(dir, dir+".moved")
	log.Reopen()
	log.Put([]byte("still\n"))
	must.Do(t, log.Flush(t.Context()))
	if got := said.all(); len(got) != 1 ||
		!strings.Contains(got[0], "the old one stays in use: cannot open the log file "+log.spec.Path+": no such file") {
		t.Errorf("%q", got)
	}
	has(t, filepath.Join(dir+".moved", "log"), "still\n")
	if _, err := OpenLogFile(t.Context(), log.spec, said.errors()); err == nil {
		t.Error("a directory was made")
	}
}
