package tests

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that should be there at once: the machine may be busy.
const patience = 30 * time.Second

// markVariable is in the environment of everything that a test starts, so that what it leaves behind is found.
const markVariable = "TESTS_MARK"

// master is a supervisord with a directory of its own.
type master struct {
	t     *testing.T
	dir   string
	mark  string
	env   []string
	via   []string // the command that executes supervisord, if any
	as    *syscall.Credential
	cmd   *exec.Cmd
	log   *journal
	ended chan struct{}
	over  bool // the end was seen and looked into
}

// prepare makes a directory for a supervisord that is started later.
func prepare(t *testing.T) *master {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv") // t.TempDir has paths too long for unix sockets
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	m := &master{t: t, dir: dir, mark: rand.Text()}
	t.Cleanup(func() {
		m.finish()
		if t.Failed() && m.log != nil {
			t.Logf("the log:\n%s", m.log)
		}
		os.RemoveAll(dir)
	})
	return m
}

// start starts a supervisord with this configuration. See write for its form.
func start(t *testing.T, config string) *master {
	t.Helper()
	m := prepare(t)
	m.start(config)
	return m
}

func (m *master) start(config string) {
	m.t.Helper()
	m.write(config)
	m.launch("-c", m.path("config.toml"))
}

// launch starts supervisord with these arguments.
func (m *master) launch(args ...string) {
	m.t.Helper()
	argv := append(append([]string{}, m.via...), built.supervisord)
	m.execute(append(argv, args...)...)
}

// execute starts a command in the place of supervisord.
func (m *master) execute(argv ...string) {
	m.t.Helper()
	m.cmd = exec.Command(argv[0], argv[1:]...)
	m.cmd.Env = m.environ()
	m.cmd.Dir = m.dir
	if m.as != nil {
		m.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.as}
	}
	r, w, err := os.Pipe()
	must(m.t, err)
	m.cmd.Stdout, m.cmd.Stderr = w, w
	m.log, m.ended, m.over = newJournal(r), make(chan struct{}), false
	err = m.cmd.Start()
	w.Close()
	if err != nil {
		m.cmd, m.over = nil, true
		m.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(m.cmd, m.ended)
}

// run runs supervisord to its end, and returns what it wrote and its exit code.
func (m *master) run(args ...string) (out string, code int) {
	m.t.Helper()
	cmd := exec.Command(built.supervisord, args...)
	cmd.Env, cmd.Dir = m.environ(), m.dir
	raw, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		m.t.Fatal(err)
	}
	return string(raw), cmd.ProcessState.ExitCode()
}

// environ is plain, so that a test does not depend on who runs it.
func (m *master) environ() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"GORACE=atexit_sleep_ms=0", markVariable + "=" + m.mark}, m.env...)
}

// path is a file in the directory of the test.
func (m *master) path(name string) string { return filepath.Join(m.dir, name) }

// file writes a file there, which everyone may read.
func (m *master) file(name, text string) string {
	m.t.Helper()
	must(m.t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	must(m.t, os.WriteFile(m.path(name), []byte(m.fill(text)), 0o644))
	return m.path(name)
}

func (m *master) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(m.path(name))
	must(m.t, err)
	return string(text)
}

// fill puts in what a test cannot know: {dir}, the commands {worker} and {hello} (with the quotes; a comma and arguments may
// follow), and {sleep}.
func (m *master) fill(text string) string {
	return strings.NewReplacer(
		"{dir}", m.dir,
		"{worker}", fmt.Sprintf("%q, %q", built.self, workerWord),
		"{hello}", strconv.Quote(built.hello),
		"{sleep}", `"sleep", "1000"`,
	).Replace(text)
}

// write writes the configuration, at once and not bit by bit. It begins within the table [supervisor], where the directory
// for its sockets and log_level = "debug" are given already.
func (m *master) write(config string) {
	m.t.Helper()
	head := "[supervisor]\nruntime_dir = \"{dir}/run\"\n"
	if !strings.Contains(config, "log_level") {
		head += "log_level = \"debug\"\n"
	}
	m.file("config.new", head+config)
	must(m.t, os.Rename(m.path("config.new"), m.path("config.toml")))
}

func (m *master) pid() int { return m.cmd.Process.Pid }

