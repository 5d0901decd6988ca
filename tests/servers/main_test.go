package servers

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"example.org/supervisord/internal/lab"
)

// built is the directory with the supervisord under test.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sv")
	if err == nil {
		defer os.RemoveAll(dir)
		built, err = lab.Programs(dir, false) // without C, so that it runs in a root with another C library
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		return 1
	}
	return m.Run()
}

func supervisord() string { return filepath.Join(built, "supervisord") }
