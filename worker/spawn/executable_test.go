package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// install copies a program of the system to a path, as a new file.
func install(t *testing.T, program, path string) {
	t.Helper()
	from := program
	for _, dir := range []string{"/usr/bin/", "/bin/"} {
		if _, err := os.Stat(from); err != nil {
			from = dir + program
		}
	}
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o755)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// held is a command whose executable was looked up.
func held(t *testing.T, c *Execution) *Execution {
	t.Helper()
	e, err := Find(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Detach().Close() })
	c.Executable = e
	return c
}

// says runs a command and returns what it says, and how it failed.
func says(t *testing.T, c *Execution) string {
	t.Helper()
	read, write, err := Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(read)
	unix.SetNonblock(read, false)
	c.Files = []int{0, write, 2}
	s, failure := fork(c, -1)
	unix.Close(write)
	if failure != nil {
		t.Fatal(failure)
	}
	text, err := io.ReadAll(readFD(read))
	if err != nil {
		t.Error(err)
	}
	runs, failure := s.reported(c)
	status := s.wait()
	if failure != nil {
		return string(text) + Describe(failure.Step, failure)
	}
	if !runs || status != 0 {
		return fmt.Sprintf("%sruns: %v, status %#x", text, runs, status)
	}
	return string(text)
}

func TestProcessIsTheFileThatThePathNamedWhenItWasLookedUp(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"nothing happens":     func(*testing.T, string) {},
		"another file":        func(t *testing.T, path string) { install(t, "false", path) },
		"half of a file":      func(t *testing.T, path string) { os.Remove(path); script(t, path, "\x7fELF\x02") },
		"removed":             func(t *testing.T, path string) { os.Remove(path) },
		"moved away":          func(t *testing.T, path string) { os.Rename(path, path+".old") },
		"a directory":         func(t *testing.T, path string) { os.Remove(path); os.Mkdir(path, 0o755) },
		"no permission":       func(t *testing.T, path string) { install(t, "false", path); os.Chmod(path, 0o600) },
		"a symlink to itself": func(t *testing.T, path string) { os.Remove(path); os.Symlink(path, path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			install(t, "cat", filepath.Join(dir, "cat"))
			c := held(t, &Execution{Argv: []string{"./cat", "/proc/self/cmdline"}, Directory: dir})
			change(t, filepath.Join(dir, "cat"))
			for range 2 {
				if got := says(t, c); got != "./cat\x00/proc/self/cmdline\x00" {
					t.Errorf("%q", got)
				}
			}
		})
	}
}

func TestProcessHasTheUsualNameAsLongAsThePathNamesItsFile(t *testing.T) {
	dir := t.TempDir()
	install(t, "cat", filepath.Join(dir, "cat"))
	os.Symlink("cat", filepath.Join(dir, "web"))
	c := held(t, &Execution{Argv: []string{"./web", "/proc/self/comm"}, Directory: dir})
	if got := says(t, c); got != "web\n" {
		t.Errorf("%q", got)
	}
	install(t, "false", filepath.Join(dir, "cat"))
	got := strings.TrimSpace(says(t, c)) // Linux 6.14 says the name of the file, earlier ones the number of the descriptor
	if got != "cat" && got != "4" {
		t.Errorf("%q", got)
	}
}

func TestExecutableIsNotAmongTheDescriptorsOfTheProcess(t *testing.T) {
	dir := t.TempDir()
	install(t, "sleep", filepath.Join(dir, "sleep"))
	c := held(t, &Execution{Argv: []string{"./sleep", "1000"}, Directory: dir, Files: []int{0, 1, 2}})
	for range 2 {
		s, failure := fork(c, -1)
		if failure != nil {
			t.Fatal(failure)
		}
		if runs, failure := s.reported(c); !runs {
			t.Error(failure)
		}
		want := map[int]string{}
		for fd := range 3 {
			want[fd], _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		}
		settled(t, s.pid, want)
		unix.Kill(s.pid, unix.SIGKILL)
		s.wait()
		install(t, "false", filepath.Join(dir, "sleep"))
	}
}

func TestScriptKeepsItsInterpreter(t *testing.T) {
	dir := t.TempDir()
	interpreter := filepath.Join(dir, "cat")
	for name, first := range map[string]string{
		"argument":     "#! " + interpreter + "\t -E \n",
		"no argument":  "#!" + interpreter + "\n",
		"no line end":  "#!" + interpreter,
		"relative":     "#!cat\n",
		"of a script":  "#!" + filepath.Join(dir, "script") + " -E\n",
		"of a PATH":    "#!" + interpreter + " -n\n",
		"to the limit": "#!" + interpreter + " " + strings.Repeat("-", 200-len(interpreter)) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			install(t, "cat", interpreter)
			script(t, filepath.Join(dir, "script"), "#!"+interpreter+" -n\n")
			path := filepath.Join(dir, "web")
			script(t, path, first)
			c := &Execution{Argv: []string{"./web", "/proc/self/cmdline"}, Directory: dir}
			if name == "of a PATH" {
				c.Argv[0], c.Environment = "web", []string{"PATH=/nowhere:" + dir}
			}
			held(t, c)
			before := says(t, c)
			install(t, "false", interpreter)
			if got := says(t, c); got != before || !strings.Contains(got, interpreter) && name != "relative" && name != "to the limit" {
				t.Errorf("%q, before: %q", got, before)
			}
			if got := c.Executable.Files[0].Change(); got != "" {
				t.Error(got)
			}
			script(t, path, first+"echo more\n")
			if got := c.Executable.Files[0].Change(); got != Written {
				t.Error(got)
			}
		})
	}
}

