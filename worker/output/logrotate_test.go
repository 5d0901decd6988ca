package output

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const mib = 1 << 20

// list returns the names in a directory, without the log itself.
func list(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			names = append(names, e.Name())
		}
	}
	return names
}

// unzipped returns the content of a compressed file.
func unzipped(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLogIsRotatedBySizeAndTheOldestGo(t *testing.T) {
	said := new(complaints)
	path := filepath.Join(t.TempDir(), "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, MaxFiles: 2, Compress: true}, said)
	for range 5 {
		someLines(log, 1024)
		written(t, log)
	}
	var names []string
	if !eventually(func() bool {
		names = list(t, path)
		return len(names) == 2 && !slices.ContainsFunc(names,
			func(n string) bool { return !strings.HasSuffix(n, "-size.log.gz") })
	}) {
		t.Errorf("%q", names)
	}
	for _, name := range names {
		if text := unzipped(t, filepath.Join(filepath.Dir(path), name)); len(text) != mib {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() != mib || info.Mode() != 0o640 {
		t.Errorf("%v %v", info, err)
	}
	if got := said.all(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestLogIsRotatedByAgeWithTheNextLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, MaxAge: time.Minute}, new(complaints))
	if due := log.sink.due(10, time.Now().Add(time.Hour)); due != "" {
		t.Errorf("an empty file is due by %s", due)
	}
	log.Put([]byte("old\n"))
	written(t, log)
	now := log.sink.file.opened
	for after, want := range map[time.Duration]string{59 * time.Second: "", time.Minute: "time"} {
		if due := log.sink.due(10, now.Add(after)); due != want {
			t.Errorf("after %s it is due by %q", after, due)
		}
	}
	if due := log.sink.due(mib, now); due != "size" {
		t.Errorf("due by %q", due)
	}
}

func TestRotatedFilesKeepOwnerAndMode(t *testing.T) {
	h := hostile(t, 0o755, owner2)
	path := h.path("web.log")
	h.must(os.WriteFile(path, []byte(strings.Repeat("x", mib-1)+"\n"), 0o604))
	h.as(owner2, "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, Compress: true, Owner: owner2}, new(complaints))
	log.Put([]byte("new\n"))
	if got := written(t, log); got != "new\n" {
		t.Errorf("%d bytes", len(got))
	}
	if !eventually(func() bool { n := list(t, path); return len(n) == 1 && strings.HasSuffix(n[0], ".gz") }) {
		t.Fatalf("%q", list(t, path))
	}
	for _, name := range append(list(t, path), "web.log") {
		info, err := os.Stat(h.path(name))
		h.must(err)
		if st := info.Sys().(*syscall.Stat_t); info.Mode() != 0o604 || st.Uid != owner2 || st.Gid != owner2 {
			t.Errorf("%s: %v, %d:%d", name, info.Mode(), st.Uid, st.Gid)
		}
	}
}

func TestRotationNeverTouchesTheTargetOfALink(t *testing.T) {
	h := hostile(t, 0o755, owner2)
	path, old := h.path("web.log"), h.path("web-2026-01-01T00-00-00.000-size.log")
	h.must(os.WriteFile(old, []byte("old\n"), 0o666))
	h.must(os.Chmod(old, 0o666))
	linked := h.path("web-2026-01-01T00-00-00.001-size.log")
	h.must(os.Link(h.secret, linked))
	h.must(os.Symlink(h.secret, h.path("web-2026-01-01T00-00-00.002-size.log")))
	for _, name := range []string{".gz", ".gz.tmp"} {
		h.must(os.Symlink(h.secret, old+name))
	}
	said := new(complaints)
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib, Compress: true, Owner: owner2}, said)
	if !eventually(func() bool { return len(said.all()) > 0 }) {
		t.Fatal("nothing was compressed")
	}
	someLines(log, 1025)
	written(t, log)
	if text := unzipped(t, old+".gz"); text != "old\n" {
		t.Errorf("%q", text)
	}
	if _, err := os.Stat(linked + ".gz"); err == nil {
		t.Error("a file under a second name was compressed")
	}
	if got := strings.Join(said.all(), "\n"); strings.Count(got, "cannot tidy") != 1 ||
		!strings.Contains(got, "it is not a regular file with one name") {
		t.Errorf("%s", got)
	}
	h.untouched()
}

func TestLogRotatedByAnotherProgramIsReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.log")
	log := opened(t, LogFileSpec{Path: path, MaxSize: mib}, new(complaints))
	someLines(log, 1024)
	written(t, log)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	log.Put([]byte("new\n"))
	if got := written(t, log); got != "new\n" {
		t.Errorf("%q", got)
	}
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
		if err := log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
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
		"web-2026-01-31T12-00-00.000-size.log": true, "web-2026-01-31T12-00-00.000-time.log": true,
		"web-2026-01-31T12-00-00.000-other.log": false, "web-2026-01-31-size.log": false,
		"web-api-2026-01-31T12-00-00.000-size.log": false,
		"web.log": false, "web.log.1": false, "web-size.log": false,
	} {
		if _, ok := s.rotatedBefore(name); ok != want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}
