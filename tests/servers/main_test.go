package servers

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// built is the directory with the supervisord under test.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "sv"); err == nil {
		defer os.RemoveAll(built)
		err = build()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		return 1
	}
	return m.Run()
}

// build builds supervisord without C, so that it runs in a root with another C library.
func build() error {
	command := exec.Command("go", "build", "-o", built+"/", "./cmd/...")
	command.Dir = "../.."
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs under test: %w\n%s", err, out)
	}
	return os.Chmod(built, 0o755)
}

func supervisord() string { return filepath.Join(built, "supervisord") }
