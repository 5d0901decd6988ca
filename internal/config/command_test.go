package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/lab/must"
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
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode))
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
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
	must.Do(t, os.WriteFile(env, []byte("PATH="+dir+"\n"), 0o600))
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

// TestWrapperIsANoteWithTheServersOwnCommand: a wrapper works, and check says what it costs.
func TestWrapperIsANoteWithTheServersOwnCommand(t *testing.T) {
	bin := binaries(t)
	t.Setenv("PATH", bin)
	for link, shell := range map[string]string{"sh": "server", "linked": "bash"} {
		must.Do(t, os.Symlink(shell, filepath.Join(bin, link)))
	}
	must.Do(t, os.WriteFile(filepath.Join(bin, "bash"), []byte("#!/bin/sh\n"), 0o755))
	for command, want := range map[string]string{
		`["npm", "start"]`:                             "npm stays as the worker",
		`["/usr/bin/yarn", "run", "dev"]`:              `: write the server's own command, such as`,
		`["poetry", "run", "gunicorn"]`:                "", // it becomes the server
		`["uv", "run", "gunicorn", "app:app"]`:         `such as command = [".venv/bin/gunicorn"]`,
		`["uv", "--version"]`:                          "",
		`["bun", "run", "start"]`:                      "such as command = ",
		`["bun", "server.ts"]`:                         "",
		`["go", "run", "."]`:                           "with `go build`",
		`["sudo", "-u", "web", "./web"]`:               `: write user = "NAME"`,
		`["bundle", "exec", "puma"]`:                   "", // it becomes the server, and there is no other way
		`["sh", "-c", "cd /srv && ./web", "a"]`:        `: write command = ["sh", "-c", "cd /srv && exec ./web", "a"]`,
		`["sh", "-ec", "./web"]`:                       `: write command = ["sh", "-ec", "exec ./web"]`,
		`["sh", "-c", "cd /srv; exec ./web"]`:          "",
		`["sh", "-c", "./web | tee log"]`:              "", // there is no other way to write this
		`["sh", "run.sh"]`:                             "",
		`["node", "server.js"]`:                        "",
		`["` + bin + `/linked", "-c", "./a && ./web"]`: "", // bash replaces itself
	} {
		got := ""
		for _, note := range load(t, "[program.web]\ncommand = "+command+"\ndirectory = \""+bin+
			"\"\nlisten = [\":80\"]\n").Check() {
			if note.Severity == document.Note {
				got += note.String()
			}
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) ||
			got != "" && !strings.Contains(got, "c.toml:2:1: note: program.web.command: ") {
			t.Errorf("%s: the note is %q, want %q", command, got, want)
		}
	}
}

// TestWhatTheUserMayNotExecuteIsAWarning: root may execute everything, and `check` runs as root.
func TestWhatTheUserMayNotExecuteIsAWarning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to ask as somebody else")
	}
	dir := t.TempDir()
	for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		must.Do(t, os.Chmod(path, 0o755))
	}
	for name, text := range map[string]string{"closed/python": "", "own": "", "open": "",
		"venv/web": "#!" + dir + "/venv/python -u\n", "fine": "#! " + dir + "/open\n", "found": "#!/usr/bin/env own\n"} {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o755))
		must.Do(t, os.Chmod(path, 0o755))
	}
	must.Do(t, os.Symlink("../closed/python", filepath.Join(dir, "venv/python")))
	for _, name := range []string{"own", "closed"} {
		must.Do(t, os.Chmod(filepath.Join(dir, name), 0o700))
	}
	t.Setenv("PATH", dir)
	for command, want := range map[string]string{
		"open": "", "./fine": "", "./absent": "",
		"./own":      "nobody may not execute DIR/own: no generation starts with it",
		"./venv/web": "nobody may not execute DIR/venv/python, the interpreter of DIR/venv/web: ",
		"./found":    "nobody may not execute DIR/own, the interpreter of DIR/found: ",
	} {
		got := ""
		for _, w := range load(t, "[program.web]\ncommand = [\""+command+"\"]\ndirectory = \""+dir+
			"\"\nuser = \"nobody\"\n").Check() {
			if strings.Contains(w.What, "may not execute") {
				got += strings.ReplaceAll(w.What+": "+w.Remedy, dir, "DIR")
			}
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: the warning is %q, want %q", command, got, want)
		}
	}
	if uid := os.Geteuid(); uid != 0 {
		t.Errorf("the process has become %d", uid)
	}
}
