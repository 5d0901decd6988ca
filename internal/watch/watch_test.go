package watch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// fixture is a state of a private directory, which is looked at by the test itself, at each event that matters.
type fixture struct {
	*testing.T
	dir string
	s   *groups
}

// newFixture makes a directory with these files (name, content, …) and watches path in it as the group "g".
func newFixture(t *testing.T, path string, files ...string) *fixture {
	t.Helper()
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, dir: dir, s: newGroups()}
	t.Cleanup(f.s.close)
	for i := 0; i < len(files); i += 2 {
		f.write(files[i], files[i+1])
	}
	f.set("g", path)
	return f
}

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

// set watches paths in the directory as one group.
func (f *fixture) set(group string, paths ...string) {
	f.Helper()
	all := slices.Clone(paths)
	for i, p := range all {
		all[i] = f.path(p)
	}
	f.check(f.s.set(map[string][]string{group: all}))
}

func (f *fixture) write(name, text string) {
	f.Helper()
	f.check(os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	f.check(os.WriteFile(f.path(name), []byte(text), 0o644))
}

// replace writes a file beside name and renames it to name.
func (f *fixture) replace(name, text string) {
	f.Helper()
	f.write(name+".tmp", text)
	f.check(os.Rename(f.path(name+".tmp"), f.path(name)))
}

// swap makes link point to target by a rename, as `ln -sfn` does.
func (f *fixture) swap(target, link string) {
	f.Helper()
	f.check(os.Symlink(target, f.path(link)+".new"))
	f.check(os.Rename(f.path(link)+".new", f.path(link)))
}

// changes waits for an event after which the group "g", and no other, has changed.
func (f *fixture) changes() {
	f.Helper()
	if got := f.seen(); len(got) != 1 || got["g"] == "" {
		f.Fatalf("%v changed", got)
	}
	f.s.changed = map[string]string{}
}

// seen waits for an event after which something has changed.
func (f *fixture) seen() map[string]string {
	f.Helper()
	late := time.After(time.Minute)
	for len(f.s.changed) == 0 {
		select {
		case e := <-f.s.events():
			f.s.seen(e)
		case err := <-f.s.failures:
			f.check(f.s.failed(err))
		case <-late:
			f.Fatal("no change was seen")
		}
		if !f.s.since.IsZero() {
			f.check(f.s.look())
		}
	}
	return f.s.changed
}

// nothing looks, and sees no change.
func (f *fixture) nothing() {
	f.Helper()
	if f.check(f.s.look()); len(f.s.changed) > 0 {
		f.Fatalf("%v has changed", f.s.changed)
	}
}

func TestReplacedFileIsSeenEachTime(t *testing.T) {
	f := newFixture(t, "c.toml", "c.toml", "1")
	for i := range 3 {
		f.replace("c.toml", fmt.Sprint("new ", i))
		f.changes()
	}
}

// arms returns when files are looked at for so many events, the first at once and each other one after a pause.
func arms(t *testing.T, events int, pause time.Duration) (looks []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s, start := newGroups(), time.Now()
		s.arm()
		for event := time.NewTicker(pause); ; {
			select {
			case <-event.C:
				if events--; events > 0 {
					s.arm()
				}
			case <-s.timer.C:
				s.since = time.Time{} // as look does
				looks = append(looks, time.Since(start))
			case <-time.After(time.Hour):
				return
			}
			if events <= 0 {
				event.Stop()
			}
		}
	})
	return looks
}

func TestFileWrittenInPiecesIsLookedAtOnce(t *testing.T) {
	if got := arms(t, 3, quiet/2); !slices.Equal(got, []time.Duration{2 * quiet}) {
		t.Errorf("it is looked at after %s", got)
	}
}

func TestFileThatKeepsChangingIsLookedAt(t *testing.T) {
	if got := arms(t, int(patience/(quiet/2)), quiet/2); !slices.Equal(got, []time.Duration{patience}) {
		t.Errorf("it is looked at after %s", got)
	}
}

func TestInstalledFileIsSeen(t *testing.T) { // install(1) removes, creates, writes and changes the mode
	f := newFixture(t, "web", "web", "1")
	f.check(os.Remove(f.path("web")))
	f.write("web", "2")
	f.check(os.Chmod(f.path("web"), 0o755))
	f.changes()
}

