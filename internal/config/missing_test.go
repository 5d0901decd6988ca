package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// warned returns the warnings about commands, each as "KEY: what".
func warned(c *Config) string {
	var list []string
	for _, w := range c.Warnings {
		if !strings.HasSuffix(w.Key, "ready.method") {
			list = append(list, w.Key+": "+strings.ReplaceAll(w.What, filepath.Dir(c.Files[0])+"/", ""))
		}
	}
	return strings.Join(list, "\n")
}

// binaries makes a directory with an executable "server", a file "plain" and a directory "folder".
func binaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"server": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCommandThatIsNotInPATHIsAWarning(t *testing.T) {
	dir := binaries(t)
	t.Setenv("PATH", dir)
	for command, expected := range map[string]string{
		"server":        "",
		"slep":          fmt.Sprintf(`program.web.command: there is no slep in PATH, which is %q`, dir),
		"plain":         fmt.Sprintf(`program.web.command: there is no plain in PATH, which is %q`, dir),
		"folder":        fmt.Sprintf(`program.web.command: there is no folder in PATH, which is %q`, dir),
		dir + "/server": "",
		dir + "/plain":  fmt.Sprintf(`program.web.command: %s/plain cannot be executed`, dir),
		dir + "/absent": fmt.Sprintf(`program.web.command: there is no %s/absent`, dir),
		"./absent":      `program.web.command: there is no absent`,
	} {
		if got := warned(load(t, fmt.Sprintf("[program.web]\ncommand = [%q]\n", command))); got != expected {
			t.Errorf("%s: warnings are %q, want %q", command, got, expected)
		}
	}
}

func TestCommandIsLookedUpInThePATHOfTheWorker(t *testing.T) {
	dir := binaries(t)
	t.Setenv("PATH", "/nonexistent")
	env := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(env, []byte("PATH="+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, expected := range map[string]bool{
		"": true,
		fmt.Sprintf("environment = { PATH = %q }\n", dir):                                      false,
		fmt.Sprintf("environment_file = %q\n", env):                                            false,
		fmt.Sprintf("environment_file = %q\nenvironment = { PATH = \"/nonexistent\" }\n", env): false,
		fmt.Sprintf("directory = %q\nenvironment = { PATH = \"/nonexistent:\" }\n", dir):       false,
		fmt.Sprintf("directory = %q\nenvironment = { PATH = \"/nonexistent:.\" }\n", dir):      false,
		fmt.Sprintf("environment_file = %q\n", filepath.Dir(env)):                              true,  // sets "env"
		fmt.Sprintf("environment_file = %q\n", filepath.Join(dir, "absent")):                   false, // unknown
	} {
		got := strings.Contains(warned(load(t, "[program.web]\ncommand = [\"server\"]\n"+text)),
			"program.web.command: there is no server in PATH")
		if got != expected {
			t.Errorf("%q: warned is %v, want %v", text, got, expected)
		}
	}
}

func TestCommandsBesideTheWorkerAreLookedUpToo(t *testing.T) {
	t.Setenv("PATH", binaries(t))
	got := warned(load(t, `[program.web]
command = ["server"]
reload.preflight = ["a"]
ready = { method = "exec", command = ["b"] }
health = { method = "exec", command = ["c"] }
hooks = { after_reload = ["d"], reload_failed = ["e"], worker_crashed = ["server"] }
`))
	for _, want := range []string{"reload.preflight: there is no a ", "ready.command: there is no b ",
		"health.command: there is no c ",
		"hooks.after_reload: there is no d ", "hooks.reload_failed: there is no e "} {
		if !strings.Contains(got, "program.web."+want) {
			t.Errorf("warnings are\n%s\nwithout %s", got, want)
		}
	}
	if strings.Count(got, "\n") != 4 {
		t.Errorf("warnings are\n%s", got)
	}
}
