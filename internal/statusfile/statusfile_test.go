package statusfile

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/zap/zaptest"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// want has Files write these texts in turn and end, which removes the files.
func want(t *testing.T, texts ...map[string]string) {
	t.Helper()
	var running sync.WaitGroup
	files := New(zaptest.NewLogger(t), &running)
	for _, text := range texts {
		files.Want(text)
	}
	files.Close()
	running.Wait()
	if err := files.Hung(); err != nil {
		t.Error(err)
	}
}

// A supervisord that is killed between the write and the rename leaves the file of that name.
func TestFileThatAKilledSupervisordLeftIsRemoved(t *testing.T) {
	for what, text := range map[string]string{"a worker is ready": "1:100\n", "no worker is ready": ""} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "web.status")
			must.Do(t, os.WriteFile(path+temporary, []byte("1:2"), 0o600))
			want(t, map[string]string{path: text})
			if left, err := os.ReadDir(filepath.Dir(path)); len(left) > 0 || err != nil {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
}

func TestFileIsReadableAndItsTemporaryNameIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.status")
	for _, text := range []string{"1:100\n", "2:200\n"} {
		must.Do(t, writeStatus(path, text))
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("the file has %q, %v", got, err)
		}
	}
	if stat, err := os.Stat(path); err != nil || stat.Mode() != 0o644 {
		t.Errorf("the file is %v, %v", stat, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 1 || err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestSymbolicLinkAtTheTemporaryNameIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path, precious := filepath.Join(dir, "web.status"), filepath.Join(dir, "precious")
	must.Do(t, os.WriteFile(precious, []byte("precious"), 0o600))
	must.Do(t, os.Symlink(precious, path+temporary))
	must.Do(t, writeStatus(path, "1:100\n"))
	if got, err := os.ReadFile(precious); string(got) != "precious" || err != nil {
		t.Errorf("the file behind the link has %q, %v", got, err)
	}
}

func TestDirectoryAtTheTemporaryNameStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.status")
	must.Do(t, os.Mkdir(path+temporary, 0o700))
	if err := writeStatus(path, "1:100\n"); err == nil {
		t.Error("it was written in spite of the directory")
	}
	if stat, err := os.Stat(path + temporary); err != nil || !stat.IsDir() {
		t.Errorf("the directory is %v, %v", stat, err)
	}
}