func TestSameContentIsNotAChange(t *testing.T) {
	f := newFixture(t, "c.toml", "c.toml", "1")
	f.replace("c.toml", "1")
	f.check(os.Chmod(f.path("c.toml"), 0o600))
	f.check(os.Chtimes(f.path("c.toml"), time.Now(), time.Now()))
	f.write("other", "x")
	f.nothing()
}

func TestLargeFileIsKnownByInodeSizeAndTime(t *testing.T) {
	large := strings.Repeat("x", maxContent+1)
	f := newFixture(t, "web", "web", large)
	f.replace("web", large)
	f.changes()
}

func TestSwappedSymlinkIsSeen(t *testing.T) {
	f := newFixture(t, "none", "v1", "same", "v2", "same")
	f.swap("v1", "web")
	f.set("g", "web")
	f.swap("v2", "web")
	f.changes()
	f.write("v1", "not watched anymore")
	f.nothing()
	f.write("v2", "but here")
	f.changes()
}

func TestSwappedSymlinkAbovePathIsSeen(t *testing.T) {
	f := newFixture(t, "none", "releases/1/bin/web", "same", "releases/2/bin/web", "same")
	f.swap("releases/1", "current")
	f.set("g", "current/bin/web")
	f.swap(f.path("releases/2"), "current") // absolute this time
	f.changes()
	f.replace("releases/2/bin/web", "other")
	f.changes()
}

func TestExchangedDirectoryAbovePathIsSeen(t *testing.T) {
	f := newFixture(t, "app/bin/web", "app/bin/web", "1", "new/bin/web", "2")
	f.check(os.Rename(f.path("app"), f.path("old")))
	f.check(os.Rename(f.path("new"), f.path("app")))
	f.check(os.RemoveAll(f.path("old")))
	f.changes()
	f.replace("app/bin/web", "3")
	f.changes()
}

func TestUpdatedKubernetesVolumeIsSeen(t *testing.T) {
	for _, watched := range []string{"mnt/app.toml", "mnt"} {
		t.Run(watched, func(t *testing.T) {
			f := newFixture(t, "none", "mnt/..2024_1/app.toml", "1", "mnt/..2024_2/app.toml", "2")
			f.check(os.Symlink("..2024_1", f.path("mnt/..data")))
			f.check(os.Symlink("..data/app.toml", f.path("mnt/app.toml")))
			f.set("g", watched)
			f.check(os.Symlink("..2024_2", f.path("mnt/..data_tmp")))
			f.check(os.Rename(f.path("mnt/..data_tmp"), f.path("mnt/..data")))
			f.check(os.RemoveAll(f.path("mnt/..2024_1")))
			f.changes()
		})
	}
}

func TestDirectoryRemovedAndMadeAgainIsSeen(t *testing.T) {
	f := newFixture(t, "d/c.toml", "d/c.toml", "1")
	f.check(os.RemoveAll(f.path("d")))
	f.changes()
	f.write("d/c.toml", "2")
	f.changes()
	f.replace("d/c.toml", "3")
	f.changes()
}

func TestDirectoryRemovedAndMadeAgainAtOnceIsSeen(t *testing.T) {
	f := newFixture(t, "d", "d/c.toml", "1")
	for i := range 3 {
		f.check(os.RemoveAll(f.path("d")))
		f.write("d/c.toml", strings.Repeat("x", i+2))
		f.changes()
	}
	f.write("d/more", "x")
	f.changes()
}

func TestPathThatDoesNotExistYetIsSeen(t *testing.T) {
	f := newFixture(t, "a/b/c/web")
	f.check(os.Mkdir(f.path("a"), 0o755))
	f.changes() // the link now points one step further
	f.write("a/b/c/web", "1")
	f.changes()
	f.replace("a/b/c/web", "2")
	f.changes()
}

func TestEverythingInAWatchedDirectoryIsSeen(t *testing.T) {
	f := newFixture(t, "conf.d", "conf.d/a", "1")
	f.write("conf.d/b", "1")
	f.changes()
	f.write("conf.d/sub/deep/c", "1")
	f.changes()
	f.write("conf.d/sub/deep/c", "longer")
	f.changes()
	f.check(os.RemoveAll(f.path("conf.d/sub")))
	f.changes()
	f.write("conf.d/.b.swp", "an editor's")
	f.nothing()
}