func TestFileThatComesEarlierInPATHIsForTheNextGeneration(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	install(t, "cat", filepath.Join(second, "cat"))
	c := held(t, &Execution{Argv: []string{"cat", "/proc/self/comm"}, Environment: []string{"PATH=" + first + ":" + second}})
	install(t, "false", filepath.Join(first, "cat"))
	for _, change := range []func(){func() {}, func() { os.Remove(filepath.Join(second, "cat")) }} {
		change()
		if got := says(t, c); strings.TrimSpace(got) != "cat" && strings.TrimSpace(got) != "4" {
			t.Errorf("%q", got)
		}
	}
}

// The supervisor is root and sees more than the user.
func TestFileThatTheUserCannotReachIsPassedOver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run a process as another user")
	}
	top, err := os.MkdirTemp("", "spawn")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	os.Chmod(top, 0o755)
	closed, open := filepath.Join(top, "closed"), filepath.Join(top, "open")
	os.Mkdir(closed, 0o700)
	os.Mkdir(open, 0o755)
	install(t, "false", filepath.Join(closed, "cat"))
	install(t, "cat", filepath.Join(open, "cat"))
	user := &Credential{UID: 65534, GID: 65534}
	c := held(t, &Execution{Argv: []string{"cat", "/proc/self/comm"}, Environment: []string{"PATH=" + closed + ":" + open}, Credential: user})
	if got := says(t, c); got != "cat\n" {
		t.Errorf("%q", got)
	}
	c = held(t, &Execution{Argv: []string{filepath.Join(closed, "cat")}, Credential: user})
	if got := says(t, c); !strings.HasSuffix(got, "closed/cat: permission denied") {
		t.Errorf("%q", got)
	}
}

func TestFileThatIsNeitherScriptNorProgramIsExecutedByItsPath(t *testing.T) {
	dir := t.TempDir()
	foreign := append([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xf3\x00"), make([]byte, 100)...) // RISC-V
	for text, why := range map[string]string{
		"":                                  "neither a script nor a program",
		"PK\x03\x04 a jar":                  "neither a script nor a program",
		string(foreign):                     "neither a script nor a program",
		"#!\n":                              "#! line",
		"#!" + strings.Repeat("/x", 200):    "#! line",
		"#!/bin/sh " + string(foreign[:20]): "",
	} {
		script(t, filepath.Join(dir, "web"), text)
		c := held(t, &Execution{Argv: []string{"./web"}, Directory: dir})
		if c.Executable.FD() >= 0 != (why == "") || !strings.Contains(c.Executable.Why, why) {
			t.Errorf("%q: %+v", text, c.Executable)
		}
		if why == "" {
			continue
		}
		os.Remove(filepath.Join(dir, "web"))
		if got := says(t, c); !strings.HasSuffix(got, "web: no such file or directory") {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestFindFailsWhereNothingCanBeExecuted(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o777); err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(dir, "loop"), "#!"+filepath.Join(dir, "loop")+"\n")
	script(t, filepath.Join(dir, "astray"), "#!/nowhere/at/all\n")
	for name, want := range map[string]string{
		"./none": "no such file", "none": "not found in PATH", "./fifo": "permission denied", "fifo": "not found", "./loop": "too many levels", "./astray": "/nowhere/at/all",
	} {
		e, err := Find(&Execution{Argv: []string{name}, Directory: dir, Environment: []string{"PATH=" + dir}})
		if e != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestFailureSaysThatTheFileIsNotWhatThePathNames(t *testing.T) {
	c := &Execution{Argv: []string{"/srv/web"}}
	_, failure := ParseReport(append([]byte{aboutToExec, codeExec, hintKept, 0, 0}, byte(unix.ESTALE), 0, 0, 0), c)
	want := "cannot exec the file of its generation, which /srv/web no longer names: stale file handle; a reload executes what it names now"
	if got := Describe(failure.Step, failure); got != want {
		t.Error(got)
	}
}

func TestAdoptedDescriptorMustBeOfTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cat")
	install(t, "cat", path)
	c := held(t, &Execution{Argv: []string{path, "/proc/self/comm"}})
	fd, err := unix.FcntlInt(uintptr(c.Executable.FD()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	again := &Executable{Files: c.Executable.Files}
	if again.Adopt(-1) == nil || again.FD() >= 0 {
		t.Error("nothing was adopted")
	}
	if err := again.Adopt(fd); err != nil || again.FD() != fd {
		t.Errorf("%v, %d", err, again.FD())
	}
	defer func() { again.Detach().Close() }()
	install(t, "false", path)
	c.Executable = again
	if got := says(t, c); strings.Contains(got, "runs") {
		t.Error(got)
	}
	other, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := (&Executable{Files: c.Executable.Files}); wrong.Adopt(other) == nil || wrong.FD() >= 0 {
		t.Error("another file was adopted")
	}
	if _, err := unix.FcntlInt(uintptr(other), unix.F_GETFD, 0); err == nil {
		t.Error("the wrong descriptor is still open")
	}
}

func TestFindSaysThatThereIsNoDescriptorLeft(t *testing.T) {
	var before unix.Rlimit
	next, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		unix.Close(next)
		err = unix.Getrlimit(unix.RLIMIT_NOFILE, &before)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	for room := range 2 {
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + room), Max: before.Max})
		for _, name := range []string{"/bin/sh", "sh"} {
			if e, err := Find(&Execution{Argv: []string{name}}); e != nil || !errors.Is(err, unix.EMFILE) {
				t.Errorf("room for %d, %s: %+v, %v", room, name, e, err)
			}
		}
	}
}
