package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// fixture is a state of a private directory, which is looked at by the test itself, at each event that matters.
type fixture struct {
	*testing.T
	dir string
	s   *groups
	at  string // the line of the story
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	f := &fixture{T: t, dir: dir, s: newGroups()}
	t.Cleanup(f.s.close)
	return f
}

// TestStories plays the stories in testdata: what happens in the directory, a line for each step, and what is seen of
// it. "watch a" watches a path as the group g, and "watch g=a other=b" two groups.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		newFixture(t).play(string(must.Get(os.ReadFile(path))(t)))
	})
}

// play carries out steps, a line each. What follows # is a comment.
func (f *fixture) play(steps string) {
	f.Helper()
	number := 0
	for line := range strings.Lines(steps) {
		number++
		line, _, _ = strings.Cut(line, "#")
		f.at = fmt.Sprintf("line %d, %s", number, strings.TrimSpace(line))
		if words := strings.Fields(line); len(words) > 0 {
			f.carryOut(words[0], words[1:])
		}
	}
}

func (f *fixture) carryOut(what string, words []string) {
	f.Helper()
	step := steps[what]
	if step == nil {
		f.Fatalf("%s: unknown step", f.at)
	}
	words = append(words, "", "")
	f.check(step(f, f.path(words[0]), f.path(words[1]), words[:len(words)-2]))
}

// steps are what a line of a story can begin with. a and b are the paths that follow, in the directory.
var steps = map[string]func(f *fixture, a, b string, words []string) error{
	"write": func(f *fixture, a, _ string, words []string) error { return f.write(a, strings.Join(words[1:], " ")) },
	"replace": func(f *fixture, a, _ string, words []string) error { // by a file that is written beside it and renamed
		return errors.Join(f.write(a+".tmp", strings.Join(words[1:], " ")), os.Rename(a+".tmp", a))
	},
	"replace-large": func(f *fixture, a, _ string, _ []string) error { // by one that is too large to be read
		return errors.Join(f.write(a+".tmp", strings.Repeat("x", maxContent+1)), os.Rename(a+".tmp", a))
	},
	"link": func(_ *fixture, _, b string, words []string) error { return os.Symlink(words[0], b) },
	"swap": func(f *fixture, a, b string, words []string) error { // by a rename, as `ln -sfn` does
		target := words[0]
		if filepath.IsAbs(target) { // in the directory
			target = a
		}
		return errors.Join(os.Symlink(target, b+".new"), os.Rename(b+".new", b))
	},
	"mkdir":  func(_ *fixture, a, _ string, _ []string) error { return os.Mkdir(a, 0o755) },
	"move":   func(_ *fixture, a, b string, _ []string) error { return os.Rename(a, b) },
	"remove": func(_ *fixture, a, _ string, _ []string) error { return os.RemoveAll(a) },
	"chmod":  func(_ *fixture, a, _ string, _ []string) error { return os.Chmod(a, 0o711) },
	"touch":  func(_ *fixture, a, _ string, _ []string) error { return os.Chtimes(a, time.Now(), time.Now()) },
	"watch":  func(f *fixture, _, _ string, words []string) error { return f.watch(words) },
	"bounds": func(f *fixture, _, _ string, words []string) (err error) {
		f.s.most, err = strconv.Atoi(words[0])
		return err
	},
	"refuses": func(f *fixture, _, _ string, words []string) error { // to watch a path: because
		if err, why := f.watch(words[:1]), strings.Join(words[1:], " "); err == nil || !strings.Contains(err.Error(), why) {
			f.Fatalf("%s: %v", f.at, err)
		}
		return nil
	},
	"changes": func(f *fixture, _, _ string, words []string) error { f.changes(words); return nil },
	"nothing": func(f *fixture, _, _ string, _ []string) error { // has changed
		err := f.s.look()
		if len(f.s.changed) > 0 {
			f.Fatalf("%s: %v has changed", f.at, f.s.changed)
		}
		return err
	},
	"closed": func(f *fixture, _, _ string, _ []string) error {
		if f.s.events() != nil {
			return errors.New("something is open")
		}
		return nil
	},
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", f.at, err)
	}
}

func (f *fixture) write(path, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// watch watches paths in the directory, as "path" or "group=path".
func (f *fixture) watch(words []string) error {
	all := map[string][]string{}
	for _, w := range words {
		group, path, named := strings.Cut(w, "=")
		if !named {
			group, path = "g", w
		}
		all[group] = append(all[group], f.path(path))
	}
	return f.s.set(all)
}

// changes waits for events after which these paths have changed, as "path" or "group=path", or something in group g.
func (f *fixture) changes(words []string) {
	f.Helper()
	want := map[string]string{}
	for _, w := range words {
		group, path, _ := strings.Cut(w, "=")
		want[group] = f.path(path)
	}
	late := time.After(time.Minute)
	for len(f.s.changed) < max(1, len(want)) {
		select {
		case e := <-f.s.events():
			f.s.seen(e)
		case err := <-f.s.failures:
			f.check(f.s.failed(err))
		case <-late:
			f.Fatalf("%s: no change was seen, but of %v", f.at, f.s.changed)
		}
		if !f.s.since.IsZero() {
			f.check(f.s.look())
		}
	}
	if got := f.s.changed; len(want) == 0 && (len(got) != 1 || got["g"] == "") || len(want) > 0 && !maps.Equal(got, want) {
		f.Fatalf("%s: %v changed", f.at, got)
	}
	f.s.changed = map[string]string{}
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

func TestMovedAndRemovedDirectoriesDoNotBlock(t *testing.T) { // see groups.open
	f := newFixture(t)
	f.play("write d/x 1\n watch d/x")
	for range 25 { // watches are added and removed meanwhile
		f.play("move d old\n remove old\n write d/x 1\n watch d/x d/y")
		f.play("move d old\n remove old\n write d/x 1\n watch d/x")
	}
	f.check(f.s.look())
	f.s.changed = map[string]string{}
	f.play("replace d/x 2\n changes")
}

// leftover.Main fails if a descriptor or a goroutine is left.
func TestCloseLeavesNothingAndNothingIsWatchedAfterwards(t *testing.T) {
	w := New()
	must.Do(t, w.Set(map[string][]string{"g": {t.TempDir()}}))
	must.Do(t, w.Close())
	if err := w.Set(nil); err != errClosed {
		t.Errorf("got %v", err)
	}
}