func TestDirectoryBeyondTheBoundsIsAnError(t *testing.T) {
	f := newFixture(t, "none", "d/d/1", "", "d/d/2", "")
	f.s.most = 2
	err := f.s.set(map[string][]string{"g": {f.path("d")}})
	if err == nil || !strings.Contains(err.Error(), "more than 2 entries") {
		t.Errorf("got %v", err)
	}
	f.write("d/a", "what is within the bounds is seen anyway")
	f.changes()
}

func TestSymlinkLoopIsAnError(t *testing.T) {
	f := newFixture(t, "none")
	f.check(os.Symlink("b", f.path("a")))
	f.check(os.Symlink("a", f.path("b")))
	if err := f.s.set(map[string][]string{"g": {f.path("a")}}); err == nil ||
		!strings.Contains(err.Error(), "too many levels of symbolic links") {
		t.Errorf("got %v", err)
	}
	f.check(os.Remove(f.path("b")))
	f.write("b", "now it leads somewhere")
	f.changes()
}

func TestOnlyTheGroupThatChangedIsReported(t *testing.T) {
	f := newFixture(t, "none", "a", "1", "b", "1")
	f.check(f.s.set(map[string][]string{"g": {f.path("a")}, "other": {f.path("b")}}))
	f.replace("a", "2")
	f.changes()
	f.replace("a", "3")
	f.replace("b", "3")
	for len(f.seen()) < 2 {
		f.check(f.s.look())
	}
	if got := f.seen(); !maps.Equal(got, map[string]string{"g": f.path("a"), "other": f.path("b")}) {
		t.Errorf("%v changed", got)
	}
}

func TestSetKeepsUndeliveredChanges(t *testing.T) {
	f := newFixture(t, "a", "a", "1", "b", "1")
	f.replace("a", "2")
	f.check(f.s.set(map[string][]string{"g": {f.path("a")}, "other": {f.path("b")}}))
	f.changes()
	f.nothing()
}

func TestWithoutGroupsNothingIsOpen(t *testing.T) {
	f := newFixture(t, "a", "a", "1")
	f.check(f.s.set(nil))
	f.replace("a", "2")
	if f.nothing(); f.s.events() != nil {
		t.Error("something is open")
	}
	f.set("g", "a")
	f.replace("a", "3")
	f.changes()
}

func TestMovedAndRemovedDirectoriesDoNotBlock(t *testing.T) { // see groups.open
	f := newFixture(t, "d/x", "d/x", "1")
	for i := range 50 {
		f.check(os.Rename(f.path("d"), f.path("old")))
		f.check(os.RemoveAll(f.path("old")))
		f.write("d/x", "1")
		if i%2 == 0 {
			f.set("g", "d/x", "d/y") // adds and removes watches meanwhile
		} else {
			f.set("g", "d/x")
		}
	}
	f.nothingMore()
	f.replace("d/x", "2")
	f.changes()
}

// nothingMore forgets what has changed until now.
func (f *fixture) nothingMore() {
	f.check(f.s.look())
	f.s.changed = map[string]string{}
}

func TestSetAfterCloseIsAnError(t *testing.T) {
	w := New()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Set(nil); err != errClosed {
		t.Errorf("got %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		inotify := 0
		for _, e := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(target, "inotify") {
				inotify++
			}
		}
		return inotify
	}
	before := descriptors()
	w := New()
	if descriptors() != before {
		t.Error("a watcher of nothing has an inotify instance")
	}
	if err := w.Set(map[string][]string{"g": {dir}}); err != nil {
		t.Fatal(err)
	}
	if descriptors() != before+1 {
		t.Error("there is not just one inotify instance")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if descriptors() != before {
		t.Error("the inotify instance is still open")
	}
	// Close returns when its goroutines have said their last word, which is just before they end.
	all := make([]byte, 1<<20)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stacks := string(all[:runtime.Stack(all, true)])
		if !strings.Contains(stacks, "watch.(*Watcher).run") && !strings.Contains(stacks, "readEvents") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines are left:\n%s", stacks)
		}
	}
}
