package tests

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestManualPageOfTheConfigurationIsUpToDate(t *testing.T) {
	t.Parallel()
	lab.Need(t, "sh")
	if out, err := exec.Command("go", "tool", "-C", lab.Root("scripts/tools"), "-n",
		"go-md2man").CombinedOutput(); err != nil {
		t.Skipf("go-md2man cannot be fetched or built: %s", out)
	}
	made := filepath.Join(t.TempDir(), "supervisord.toml.5")
	if out, err := exec.Command(lab.Root("scripts/man"), made).CombinedOutput(); err != nil {
		t.Fatalf("scripts/man: %v: %s", err, out)
	}
	if lab.Text(made) != lab.Text(lab.Root("docs/supervisord.toml.5")) {
		t.Error("docs/supervisord.toml.5 is not what scripts/man makes of docs/configuration.md: run scripts/man")
	}
	lab.Need(t, "groff")
	if out, err := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z", made).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("groff: %v: %s", err, out)
	}
}

// copySource copies the source without build results into a directory.
func copySource(t *testing.T, to string) {
	t.Helper()
	if !lab.Exists(lab.Root(".git")) {
		t.Skip("this is not a git checkout, so the files of the repository are unknown")
	}
	lab.Need(t, "git")
	command := exec.Command("sh", "-c",
		`git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf `+
			`"%s\0" "$f"; done' sh | xargs -0 cp -P --parents -t "$1"`, "sh", to)
	command.Dir = lab.Root("")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestSetModulePathRenamesTheModuleThroughout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copySource(t, dir)
	old, err := exec.Command("go", "list", "-m").Output()
	lab.Must(t, err)
	in := func(name string, args ...string) string {
		t.Helper()
		command := exec.Command(name, args...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	in("scripts/set-module-path", "github.com/somebody/supervisord")
	if out, _ := exec.Command("grep", "-rlF", strings.TrimSpace(string(old)), dir).Output(); len(out) > 0 {
		t.Errorf("the old path is left in %s", out)
	}
	if out := in("gofmt", "-l", "."); out != "" {
		t.Errorf("not formatted: %s", out)
	}
	for _, module := range []string{".", "examples"} {
		in("go", "list", "-C", module, "-deps", "-test", "./...") // every import leads somewhere
		if lab.Long() {
			in("go", "vet", "-C", module, "./...")
		}
	}
	if out := in("scripts/set-module-path", "github.com/somebody/supervisord"); !strings.Contains(out, "already") {
		t.Errorf("the second time it says %s", out)
	}
	in("scripts/set-module-path", strings.TrimSpace(string(old)))
	if out, err := exec.Command("diff", "-r", "-x", ".git", lab.Root("internal"),
		dir+"/internal").CombinedOutput(); err != nil {
		t.Errorf("after renaming it back the source differs: %s", out)
	}
}
