package watch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"example.org/supervisord/internal/lab/must"
)

// TestLostEventsMakeEverythingBeLookedAt fills the kernel's queue while it is not read, and then changes the file.
func TestLostEventsMakeEverythingBeLookedAt(t *testing.T) {
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	watched := filepath.Join(dir, "c.toml")
	l := newGroups()
	must.Do(t, l.set(map[string][]string{"g": {watched}}))
	fill(t, filepath.Join(dir, "x"), filepath.Join(dir, "y"))
	must.Do(t, os.WriteFile(watched, []byte("x"), 0o600))
	w := watcher(l)
	defer w.Close() //nolint:errcheck // it returns none
	select {
	case <-w.Changes():
	case err := <-w.Errors():
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the change was lost")
	}
}

// fill creates more events than the kernel's queue holds, for two unwatched files in turn, because the kernel merges
// equal events.
func fill(t *testing.T, paths ...string) {
	text := must.Get(os.ReadFile("/proc/sys/fs/inotify/max_queued_events"))(t)
	limit := must.Get(strconv.Atoi(strings.TrimSpace(string(text))))(t)
	var files []*os.File
	for _, path := range paths {
		f := must.Get(os.Create(path))(t)
		defer f.Close()
		files = append(files, f)
	}
	for i := range 2 * limit {
		if _, err := files[i%len(files)].WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOverflowIsNotAnError: an overflow only causes a check of everything.
func TestOverflowIsNotAnError(t *testing.T) {
	l := newGroups()
	defer l.close()
	if err := l.failed(fsnotify.ErrEventOverflow); err != nil || l.since.IsZero() {
		t.Errorf("got %v, armed %v", err, !l.since.IsZero())
	}
	if err := l.failed(syscall.EIO); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
}

// TestTooFewWatches runs this test again in a user namespace, where the limits of inotify can be lowered.
func TestTooFewWatches(t *testing.T) {
	if limit := os.Getenv("WATCH_TEST_LIMIT"); limit != "" {
		name, value, _ := strings.Cut(limit, "=")
		if err := os.WriteFile("/proc/sys/user/"+name, []byte(value), 0o644); err != nil {
			fmt.Println("SKIP", err)
			return
		}
		fmt.Println(starved(t, name))
		return
	}
	for name, c := range map[string]struct{ limit, want string }{
		"watches":   {"max_inotify_watches=2", "max_user_watches"},
		"instances": {"max_inotify_instances=0", "max_user_instances"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestTooFewWatches$")
			cmd.Env = append(os.Environ(), "WATCH_TEST_LIMIT="+c.limit)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || strings.Contains(string(out), "SKIP") {
				t.Skipf("no user namespaces here: %v %s", err, out)
			}
			if err != nil || !strings.Contains(string(out), c.want) || !strings.Contains(string(out), "recovered") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// starved watches with too low a limit, then raises it, and prints the result.
func starved(t *testing.T, name string) string {
	dir := t.TempDir()
	w := New()
	defer w.Close() //nolint:errcheck // it returns none
	groups := map[string][]string{"g": {filepath.Join(dir, "c.toml")}}
	failed := w.Set(groups)
	if failed == nil {
		t.Fatal("no error with too low a limit")
	}
	must.Do(t, os.WriteFile("/proc/sys/user/"+name, []byte("1000"), 0o644))
	must.Do(t, w.Set(groups))
	must.Do(t, os.WriteFile(filepath.Join(dir, "c.toml"), []byte("x"), 0o600))
	select {
	case <-w.Changes():
		return failed.Error() + "\nrecovered"
	case <-time.After(time.Minute):
		return failed.Error() + "\nnothing seen"
	}
}