func (m *master) signal(sig syscall.Signal) {
	m.t.Helper()
	must(m.t, m.cmd.Process.Signal(sig))
}

// reload sends HUP and returns the line in the log that answers it.
func (m *master) reload() line {
	m.t.Helper()
	last := m.mark1()
	m.signal(syscall.SIGHUP)
	return m.await(says(hup), after(last))
}

// mark1 is the last line so far.
func (m *master) mark1() line {
	lines, _ := m.log.all()
	if len(lines) == 0 {
		return line{}
	}
	return lines[len(lines)-1]
}

// await waits for the first line that meets the conditions.
func (m *master) await(conds ...cond) line {
	m.t.Helper()
	return m.awaitN(1, conds...)[0]
}

// awaitN waits until n lines meet the conditions.
func (m *master) awaitN(n int, conds ...cond) []line {
	m.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	eof := m.log.eof
	for {
		found, more := m.log.all(conds...)
		if len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-eof:
			eof = nil
			if found, _ = m.log.all(conds...); len(found) < n {
				m.t.Fatalf("supervisord has ended, and the log has %d of %d such lines", len(found), n)
			}
		case <-timeout.C:
			m.t.Fatalf("after %v the log has %d of %d such lines", patience, len(found), n)
		}
	}
}

// count is how many lines meet the conditions by now.
func (m *master) count(conds ...cond) int {
	found, _ := m.log.all(conds...)
	return len(found)
}

// never fails if a line meets the conditions by now.
func (m *master) never(conds ...cond) {
	m.t.Helper()
	if found, _ := m.log.all(conds...); len(found) > 0 {
		m.t.Errorf("this should not be in the log: %s", found[0].text)
	}
}

// serves waits until a generation serves.
func (m *master) serves(number int) line {
	m.t.Helper()
	return m.await(says(generationServes), gen(number))
}

// gone waits until a generation is gone.
func (m *master) gone(number int) line {
	m.t.Helper()
	return m.await(says(generationGone), gen(number))
}

// worker is the PID of the first worker of a generation (of the program web, or the only one).
func (m *master) worker(number int) int {
	m.t.Helper()
	return m.await(says(workerRuns), gen(number)).PID
}

// until waits until a condition holds, for what the log does not tell.
func (m *master) until(what string, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

// finish ends the supervisord as an operator would.
func (m *master) finish() {
	if m.cmd == nil || m.over {
		return
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.ends(0)
}

// ends waits until supervisord ends with this exit code, and sees that nothing is left of it.
func (m *master) ends(code int) {
	m.t.Helper()
	m.over = true
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.t.Errorf("supervisord has not ended after %v", patience)
		m.cmd.Process.Signal(syscall.SIGABRT) // its goroutines
		<-m.ended
		m.sweep()
		return
	}
	if got := m.cmd.ProcessState.ExitCode(); got != code {
		m.t.Errorf("supervisord ended with %v, want exit code %d", m.cmd.ProcessState, code)
	}
	m.nothingLeft()
}

// nothingLeft fails if the supervisord that has ended left a process or a file behind.
func (m *master) nothingLeft() {
	m.t.Helper()
	if left := m.processes(); len(left) > 0 {
		time.Sleep(500 * time.Millisecond) // what was killed needs a moment to vanish
		for _, p := range m.processes() {
			m.t.Errorf("process %d is left: %q", p, cmdline(p))
		}
	}
	m.sweep()
	filepath.WalkDir(m.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		name := entry.Name()
		if entry.Type()&fs.ModeSocket != 0 || strings.HasPrefix(name, "notify.") || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".pid") {
			m.t.Errorf("%s is left", path)
		}
		return nil
	})
	if m.count(contains("DATA RACE")) > 0 {
		m.t.Error("there was a data race")
	}
}

// processes lists those that the supervisord or its workers started.
func (m *master) processes() []int {
	entries, err := os.ReadDir("/proc")
	must(m.t, err)
	mark := []byte(markVariable + "=" + m.mark)
	var found []int
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if environ, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err == nil && bytes.Contains(environ, mark) {
			found = append(found, p)
		}
	}
	return found
}

// sweep kills what is left.
func (m *master) sweep() {
	for _, p := range m.processes() {
		syscall.Kill(p, syscall.SIGKILL)
	}
}
