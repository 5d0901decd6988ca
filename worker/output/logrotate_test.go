package output

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

const mib = 1 << 20

// list returns the names in a directory, without the log itself.
func list(t *testing.T, path string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(filepath.Dir(path)))(t)
	var names []string
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestLogIsRotatedBySizeAndTheOldestGo(t *testing.T) {
	said := new(complaints)
	path := filepath.Join(t.TempDir(), "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, MaxFiles: 2}, said)
	for range 5 {
		someLines(log, 1024)
		written(t, log)
	}
	names := list(t, path)
	if len(names) != 2 {
		t.Errorf("%q", names)
	}
	for _, name := range append(names, "web.log") {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		if err != nil || info.Size() != mib || info.Mode() != 0o640 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	said.nothing(t)
}

func TestRotatedFilesKeepOwnerAndMode(t *testing.T) {
	h := hostile(t, 0o755, owner2)
	path := h.path("web.log")
	h.owns(owner2, "web.log", os.WriteFile(path, []byte(strings.Repeat("x", mib-1)+"\n"), 0o604))
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, Owner: owner2}, new(complaints))
	log.Put([]byte("new\n"))
	holds(t, log, "new\n")
	names := append(list(t, path), "web.log")
	if len(names) != 2 {
		t.Errorf("%q", names)
	}
	for _, name := range names {
		info := must.Get(os.Stat(h.path(name)))(t)
		if st := info.Sys().(*syscall.Stat_t); info.Mode() != 0o604 || st.Uid != owner2 || st.Gid != owner2 {
			t.Errorf("%s: %v, %d:%d", name, info.Mode(), st.Uid, st.Gid)
		}
	}
}

func TestRotationNeverTouchesTheTargetOfALink(t *testing.T) {
	h := hostile(t, 0o755, owner2)
	must.Do(t, os.Link(h.secret, h.path("web-2026-01-01T00-00-00.001.log")))
	must.Do(t, os.Symlink(h.secret, h.path("web-2026-01-01T00-00-00.002.log")))
	path := h.path("web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, MaxFiles: 1, Owner: owner2}, new(complaints))
	someLines(log, 1025)
	written(t, log)
	if names := list(t, path); len(names) != 1 || strings.HasPrefix(names[0], "web-2026-01-01") {
		t.Errorf("%q", names)
	}
	h.untouched()
}

func TestLogRotatedByAnotherProgramIsReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib}, new(complaints))
	someLines(log, 1024)
	written(t, log)
	must.Do(t, os.Rename(path, path+".1"))
	log.Put([]byte("new\n"))
	holds(t, log, "new\n")
	if got := list(t, path); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestLogThatCannotBeRotatedGrowsAndReportsItOnce(t *testing.T) {
	said := new(complaints)
	dir := filepath.Join(t.TempDir(), "d")
	os.Mkdir(dir, 0o755)
	path := filepath.Join(dir, "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib}, said)
	someLines(log, 1024)
	written(t, log)
	os.Rename(dir, dir+".moved")
	for range 3 {
		someLines(log, 1)
		must.Do(t, log.Flush(t.Context()))
	}
	if got := said.all(); len(got) != 1 || !strings.HasPrefix(got[0], "cannot rotate log file; it grows: ") {
		t.Errorf("%q", got)
	}
	if info, err := os.Stat(filepath.Join(dir+".moved", "web.log")); err != nil || info.Size() != mib+3*1024 {
		t.Errorf("%v %v", info, err)
	}
}

func TestOtherFilesAreNotTakenForRotatedOnes(t *testing.T) {
	s := LogFileSpec{Path: "/x/web.log"}
	for name, want := range map[string]bool{
		"web-2026-01-31T12-00-00.000.log": true, "web-2026-01-31T12-00-00.000-other.log": false,
		"web-2026-01-31.log": false, "web-api-2026-01-31T12-00-00.000.log": false,
		"web.log": false, "web.log.1": false, "web-.log": false,
	} {
		if ok := s.isRotated(name); ok != want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}
