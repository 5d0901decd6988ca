package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrapperIsANoteWithTheServersOwnCommand: a wrapper works, and check says what it costs.
func TestWrapperIsANoteWithTheServersOwnCommand(t *testing.T) {
	bin := binaries(t)
	t.Setenv("PATH", bin)
	for link, shell := range map[string]string{"sh": "server", "linked": "bash"} {
		if err := os.Symlink(shell, filepath.Join(bin, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "bash"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(bin, ".venv/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, ".venv/bin/gunicorn"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const scripts = `{"scripts": {"start": "node server.js --port 80", "dev": "next dev", "build": "tsc && node x"}}`
	if err := os.WriteFile(filepath.Join(bin, "package.json"), []byte(scripts), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		`["npm", "start"]`:                             `: write command = ["node", "server.js", "--port", "80"]`,
		`["/usr/bin/yarn", "run", "dev"]`:              `: write command = ["./node_modules/.bin/next", "dev"]`,
		`["pnpm", "run", "build"]`:                     `: write the server's own command, such as`,
		`["npx", "next"]`:                              `: write the server's own command, such as`,
		`["npm", "missing"]`:                           `: write the server's own command, such as`,
		`["poetry", "run", "gunicorn"]`:                `: write command = [".venv/bin/gunicorn"]`,
		`["poetry", "version"]`:                        "",
		`["uv", "run", "gunicorn", "app:app"]`:         `: write command = [".venv/bin/gunicorn", "app:app"]`,
		`["uv", "run", "--", "gunicorn"]`:              `: write command = [".venv/bin/gunicorn"]`,
		`["uv", "run", "--frozen", "gunicorn"]`:        "`uv run which PROGRAM` prints",
		`["uv", "--version"]`:                          "",
		`["pdm", "run", "start"]`:                      "pdm stays as the worker, and the server is its child",
		`["pipenv", "run", "gunicorn"]`:                "pipenv starts first at each start of a worker",
		`["hatch", "run", "serve"]`:                    "`hatch run which PROGRAM` prints",
		`["bun", "run", "start"]`:                      `: write command = ["node", "server.js", "--port", "80"]`,
		`["bun", "server.ts"]`:                         "",
		`["deno", "task", "start"]`:                    `"deno", "run", "main.ts"`,
		`["go", "run", "."]`:                           "with `go build`",
		`["cargo", "run"]`:                             "and then becomes the server: build it in a deploy",
		`["./gradlew", "bootRun"]`:                     `"java", "-jar"`,
		`["sudo", "-u", "web", "./web"]`:               `: write user = "NAME"`,
		`["doppler", "run", "--", "./web"]`:            `environment_file = ["web.env"]`,
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
			"\"\nlisten = [\":80\"]\n").Wrapped() {
			got += note.String()
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
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	put("closed/python", "", 0o755)
	put("own", "", 0o700)
	put("open", "", 0o755)
	put("venv/web", "#!"+dir+"/venv/python -u\n", 0o755)
	put("fine", "#! "+dir+"/open\n", 0o755)
	put("secret", "#!"+dir+"/open\n", 0o711)
	put("found", "#!/usr/bin/env own\n", 0o755)
	if err := os.Symlink("../closed/python", filepath.Join(dir, "venv/python")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for command, want := range map[string]string{
		"open": "", "./fine": "", "./absent": "",
		"./own": "nobody may not execute DIR/own: no generation starts with it",
		"./venv/web": "nobody may not execute DIR/venv/python, the interpreter of DIR/venv/web: DIR/closed is closed to " +
			"that user: ",
		"./secret": "nobody may not read DIR/secret: ",
		"./found":  "nobody may not execute DIR/own, the interpreter of DIR/found: ",
	} {
		got := ""
		for _, w := range load(t, "[program.web]\ncommand = [\""+command+"\"]\ndirectory = \""+dir+
			"\"\nuser = \"nobody\"\n").Unexecutable() {
			got += strings.ReplaceAll(w.What+": "+w.Remedy, dir, "DIR")
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: the warning is %q, want %q", command, got, want)
		}
	}
	if uid := os.Geteuid(); uid != 0 {
		t.Errorf("the process has become %d", uid)
	}
}
