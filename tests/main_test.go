package tests

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// workerWord is the first argument with which this binary is a worker and not a test.
const workerWord = "be-a-worker"

// built is where the programs are that the tests run.
var built struct {
	dir, supervisord, hello, starter string
	self                             string // a copy of this binary
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerWord {
		behave(os.Args[2:])
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sv")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		return 1
	}
	return m.Run()
}

// build builds what the tests run, with the race detector if they were, and makes it readable for every user.
func build(dir string) (err error) {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	built.dir, built.self = dir, filepath.Join(dir, "tests")
	if err := copySelf(built.self); err != nil {
		return err
	}
	built.supervisord, built.hello, built.starter = filepath.Join(dir, "supervisord"), filepath.Join(dir, "hello"), filepath.Join(dir, "starter")
	args := []string{"build", "-o", dir + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	command := exec.Command("go", append(args, "./cmd/supervisord", "./examples/hello", "./examples/starter")...)
	command.Dir = ".."
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build what is to be tested: %w\n%s", err, out)
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copySelf copies this binary to where an ordinary user can execute it, too.
func copySelf(path string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, self)
	return errors.Join(err, to.Close())
}
