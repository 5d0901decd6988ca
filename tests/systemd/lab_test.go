package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/systemd"
)

// suites lists the Debian releases with whose systemd the tests run.
var suites = []string{"bookworm", "trixie"}

// patience limits every wait in a lab.
const patience = 30 * time.Second

// Lab is a booted systemd. Everything in it ends with the test.
type Lab struct {
	*systemd.Lab
	t *testing.T
}

// Each runs a test in a fresh lab of every suite, side by side with the other tests.
func Each(t *testing.T, test func(t *testing.T, l *Lab)) {
	t.Parallel()
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			test(t, Boot(t, suite))
		})
	}
}

// Boot boots suite, or skips the test with the reason why this machine cannot. The lab ends with the test, even if the
// test crashes.
func Boot(t *testing.T, suite string) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("no systemd lab with -short")
	}
	booted, err := systemd.Boot("./lab", suite)
	if unable, ok := errors.AsType[systemd.UnableError](err); ok {
		t.Skip(unable)
	}
	must(t, err)
	l := &Lab{booted, t}
	t.Cleanup(func() {
		if err := booted.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(l.explain)
	return l
}

// explain logs the journal of a lab whose test failed.
func (l *Lab) explain() {
	if l.t.Failed() {
		out, _ := l.Try("journalctl", "--no-pager", "-o", "short-precise", "-n", "100")
		l.t.Logf("the end of the journal of %s:\n%s", l.Suite, out)
	}
}

// Command prepares a command to run in the lab, as root with a plain environment. It is killed at the end of the test.
func (l *Lab) Command(args ...string) *exec.Cmd { return l.Lab.Command(l.t.Context(), args...) }

// Run runs a command in the lab, which must succeed, and returns its output without the last newline.
func (l *Lab) Run(args ...string) string {
	l.t.Helper()
	out, code := l.Try(args...)
	if code != 0 {
		l.t.Fatalf("%s: exit status %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// Try runs a command in the lab and returns its output on both streams and its exit status.
func (l *Lab) Try(args ...string) (out string, code int) {
	l.t.Helper()
	ctx := l.t.Context()
	if ctx.Err() != nil { // the test has ended and cleans up
		ctx = context.Background()
	}
	out, code, err := l.Lab.Try(ctx, args...)
	must(l.t, err)
	return out, code
}

// Write writes a file in the lab and creates its directories.
func (l *Lab) Write(inside, content string, mode os.FileMode) {
	l.t.Helper()
	must(l.t, l.Lab.Write(inside, []byte(content), mode))
}

// Read reads a file in the lab.
func (l *Lab) Read(inside string) string {
	l.t.Helper()
	raw, err := os.ReadFile(l.Path(inside))
	must(l.t, err)
	return string(raw)
}

// Copy copies a file from outside into the lab, with its mode.
func (l *Lab) Copy(outside, inside string) {
	l.t.Helper()
	must(l.t, l.Lab.Copy(outside, inside))
}

// Install builds the Go program in the package directory (relative to the repository) without cgo, once for all tests,
// and copies it into the lab.
func (l *Lab) Install(pkg, inside string) {
	l.t.Helper()
	l.Copy(build(l.t, pkg), inside)
}

// built holds the built programs by package.
var built = struct {
	sync.Mutex
	dir   string
	paths map[string]string
}{paths: map[string]string{}}

// build returns the path of a static binary of the package: the one for all tests, if that has been built.
func build(t *testing.T, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[pkg]; path != "" {
		return path
	}
	path := filepath.Join(os.Getenv(lab.BuiltVariable), filepath.Base(pkg))
	if os.Getenv(lab.BuiltVariable) != "" && lab.Exists(path) {
		return path
	}
	path = filepath.Join(built.dir, pkg)
	command := exec.Command("go", "build", "-o", path, ".")
	command.Dir = filepath.Join(repository(t), pkg)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	built.paths[pkg] = path
	return path
}

// repository is the root of the source tree.
func repository(t *testing.T) string {
	dir, err := filepath.Abs("../..")
	must(t, err)
	return dir
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "supervisord-lab-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Service writes a unit (name with suffix) and makes systemd load it.
func (l *Lab) Service(unit, content string) {
	l.t.Helper()
	l.Write("/etc/systemd/system/"+unit, content, 0o644)
	l.Run("systemctl", "daemon-reload")
}

// Property returns a property of a unit from `systemctl show`.
func (l *Lab) Property(unit, property string) string {
	l.t.Helper()
	return l.Run("systemctl", "show", "--value", "-p", property, unit)
}

// Until polls a condition for which systemd has no event.
func (l *Lab) Until(what string, holds func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			l.t.Fatalf("still not after %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
