package kernels

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var (
	long = flag.Bool("long", false, "boot the kernels")
	only = flag.String("only", "", "run only the tests of the directories that match this `pattern`")
)

// unable is the exit status with which the script says that this host cannot boot a kernel.
const unable = 77

// selection names tests that depend on the kernel and need nothing that a machine has not.
type selection struct{ directory, flags string }

// stories are those of tests/script that depend on the kernel. Commands that busybox lacks are not there.
var stories = []string{"accept", "adoption", "bind", "bind-deploy", "hostile-bind", "lanes", "steer"}

var selections = []selection{
	{"internal/control", "-test.run=Peer|Asked|Rights|Lingering"},
	{"internal/foreign", ""},
	{"worker/spawn", "-test.skip=^TestThousandForks"},
	{"worker/ready", ""},
	{"worker/bind", ""},
	{"socket/diag", ""},
	{"tests", "-test.parallel=4 -test.run=^TestNoRequestIsLostWithAHUPEachSecond$|^TestScript$/^(" +
		strings.Join(stories, "|") + ")$"},
	{"worker", "-test.run=Adopt|Child|Signal|Kill|Group|SIGCHLD|Limits|Credential|Ambient|Step|BetweenForkAndExec|" +
		"WorkerHasIts|AcceptSeesAUnix|AcceptWantsEvery|BusyWorker"},
	{"socket", "-test.run=Steer|Shares|Tag|LanesSurvive|Handed|Paused -test.skip=^TestEveryHistory"},
}

// TestStoriesOfKernelsExist: what -test.run does not find is no failure.
func TestStoriesOfKernelsExist(t *testing.T) {
	for _, name := range stories {
		if _, err := os.Stat("../script/" + name + ".txtar"); err != nil {
			t.Error(err)
		}
	}
}

func TestKernels(t *testing.T) {
	if !*long {
		t.Skip("an emulated machine for each kernel: only with -long")
	}
	list, err := exec.Command("./machine", "list").Output()
	must(t, err)
	top := t.TempDir()
	goCommand(t, runtime.GOARCH, "build", "-o", filepath.Join(top, "test2json"), "cmd/test2json")
	wanted := regexp.MustCompile(*only)
	chosen := slices.DeleteFunc(slices.Clone(selections),
		func(s selection) bool { return !wanted.MatchString(s.directory) })
	for _, kernel := range strings.Fields(string(list)) {
		t.Run(kernel, func(t *testing.T) {
			fetch(t, kernel)
			_, arch, _ := strings.Cut(kernel, "-")
			root := filepath.Join(top, arch)
			if _, err := os.Stat(root); err != nil {
				build(t, root, arch, chosen)
			}
			m := boot(t, kernel, root)
			m.test2json = filepath.Join(top, "test2json")
			t.Run("check", m.checks)
			for _, s := range chosen {
				t.Run(s.directory, func(t *testing.T) { m.show(t, s.directory) })
			}
			t.Logf("%s; %s s by its clock: %d tests passed, %d failed, %d were skipped", m.kernel, m.took, m.passed, m.failed,
				m.skipped)
		})
	}
}

