package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// released is a repository of its own with scripts/release, whose scripts/package only notes what it was asked for.
type released struct {
	*testing.T
	dir string
}

func releasing(t *testing.T, changelog string) *released {
	t.Helper()
	t.Parallel()
	lab.Need(t, "bash")
	lab.Need(t, "git")
	r := &released{t, t.TempDir()}
	script, err := os.ReadFile("../scripts/release")
	lab.Must(t, err)
	r.write("scripts/release", string(script))
	r.write("scripts/package", "#!/bin/sh\nset -e\n[ ! -e fails ]\nmkdir -p \"$1\"\n"+
		"echo $VERSION of $COMMIT >\"$1/made\"\n"+
		"cd \"$1\"\nsha256sum made >SHA256SUMS\n")
	r.write("CHANGELOG.md", changelog)
	r.write("go.mod", "module github.com/you/supervisord\n")
	r.write(".gitignore", "dist\n")
	r.git("init", "-q", "-b", "main")
	r.commit()
	return r
}

func (r *released) write(name, text string) {
	r.Helper()
	lab.Must(r.T, os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755))
	lab.Must(r.T, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o755))
}

func (r *released) read(name string) string {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	lab.Must(r.T, err)
	return string(text)
}

func (r *released) run(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = r.dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (r *released) git(args ...string) string {
	r.Helper()
	out, err := r.run("git", args...)
	if err != nil {
		r.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return out
}

func (r *released) commit() { r.Helper(); r.git("add", "-A"); r.git("commit", "-q", "-m", "a change") }

// refuses fails the test unless a release is refused with this text and leaves nothing.
func (r *released) refuses(says string, args ...string) {
	r.Helper()
	before := r.git("rev-parse", "HEAD") + r.git("tag") + r.git("worktree", "list") + r.git("status", "--porcelain")
	out, err := r.run("scripts/release", args...)
	if err == nil || !strings.Contains(out, says) {
		r.Errorf("release %s: %v: %s, without %q", args, err, out, says)
	}
	after := r.git("rev-parse", "HEAD") + r.git("tag") + r.git("worktree", "list") + r.git("status", "--porcelain")
	if before != after {
		r.Errorf("release %s left\n%s\nof\n%s", args, after, before)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "dist")); err == nil {
		r.Errorf("release %s left a directory", args)
	}
}

const unreleased = "# Changelog\n\n## [Unreleased] (1.0.0-dev)\n\nThe first release will be 1.0.0.\n\n### Added\n\n" +
	"- A thing.\n"

func TestReleaseMakesTagChangelogAndPackages(t *testing.T) {
	r := releasing(t, unreleased)
	out, err := r.run("scripts/release", "1.0.0")
	if err != nil || !strings.Contains(out, "git push --atomic origin main v1.0.0") {
		t.Fatalf("%v: %s", err, out)
	}
	date := r.git("log", "-1", "--date=format:%Y-%m-%d", "--format=%cd", "v1.0.0")
	want := "# Changelog\n\n## [Unreleased]\n\n## [1.0.0] - " + date + "\n\n### Added\n\n- A thing.\n"
	if got := r.read("CHANGELOG.md"); got != want {
		t.Errorf("the changelog is\n%s\nwant\n%s", got, want)
	}
	head := r.git("rev-parse", "HEAD")
	if got := r.git("rev-parse", "v1.0.0^{commit}"); got != head {
		t.Errorf("the tag names %s, the branch %s", got, head)
	}
	if got := r.read("dist/1.0.0/made"); got != "1.0.0 of "+head+"\n" {
		t.Errorf("the packages are %q", got)
	}
	if got := r.read("dist/1.0.0/NOTES.md"); !strings.HasSuffix(got, "### Added\n\n- A thing.\n") ||
		strings.Contains(got, "first release") {
		t.Errorf("the notes are %q", got)
	}
	if sums := r.read("dist/1.0.0/SHA256SUMS"); !strings.Contains(sums, "  made\n") ||
		!strings.Contains(sums, "  NOTES.md\n") {
		t.Errorf("the checksums are %q", sums)
	}
	if got := r.git("status", "--porcelain") + r.git("worktree", "prune", "--dry-run", "-v"); got != "" {
		t.Errorf("left: %s", got)
	}

	r.write(".gitignore", "dist*\n") // so that refuses sees only what a refusal leaves
	r.commit()
	lab.Must(t, os.Rename(filepath.Join(r.dir, "dist"), filepath.Join(r.dir, "dist-old")))
	r.refuses("nothing below", "1.0.1")
	r.write("CHANGELOG.md", strings.Replace(want, "[Unreleased]\n", "[Unreleased]\n\n- More.\n", 1))
	r.commit()
	r.refuses("exists", "v1.0.0")
	r.refuses("older than the newest tag, v1.0.0", "1.0.0-rc.1")
	r.refuses("older than the newest tag", "0.9.9")
	if out, err := r.run("scripts/release", "1.10.0"); err != nil || r.git("describe") != "v1.10.0" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestReleaseIsRefusedWithoutATrace(t *testing.T) {
	r := releasing(t, unreleased)
	for _, bad := range []string{"1.0", "1.0.0.0", "01.0.0", "1.0.0-", "next"} {
		r.refuses("is not a version", bad)
	}
	r.write("new", "")
	r.refuses("the tree has changes: commit or remove them first:\n?? new", "1.0.0")
	lab.Must(t, os.Rename(filepath.Join(r.dir, "new"), filepath.Join(r.dir, "fails")))
	r.commit()
	r.refuses("", "1.0.0")
	r.git("checkout", "-q", "--detach")
	r.refuses("no branch", "1.0.0")
}
