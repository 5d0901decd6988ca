package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// companions are a command of each program that supervisord executes for its commands, and how what it prints begins.
var companions = []struct {
	program string
	words   []string
	prints  string
}{
	{"supervisord-tools", []string{"convert", "-"}, "# Converted from stdin"},
	{"start_server", []string{"start_server", "--version"}, "0.35\n"},
}

// installed copies supervisord into a directory of its own, and another program to each of these paths below it. It
// returns the path of supervisord.
func installed(t *testing.T, dir, program string, to ...string) string {
	t.Helper()
	for from, paths := range map[string][]string{"supervisord": {"bin/supervisord"}, program: to} {
		for _, path := range paths {
			path = filepath.Join(dir, path)
			lab.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			lab.Must(t, exec.Command("cp", filepath.Join(filepath.Dir(lab.Built.Supervisord), from), path).Run())
		}
	}
	return filepath.Join(dir, "bin/supervisord")
}

// executed runs a command of supervisord with this PATH and a Procfile as its stdin.
func executed(t *testing.T, supervisord, path string, words []string) (out string, code int) {
	t.Helper()
	c := exec.Command(supervisord, words...)
	c.Stdin = strings.NewReader("web: ./web\n")
	c.Env = []string{"PATH=" + path}
	raw, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(raw), c.ProcessState.ExitCode()
}

func TestCommandExecutesItsProgramFromBesideSupervisordOrPATH(t *testing.T) {
	t.Parallel()
	for _, c := range companions {
		for where, path := range map[string]string{"bin": "/usr/bin:/bin", "lib/supervisord": "/usr/bin:/bin",
			"elsewhere": ":/nowhere:{dir}/elsewhere"} {
			dir := t.TempDir()
			supervisord := installed(t, dir, c.program, filepath.Join(where, c.program))
			out, code := executed(t, supervisord, strings.ReplaceAll(path, "{dir}", dir), c.words)
			if code != 0 || !strings.HasPrefix(out, c.prints) {
				t.Errorf("%s in %s: exit status %d: %s", c.program, where, code, out)
			}
		}
	}
}

func TestCommandWhoseProgramIsMissingSaysHowToGetIt(t *testing.T) {
	t.Parallel()
	for _, c := range companions {
		dir := t.TempDir()
		supervisord := installed(t, dir, c.program)
		// Perl's start_server, and whatever has the other name, are other programs.
		lab.Must(t, os.WriteFile(filepath.Join(dir, "bin", c.program), []byte("#!/bin/sh\necho foreign\n"), 0o755))
		out, code := executed(t, supervisord, dir+"/bin:/usr/bin:/bin", c.words)
		if want := "supervisord: the program " + c.program + " is missing: "; code != 1 || !strings.HasPrefix(out, want) ||
			!strings.Contains(out, "go build -o "+dir+"/bin/ ./cmd/"+c.program) {
			t.Errorf("exit status %d: %s", code, out)
		}
	}
}

func TestEveryProgramOfThisProjectIsStatic(t *testing.T) {
	t.Parallel()
	lab.Need(t, "file")
	dir, err := lab.Programs(t.TempDir(), false)
	lab.Must(t, err)
	for _, name := range []string{"supervisord", "supervisord-tools", "start_server"} {
		if out, err := exec.Command("file", filepath.Join(dir, name)).CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "statically linked") {
			t.Errorf("%v: %s", err, out)
		}
	}
}