// fetch unpacks a kernel, or skips the test with the reason why this host cannot boot it.
func fetch(t *testing.T, kernel string) {
	for _, step := range []string{"check", "fetch"} {
		out, err := exec.Command("./machine", step, kernel).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == unable {
			t.Skip(lines[len(lines)-1])
		} else if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// build makes the root of a machine: the programs under test in /built, the test binaries beside their testdata in
// /src, and the plan.
func build(t *testing.T, root, arch string, chosen []selection) {
	// by which the tests find the root of the source
	must(t, os.MkdirAll(filepath.Join(root, "src/cmd/supervisord"), 0o755))
	goCommand(t, arch, "build", "-o", filepath.Join(root, "built")+"/", "./cmd/...", "./internal/lab/worker")
	goCommand(t, arch, "build", "-C", "examples", "-o", filepath.Join(root, "built")+"/", "./hello", "./starter")
	var plan strings.Builder
	for _, s := range chosen {
		to := filepath.Join(root, "src", s.directory)
		goCommand(t, arch, "test", "-c", "-o", filepath.Join(to, "test"), "./"+s.directory)
		for _, name := range []string{"testdata", "script"} {
			if data := filepath.Join("../..", s.directory, name); exists(data) {
				must(t, os.CopyFS(filepath.Join(to, name), os.DirFS(data)))
			}
		}
		fmt.Fprintln(&plan, s.directory, s.flags)
	}
	must(t, os.WriteFile(filepath.Join(root, "plan"), []byte(plan.String()), 0o644))
}

// goCommand runs the go command for static binaries of an architecture, in the root of the source.
func goCommand(t *testing.T, arch string, args ...string) {
	t.Helper()
	c := exec.Command("go", args...)
	c.Dir, c.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
}

// machine is what the console of a machine showed.
type machine struct {
	test2json               string // its path
	kernel, took            string // uname -r and -m; seconds
	outputs                 map[string]*bytes.Buffer
	ended                   map[string]bool
	passed, failed, skipped int
}

// boot boots a kernel and reads its console until it powers off.
func boot(t *testing.T, kernel, root string) *machine {
	c := exec.CommandContext(t.Context(), "./machine", "boot", kernel, root)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // to the script, which removes what it made
	console, err := c.StdoutPipe()
	must(t, err)
	c.Stderr = c.Stdout
	must(t, c.Start())
	m := &machine{outputs: map[string]*bytes.Buffer{}, ended: map[string]bool{}}
	rest := m.read(t, console)
	if err := c.Wait(); err != nil || m.took == "" {
		t.Errorf("the machine did not get to its end: %v\n%s", err, rest)
	}
	return m
}

// read reads a console to its end and returns what is of no test.
func (m *machine) read(t *testing.T, console io.Reader) string {
	var rest bytes.Buffer
	into := &rest
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		word, _ := strings.CutPrefix(line, "kernels: ")
		switch fields := strings.Fields(word); {
		case word == line:
			into.WriteString(line + "\n")
		case fields[0] == "booted":
			m.kernel = strings.Join(fields[1:], " ")
		case fields[0] == "begin":
			into = &bytes.Buffer{}
			m.outputs[fields[1]] = into
			t.Log(fields[1])
		case fields[0] == "end":
			m.ended[fields[1]], into = fields[2] == "0", &rest
		case fields[0] == "took":
			m.took = fields[1]
		}
	}
	return rest.String()
}

// show makes each test of a test binary a subtest.
func (m *machine) show(t *testing.T, directory string) {
	raw := m.outputs[directory]
	if raw == nil {
		t.Fatal("not run")
	}
	c := exec.Command(m.test2json)
	c.Stdin = bytes.NewReader(raw.Bytes())
	events, err := c.Output()
	must(t, err)
	shown, output := 0, map[string]*strings.Builder{}
	for decoder := json.NewDecoder(bytes.NewReader(events)); decoder.More(); {
		var e struct{ Action, Test, Output string }
		must(t, decoder.Decode(&e))
		name, _, below := strings.Cut(e.Test, "/")
		if output[name] == nil {
			output[name] = &strings.Builder{}
		}
		output[name].WriteString(e.Output)
		if name == "" || below {
			continue
		}
		result := func(*testing.T) {}
		switch e.Action {
		case "pass":
			m.passed++
		case "skip":
			m.skipped++
			result = func(t *testing.T) { t.Skip(output[name]) }
		case "fail":
			m.failed++
			result = func(t *testing.T) { t.Error(output[name]) }
		default:
			continue
		}
		shown++
		t.Run(name, result)
	}
	if ok, ended := m.ended[directory]; shown == 0 || !ended || !ok && !t.Failed() {
		t.Errorf("ended: %v, passed: %v, tests: %d\n%s", ended, ok, shown, raw)
	}
}

// checks holds what `supervisord check` says of the kernel against what the kernel has.
func (m *machine) checks(t *testing.T) {
	before, after, closed := m.outputs["check-before-modules"], m.outputs["check-after-modules"], m.outputs["check-closed"]
	if before == nil || after == nil || closed == nil {
		t.Fatal("check was not run")
	}
	if !strings.Contains(before.String(), "note: the kernel has no module tcp_diag") {
		t.Errorf("before the modules are loaded:\n%s", before)
	}
	want := "ok\n\n"
	if strings.HasPrefix(m.kernel, "5.10.") {
		want = "/check.toml: note: the kernel has no cgroup.kill: "
	}
	if text := after.String(); !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "ok\n\n") {
		t.Errorf("got\n%s", text)
	}
	if text := closed.String(); !strings.Contains(text, "cannot be on here: ") || !strings.Contains(text, "ptrace_scope") {
		t.Errorf("where no process may look at another:\n%s", text)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
