package ready

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// made makes a directory with exactly this mode.
func made(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	must.Do(t, os.MkdirAll(path, 0o700))
	must.Do(t, os.Chmod(path, mode))
	return path
}

// TestRuntimeDirectoryThatOthersCanReplaceIsRefused: "" is a good one.
func TestRuntimeDirectoryThatOthersCanReplaceIsRefused(t *testing.T) {
	dir := t.TempDir()
	like := made(t, filepath.Join(dir, "tmp"), 0o777|os.ModeSticky) // like /tmp
	made(t, filepath.Join(dir, "own"), 0o755)
	link := filepath.Join(like, "link")
	must.Do(t, os.Symlink(filepath.Join(dir, "own"), link))
	own := filepath.Join(dir, "own-link")
	must.Do(t, os.Symlink("run", own))
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o644))
	for path, want := range map[string]string{
		made(t, filepath.Join(dir, "for-all"), 0o777):                        "everybody can write to the runtime directory",
		filepath.Join(made(t, filepath.Join(dir, "not-sticky"), 0o777), "x"): "",
		made(t, filepath.Join(dir, "not-sticky", "run"), 0o755):              "everybody can replace the runtime directory",
		made(t, filepath.Join(like, "for-all"), 0o777):                       "everybody can write to the runtime directory",
		link: "is a symlink where everybody can make one",
		file: "is not a directory",
		made(t, filepath.Join(dir, "run"), 0o755): "", made(t, filepath.Join(dir, "group"), 0o775): "",
		made(t, filepath.Join(like, "own"), 0o700): "", made(t, filepath.Join(like, "open"), 0o755): "",
		own: "", like: "", "/": "", filepath.Join(dir, "absent"): "",
	} {
		if err := CheckDirectory(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func TestRuntimeDirectoryOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	dir := made(t, filepath.Join(t.TempDir(), "run"), 0o755)
	must.Do(t, os.Chown(dir, 12346, -1))
	if err := PrepareDirectory(dir); err == nil || !strings.Contains(err.Error(), "belongs to user 12346") {
		t.Errorf("got %v", err)
	}
	like := made(t, filepath.Join(t.TempDir(), "tmp"), 0o777|os.ModeSticky)
	theirs := made(t, filepath.Join(like, "theirs"), 0o777|os.ModeSticky)
	must.Do(t, os.Chown(theirs, 12346, -1))
	if err := PrepareDirectory(made(t, filepath.Join(theirs, "ours"), 0o700)); err == nil ||
		!strings.Contains(err.Error(), theirs+" belongs to user 12346") {
		t.Errorf("in a directory of theirs: got %v", err)
	}
}

func TestRuntimeDirectoryIsMadeWithTheDirectoriesAboveIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	must.Do(t, PrepareDirectory(dir))
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if err := PrepareDirectory(dir); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

func TestDirectoriesOfDeadSupervisorsAreSwept(t *testing.T) {
	parent := t.TempDir()
	dead := must.Get(NewDirectory(parent))(t)
	stale, _, err := dead.Socket()
	must.Do(t, err)
	unix.Close(stale)
	held, heldPath, err := dead.Socket()
	must.Do(t, err)
	dead.lock.Close()
	d := must.Get(NewDirectory(parent))(t)
	if left, _ := filepath.Glob(dead.path + "/*"); len(left) != 1 || left[0] != heldPath {
		t.Errorf("left: %v; %s is still held", left, heldPath)
	}
	unix.Close(held)
	d2 := must.Get(NewDirectory(parent))(t)
	if _, err := os.Stat(dead.path); !os.IsNotExist(err) {
		t.Error("the directory of the dead one is still there")
	}
	if _, err := os.Stat(d.path); err != nil {
		t.Error("a directory in use was removed")
	}
	d.Remove()
	d2.Remove()
}
