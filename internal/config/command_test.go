package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"example.org/supervisord/internal/lab/must"
)

// executables are the files that testdata/commands is about, in a directory that is PATH.
var executables = map[string]string{"server": "#!/bin/sh\n", "plain": "", "folder/x": "", "bash": "#!/bin/sh\n",
	"closed/python": "", "own": "", "venv/web": "#!DIR/venv/python -u\n", "fine": "#! DIR/server\n",
	"found": "#!/usr/bin/env own\n", "server.env": "PATH=DIR\n", "envdir/PATH": "DIR\n"}

// TestCommands reads testdata/commands; with -rewrite it writes the answers. A line has keys of [program.web] with ;;
// between them, and a line of the answer what check says of them. DIR is the directory of executables.
func TestCommands(t *testing.T) {
	dir := must.Files(t, nil)
	for name, text := range executables {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o755))
	}
	for link, to := range map[string]string{"sh": "server", "linked": "bash", "venv/python": "../closed/python"} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "own": 0o700, "closed": 0o700} {
		must.Do(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		must.Do(t, os.Chmod(path, 0o755)) // nobody can look
	}
	datadriven.Walk(t, "testdata/commands", func(t *testing.T, path string) {
		if strings.HasSuffix(path, "root.txt") && os.Geteuid() != 0 {
			t.Skip("needs root, to ask as somebody else")
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Setenv("PATH", dir)
			if d.HasArg("elsewhere") {
				t.Setenv("PATH", "/nonexistent")
			}
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				keys := strings.NewReplacer("DIR", dir, ";;", "\n").Replace(line)
				var said []string
				for _, p := range load(t, "[program.web]\n"+keys).Check() {
					if !strings.HasSuffix(p.Key, "ready.method") && (!strings.Contains(p.Key, ".limits.") || p.IsError()) {
						p.File = ""
						said = append(said, strings.ReplaceAll(strings.TrimPrefix(p.String(), ":"), dir, "DIR"))
					}
				}
				fmt.Fprintln(&b, strings.Join(append(said, "-")[:max(1, len(said))], "; "))
			}
			return b.String()
		})
	})
}
