package foreign

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { os.Exit(LeaveMain(m.Run)) }

// has reports whether a descriptor table contains a file.
func has(t *testing.T, table, path string) bool {
	t.Helper()
	entries := must.Get(os.ReadDir(table))(t)
	for _, e := range entries {
		if link, _ := os.Readlink(filepath.Join(table, e.Name())); link == path {
			return true
		}
	}
	return false
}

// unkillable are the signals that no thread can refuse.
const unkillable = 1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)

func TestDescriptorOfASeparateThreadIsNotInTheProcess(t *testing.T) {
	dir := t.TempDir()
	shared := must.Get(os.Create(filepath.Join(dir, "shared")))(t)
	defer shared.Close()
	own := filepath.Join(dir, "own")
	opened, seen := make(chan error), make(chan bool)
	inThread := make(chan bool, 2)
	masks := make(chan unix.Sigset_t, 1)
	go func() {
		err := StandApart()
		var mask unix.Sigset_t
		must.Do(t, unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask))
		masks <- mask
		var f *os.File
		if err == nil {
			f, err = os.Create(own)
		}
		if err == nil {
			inThread <- has(t, "/proc/thread-self/fd", own)
			inThread <- has(t, "/proc/thread-self/fd", shared.Name())
			defer f.Close()
		}
		opened <- err
		select { // the runtime uses this thread like any other
		case <-seen:
		case <-time.After(time.Minute):
		}
		close(opened)
	}()
	must.Do(t, <-opened)
	if !<-inThread || <-inThread {
		t.Error("the thread does not have its file, or it has one of the process")
	}
	if refused, all := <-masks, asynchronous(); refused.Val[0]&all.Val[0]&^unkillable != all.Val[0]&^unkillable {
		t.Errorf("the thread takes signals, whose handler would write to another file there: it refuses %x", refused.Val[0])
	}
	if has(t, "/proc/self/fd", own) || !has(t, "/proc/self/fd", shared.Name()) {
		t.Error("the process has the file of the thread, or has lost its own")
	}
	close(seen)
	<-opened
}

func TestLocalFileSystemsNeedNoThread(t *testing.T) {
	for path, want := range map[string]bool{"/proc": false, "/sys": true} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Skip(strings.TrimPrefix(err.Error(), "open "))
		}
		if got := MayHang(fd); got != want {
			t.Errorf("%s: %v", path, got)
		}
		unix.Close(fd)
	}
}
