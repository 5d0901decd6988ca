// Package must ends a test at an error that it does not expect.
package must

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Do fails the test at once if there is an error.
func Do(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get passes a value on to the test, and fails it at once if there is an error: must.Get(os.ReadFile(path))(t).
func Get[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Be is for values that a test itself has written: it panics if there is an error.
func Be[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// Files writes files, by their names, into a new directory, and returns it.
func Files(t testing.TB, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(dir, name)
		Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// Become waits until something holds that no event tells.
func Become(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}
