// Package lab is the harness of the tests on the built binary. What it shares with `supervisord prove` and the
// measuring programs is in the packages below it, which do not import testing: load, process and plot.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { lab.Main(m) }
//
// and tests like this one:
//
//	func TestReloadReplacesTheWorker(t *testing.T) {
//		t.Parallel()
//		m := lab.Start(t, lab.Web)
//		m.Serves(1)
//		m.Reload()
//		m.Gone(1)
//	}
//
// A Supervisord is one supervisord process in a directory of its own; when the test ends, it is stopped, and the test
// fails if anything is left of it. log.go has the sentences of the log and conditions on its lines, client.go clients
// and load, proc.go readers of /proc, main.go configurations. The worker that misbehaves on request is in worker.
package lab

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// BuiltVariable names a directory with the programs under test, which scripts/test builds once for all packages, and
// tests/kernels for a machine without the go command.
const BuiltVariable = "SUPERVISORD_LAB_BUILT"

// Built holds the paths of the programs that Main has built. Every user may execute them. Supervisord and StartServer
// have the race detector if the test binary has it. The others have not: it makes a process that lives for milliseconds
// three times as expensive, and the packages that clients and workers are made of have tests of their own with it.
var Built struct {
	Dir, Supervisord, StartServer string
	Client                        string // supervisord for subcommands
	Worker, Hello, Starter        string
	Self                          string // a copy of the test binary
}

// Main is the TestMain of a package that uses this harness. It builds the programs under test, runs the tests and
// exits. m is a *testing.M, or what runs one.
func Main(m interface{ Run() int }) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "sv")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
	return m.Run()
}

// build prepares the programs under test. What the tests build themselves is static, as what is installed.
func build(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	Built.Dir, Built.Self = dir, filepath.Join(dir, "tests")
	if err := copySelf(Built.Self); err != nil {
		return err
	}
	programs, err := programs(dir)
	daemons := programs
	if RaceEnabled {
		daemons = filepath.Join(programs, "race")
	}
	Built.Supervisord, Built.StartServer = filepath.Join(daemons, "supervisord"), filepath.Join(daemons, "start_server")
	for path, name := range map[*string]string{&Built.Client: "supervisord", &Built.Worker: "worker",
		&Built.Hello: "hello", &Built.Starter: "starter"} {
		*path = filepath.Join(programs, name)
	}
	return errors.Join(err, os.Setenv("CGO_ENABLED", "0"))
}

// programs returns the directory with the programs under test, of which those with the race detector are in its race:
// the one that BuiltVariable names, or dir, into which it builds them.
func programs(dir string) (string, error) {
	if built := os.Getenv(BuiltVariable); built != "" {
		return built, nil
	}
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	err = errors.Join(goBuild(root, dir, "0", "./cmd/...", "./internal/lab/worker"),
		goBuild(root+"/examples", dir, "0", "./hello", "./starter"))
	if RaceEnabled {
		err = errors.Join(err, goBuild(root, filepath.Join(dir, "race"), "1", "-race", "./cmd/..."))
	}
	return dir, err
}

// goBuild builds packages of a module into a directory.
func goBuild(module, dir, cgo string, words ...string) error {
	c := exec.Command("go", slices.Concat([]string{"build", "-C", module, "-o", dir + "/"}, words)...)
	c.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs under test: %w\n%s", err, out)
	}
	return nil
}

var building sync.Mutex

// Build returns the path of a program that some tests run, by its package: "examples/measure/naive". scripts/test has
// built it, or it is built now, once. The last element of the package names the program: no other one may have it.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	for _, dir := range []string{os.Getenv(BuiltVariable), Built.Dir} {
		if path := filepath.Join(dir, filepath.Base(pkg)); dir != "" && Exists(path) {
			return path
		}
	}
	path := filepath.Join(Built.Dir, filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-C", Root(pkg), "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// findRoot finds the root of the source: the nearest directory above the working directory with a cmd/supervisord.
var findRoot = sync.OnceValues(func() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd/supervisord")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", fmt.Errorf("no cmd/supervisord in %s or above", at)
		}
	}
})

// Root returns the absolute path of a file of the source: Root("scripts/run").
func Root(name string) string {
	dir, err := findRoot()
	if err != nil {
		panic(err) // Main has found it before
	}
	return filepath.Join(dir, name)
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copySelf copies this binary to where ordinary users can execute it.
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

// Listener is another listener of the program web.
func Listener(address string) string {
	return "[[program.web.listen]]\naddress = \"" + address + "\"\n"
}

// WebAt is Web at a known address.
func WebAt(address string) string { return strings.Replace(Web, "127.0.0.1:0", address, 1) }

// PIDFile goes to the beginning of a configuration.
const PIDFile = "pid_file = \"{dir}/p.pid\"\n"

// Hello is a program with the example worker, which drains as a worker should.
const Hello = `
[program.web]
command = [{hello}]
workers = 2
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
`

// Web is a program with one listener, whose worker says when it is ready. See behave for arguments of the worker.
const Web = `
[program.web]
command = [{worker}]
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
`

// WebWith is Web with arguments of the worker: WebWith("boot=1s").
func WebWith(args ...string) string {
	return strings.Replace(Web, "{worker}", "{worker}, \""+strings.Join(args, "\", \"")+"\"", 1)
}

// TwoWorkers is Web with two workers.
var TwoWorkers = strings.Replace(Web, "\n[[", "\nworkers = 2\n[[", 1)

// Plain is a program that does nothing; more keys may follow.
const Plain = `
[program.web]
command = [{sleep}]
ready = { delay = "10ms", accepts = false }
`
