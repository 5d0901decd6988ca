package tests

import (
	"debug/buildinfo"
	"encoding/json"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/supervisord/internal/lab"
)

// TestVersionAsJSONDescribesTheBuild compares the answer with the record of the go command in the binary. That record
// has no commit outside a checkout, or with GOFLAGS=-buildvcs=false.
func TestVersionAsJSONDescribesTheBuild(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.ReadFile(lab.Built.Supervisord)
	lab.Must(t, err)
	commit := ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	var got struct{ Commit, Platform, Go string }
	out := output(lab.Prepare(t).Run("version", "--json"))
	lab.Must(t, json.Unmarshal([]byte(out), &got))
	if got.Commit != commit || got.Platform != "linux/"+runtime.GOARCH || got.Go != runtime.Version() {
		t.Errorf("the output is %s; the commit is %q", out, commit)
	}
}

func output(out string, _ int) string { return out }

// listed returns what a pattern finds, below a heading of a help, up to another.
func listed(help, from, to, pattern string) (names []string) {
	_, list, _ := strings.Cut(help, from)
	list, _, _ = strings.Cut(list, to)
	for _, found := range regexp.MustCompile("(?m)"+pattern).FindAllStringSubmatch(list, -1) {
		names = append(names, found[1])
	}
	return names
}

// TestHelpIsWholeAndNoWiderThanTheTerminal compares the help of every command with its completion and the manual page.
func TestHelpIsWholeAndNoWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	m, narrow := lab.Prepare(t), lab.Prepare(t)
	narrow.Env = []string{"COLUMNS=60"}
	if out, code := m.Run("docs", "man", m.Dir); code != 0 {
		t.Fatal(out)
	}
	page, completed := m.Read("supervisord.1"), "\n"+output(m.Run("__complete", ""))
	top := output(m.Run("--help"))
	fits(t, "--help", top, 80)
	fits(t, "--help", output(narrow.Run("--help")), 60)
	commands := listed(top, "\nRun:\n", "\nFlags:\n", `^  (\w[\w-]*)  `)
	if len(commands) < 15 {
		t.Fatalf("--help lists only %q", commands)
	}
	has := func(where, text, what string) {
		if !strings.Contains(text, what) {
			t.Errorf("%s lacks %q:\n%s", where, what, text)
		}
	}
	for _, command := range commands {
		help := output(m.Run("help", command))
		fits(t, command, help, 80)
		fits(t, command, output(narrow.Run("help", command)), 60)
		if command == "completion" || command == "exit-status" {
			continue
		}
		has("the completion", completed, "\n"+command+"\t")
		has("the manual page", page, "\n.SS \""+strings.ReplaceAll(command, "-", `\-`))
		flags := output(m.Run("__complete", command, "--"))
		for _, flag := range listed(help, "\nFlags:\n", "\n\n", `^ +(?:-\w, )?--([\w-]+)`) {
			if flag != "help" {
				has("the completion of "+command, flags, "--"+flag)
				has("the manual page", page, `\-\-`+strings.ReplaceAll(flag, "-", `\-`))
			}
		}
	}
	for _, word := range []string{"reload [PROGRAM...]", "status [PROGRAM]", "EXIT STATUS", `\-\-drained`,
		"had to be killed"} {
		has("the manual page", page, word)
	}
	groff := lab.Need(t, "groff")
	if out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z",
		m.Path("supervisord.1")).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff says %s %v", out, err)
	}
}

// fits fails unless a help is there, and no wider than the terminal, but for examples: they are commands, which stay
// whole.
func fits(t *testing.T, topic, help string, columns int) {
	t.Helper()
	if len(help) < 50 {
		t.Errorf("help of %s: %s", topic, help)
	}
	examples := false
	for line := range strings.Lines(help) {
		examples = line == "Examples:\n" || examples && line != "\n"
		if n := utf8.RuneCountInString(line) - 1; n > columns && !examples {
			t.Errorf("help of %s has a line of %d columns of %d: %s", topic, n, columns, line)
		}
	}
}
