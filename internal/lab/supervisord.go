package lab

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/proc"
)

// Patience is how long anything may take that should happen at once: the machine may be busy.
const Patience = time.Minute

// stopPatience is how long supervisord may take to end. It is no longer than the default of stop.timeout, or nobody
// would see that a worker had to be killed.
const stopPatience = 30 * time.Second

// MarkVariable is in the environment of everything that a test starts, so that leftovers are found.
const MarkVariable = "TESTS_MARK"

// Supervisord is one supervisord process with a directory of its own. A test may start several in turn. When the test
// ends, the process is ended, and the test fails if a process, a socket or a pid file is left. The methods fail the
// test on errors.
type Supervisord struct {
	T     testing.TB
	Dir   string
	Env   []string   // added to Environ
	Via   []string   // the command that executes supervisord, if any
	Files []*os.File // what the next one inherits as 3, 4, …; closed when it has them
	As    *syscall.Credential
	Cmd   *exec.Cmd   // the latest supervisord
	Log   *Transcript // what it writes

	child *process.Child
	mark  string
	over  bool // its end was seen and checked
	told  int  // lines of Log that were printed because it did not end
}

// Prepare makes a directory for a supervisord that the test starts later.
func Prepare(t testing.TB) *Supervisord {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv") // the paths of t.TempDir are too long for unix sockets
	Must(t, err)
	return PrepareIn(t, dir)
}

// PrepareIn is Prepare in a directory that exists, which is removed at the end.
func PrepareIn(t testing.TB, dir string) *Supervisord {
	t.Helper()
	Must(t, os.Chmod(dir, 0o755))
	m := &Supervisord{T: t, Dir: dir, mark: rand.Text()}
	t.Cleanup(func() {
		m.Finish()
		switch {
		case !t.Failed(), m.Log == nil:
		case m.told > 0:
			t.Logf("the log after that:\n%s", m.Log.since(m.told+1))
		default:
			t.Logf("the log: %s", m.Log.Report())
		}
		os.RemoveAll(dir)
	})
	return m
}

// Start starts a supervisord with this configuration. See Write for its form.
func Start(t testing.TB, config string) *Supervisord {
	t.Helper()
	m := Prepare(t)
	m.Start(config)
	return m
}

// Start writes the configuration and starts supervisord with it.
func (m *Supervisord) Start(config string) {
	m.T.Helper()
	m.Write(config)
	m.Launch("-c", m.Path("config.toml"))
}

// Launch starts supervisord with these arguments.
func (m *Supervisord) Launch(args ...string) {
	m.T.Helper()
	argv := append(append([]string{}, m.Via...), Built.Supervisord)
	m.Execute(append(argv, args...)...)
}

// Execute starts a command instead of supervisord.
func (m *Supervisord) Execute(argv ...string) {
	m.T.Helper()
	m.Cmd = exec.Command(argv[0], argv[1:]...)
	m.Cmd.Env = m.Environ()
	m.Cmd.Dir = m.Dir
	if m.As != nil {
		m.Cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.As}
	}
	m.Cmd.ExtraFiles = m.Files
	m.Log, m.over, m.told = &Transcript{}, false, 0
	var err error
	m.child, err = process.Start(m.Cmd, m.Log.Add, nil)
	for _, f := range m.Files {
		f.Close()
	}
	m.Files = nil
	if err != nil {
		m.Cmd, m.over = nil, true
		m.T.Fatal(err)
	}
}

// Run runs supervisord to its end and returns its output and its exit code.
func (m *Supervisord) Run(args ...string) (out string, code int) {
	m.T.Helper()
	cmd := exec.Command(ProgramFor(args), args...)
	cmd.Env, cmd.Dir = m.Environ(), m.Dir
	raw, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		m.T.Fatal(err)
	}
	return string(raw), cmd.ProcessState.ExitCode()
}

// ProgramFor is the supervisord for these arguments: Client for a subcommand that runs no supervisord.
func ProgramFor(args []string) string {
	daemons := []string{"run", "start_server", "demo"}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || slices.Contains(daemons, args[0]) {
		return Built.Supervisord
	}
	return Built.Client
}

// Environ is the environment of what m starts. It is plain: a test does not depend on who runs it.
func (m *Supervisord) Environ() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"GORACE=atexit_sleep_ms=0", MarkVariable + "=" + m.mark}, m.Env...)
}

// Path is the path of a file in the directory of m.
func (m *Supervisord) Path(name string) string { return filepath.Join(m.Dir, name) }

// File writes a file that everybody may read into the directory of m, after Fill, and returns its path.
func (m *Supervisord) File(name, text string) string {
	m.T.Helper()
	Must(m.T, os.MkdirAll(filepath.Dir(m.Path(name)), 0o755))
	Must(m.T, os.WriteFile(m.Path(name), []byte(m.Fill(text)), 0o644))
	return m.Path(name)
}

// Read reads a file in the directory of m.
func (m *Supervisord) Read(name string) string {
	m.T.Helper()
	text, err := os.ReadFile(m.Path(name))
	Must(m.T, err)
	return string(text)
}

// Fill replaces {dir} with the directory, and {worker}, {hello} and {sleep} with quoted commands, after which a comma
// and arguments may follow.
func (m *Supervisord) Fill(text string) string {
	return strings.NewReplacer(
		"{dir}", m.Dir,
		"{worker}", strconv.Quote(Built.Worker),
		"{hello}", strconv.Quote(Built.Hello),
		"{sleep}", `"sleep", "1000"`,
	).Replace(text)
}

// Write replaces the configuration atomically. The text begins inside the table [supervisor], where runtime_dir and
// log_level = "debug" are already set.
func (m *Supervisord) Write(config string) {
	m.T.Helper()
	head := "[supervisor]\nruntime_dir = \"{dir}/run\"\n"
	if !strings.Contains(config, "log_level") {
		head += "log_level = \"debug\"\n"
	}
	m.File("config.new", head+config)
	Must(m.T, os.Rename(m.Path("config.new"), m.Path("config.toml")))
}

// PID is the PID of the latest supervisord, or of the command of Via.
func (m *Supervisord) PID() int { return m.Cmd.Process.Pid }

// Signal sends supervisord a signal.
func (m *Supervisord) Signal(sig syscall.Signal) {
	m.T.Helper()
	Must(m.T, m.Cmd.Process.Signal(sig))
}

// Reload sends HUP and returns the line in the log that answers it.
func (m *Supervisord) Reload() Entry {
	m.T.Helper()
	last := m.Last()
	m.Signal(syscall.SIGHUP)
	return m.Await(Says(HUP), After(last))
}

// Last is the last line of the log so far.
func (m *Supervisord) Last() Entry {
	lines, _ := m.Log.All()
	if len(lines) == 0 {
		return Entry{}
	}
	return lines[len(lines)-1]
}

// Await waits for the first line of the log that meets the conditions.
func (m *Supervisord) Await(conds ...Cond) Entry {
	m.T.Helper()
	return m.AwaitN(1, conds...)[0]
}

// AwaitN waits until n lines of the log meet the conditions, and returns all that do.
func (m *Supervisord) AwaitN(n int, conds ...Cond) []Entry {
	m.T.Helper()
	return m.awaitFor(Patience, n, conds...)
}

// AwaitLong is Await for what a build precedes.
func (m *Supervisord) AwaitLong(conds ...Cond) Entry {
	m.T.Helper()
	return m.awaitFor(20*Patience, 1, conds...)[0]
}

func (m *Supervisord) awaitFor(patience time.Duration, n int, conds ...Cond) []Entry {
	m.T.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	eof, ended := m.child.EOF, false
	var found []Entry
	for seen := 0; ; {
		fresh, all, more := m.Log.after(seen, conds...)
		found, seen = append(found, fresh...), all
		if len(found) >= n {
			return found
		}
		if ended {
			m.T.Fatalf("supervisord has ended, and the log has %d of %d such lines", len(found), n)
		}
		select {
		case <-more:
		case <-eof:
			eof, ended = nil, true
		case <-timeout.C:
			m.T.Fatalf("after %v the log has %d of %d such lines", patience, len(found), n)
		}
	}
}

// Count counts the lines so far that meet the conditions.
func (m *Supervisord) Count(conds ...Cond) int {
	found, _ := m.Log.All(conds...)
	return len(found)
}

// Never fails the test if a line so far meets the conditions.
func (m *Supervisord) Never(conds ...Cond) {
	m.T.Helper()
	if found, _ := m.Log.All(conds...); len(found) > 0 {
		m.T.Fatalf("this should not be in the log: %s", found[0].Text)
	}
}

// Serves waits until a generation serves.
func (m *Supervisord) Serves(number int) Entry {
	m.T.Helper()
	return m.Await(Says(GenerationServes), Gen(number))
}

// Gone waits until a generation is gone.
func (m *Supervisord) Gone(number int) Entry {
	m.T.Helper()
	return m.Await(Says(GenerationGone), Gen(number))
}

// WorkerPID is the PID of the first worker of a generation (of the program web, or the only one).
func (m *Supervisord) WorkerPID(number int) int {
	m.T.Helper()
	return m.Await(Says(WorkerRuns), Gen(number)).PID
}

// Until waits until a condition holds that the log does not tell. The failure names what it waits for.
func (m *Supervisord) Until(what string, holds func() bool) {
	m.T.Helper()
	for end := time.Now().Add(Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.T.Fatalf("still not true after %v: %s", Patience, what)
		}
	}
}

// Finish ends supervisord with TERM, if it runs, and is then Ends(0).
func (m *Supervisord) Finish() {
	if m.Cmd == nil || m.over {
		return
	}
	m.Cmd.Process.Signal(syscall.SIGTERM)
	m.Ends(0)
}

// Ends waits until supervisord has ended and all of its output is read, and fails if it has another exit code or leaves
// a process or a file behind.
func (m *Supervisord) Ends(code int) {
	m.T.Helper()
	m.over = true
	if !m.child.Within(stopPatience) {
		m.told = m.Last().N
		m.T.Errorf("supervisord has not ended after %v; there are %s. The log: %s", stopPatience, m.describe(),
			m.Log.Report())
		m.Cmd.Process.Signal(syscall.SIGABRT) // its goroutines
		<-m.child.Ended
		m.Sweep()
		return
	}
	if got := m.Cmd.ProcessState.ExitCode(); got != code {
		m.T.Errorf("supervisord ended with %v, want exit code %d", m.Cmd.ProcessState, code)
	}
	m.nothingLeft()
	if !m.child.Drained(stopPatience) {
		m.T.Error("a process that is not supervisord's any more holds its output open")
	}
}

// nothingLeft fails if the supervisord that has ended left a process or a file behind.
func (m *Supervisord) nothingLeft() {
	m.T.Helper()
	for _, p := range Left(m.Processes) {
		m.T.Errorf("process %d is left: %q", p, Cmdline(p))
	}
	m.Sweep()
	filepath.WalkDir(m.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		name := entry.Name()
		if entry.Type()&fs.ModeSocket != 0 || strings.HasPrefix(name, "notify.") || strings.HasSuffix(name, ".lock") ||
			strings.HasSuffix(name, ".pid") {
			m.T.Errorf("%s is left", path)
		}
		return nil
	})
	if m.Count(Contains("DATA RACE")) > 0 {
		m.T.Error("there was a data race")
	}
}

// Processes lists supervisord, its workers, and what they started: all that have the mark in their environment.
func (m *Supervisord) Processes() (found []int) {
	for _, pid := range proc.PIDs() {
		if environ, err := proc.Environ(pid); err == nil && environ[MarkVariable] == m.mark {
			found = append(found, pid)
		}
	}
	return found
}

// describe counts Processes by name and state: "57 perl (S), 1 supervisord (S)".
func (m *Supervisord) describe() string {
	counts := map[string]int{}
	for _, pid := range m.Processes() {
		stat, _ := proc.ReadStat(pid)
		counts[fmt.Sprintf("%s (%c)", proc.Name(pid), stat.State)]++
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d %s", counts[name], name))
	}
	return cmp.Or(strings.Join(words, ", "), "no processes")
}

// Sweep kills Processes.
func (m *Supervisord) Sweep() {
	for _, p := range m.Processes() {
		syscall.Kill(p, syscall.SIGKILL)
	}
}

// Over reports whether supervisord has ended and was waited for. Unlike Alive, it does not take it for dead in an
// execve(2) that another thread than the first one calls.
func (m *Supervisord) Over() bool { return m.child.Over() }

// Wait waits until supervisord has ended, with any exit code, and does not check what it left.
func (m *Supervisord) Wait() {
	m.T.Helper()
	m.over = true
	if !m.child.Within(Patience) {
		m.T.Fatalf("supervisord has not ended after %v", Patience)
	}
}

// PrepareOrdinary prepares a supervisord for an ordinary user: nobody, if the tests run as root.
func PrepareOrdinary(t testing.TB) *Supervisord {
	t.Helper()
	m := Prepare(t)
	if os.Geteuid() == 0 {
		OpenToAll(t)
		m.As = &syscall.Credential{Uid: 65534, Gid: 65534}
		Must(t, os.Chown(m.Dir, 65534, 65534))
	}
	return m
}

// OpenToAll skips the test if only root can reach the directory for temporary files.
func OpenToAll(t testing.TB) {
	t.Helper()
	for dir := Built.Dir; dir != "/"; dir = filepath.Dir(dir) {
		if stat, err := os.Stat(dir); err != nil || stat.Mode()&1 == 0 {
			t.Skipf("an ordinary user cannot execute what is in %s; set TMPDIR", dir)
		}
	}
}

// Address is the address of the only TCP listener, which may have several sockets.
func (m *Supervisord) Address() string {
	m.T.Helper()
	found := slices.Compact(slices.Sorted(slices.Values(Addresses(m.T, m.Cmd.Process.Pid))))
	if len(found) != 1 {
		m.T.Fatalf("supervisord listens on %v, want one address", found)
	}
	return found[0]
}

// Lines is the log so far.
func (m *Supervisord) Lines() []Entry {
	found, _ := m.Log.All()
	return found
}

// Living lists the living workers that the log names.
func (m *Supervisord) Living() []int {
	var living []int
	for _, l := range m.Lines() {
		if l.Msg == WorkerRuns && Alive(l.PID) {
			living = append(living, l.PID)
		}
	}
	return living
}

// Die kills supervisord, like a crash. Its workers stay.
func (m *Supervisord) Die() {
	m.T.Helper()
	m.Signal(syscall.SIGKILL)
	m.Wait()
}

// Settle waits until the log has been silent for a while: nothing shows that a signal is still on its way.
func (m *Supervisord) Settle() {
	m.T.Helper()
	for {
		_, more := m.Log.All()
		select {
		case <-more:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

// PIDs lists the living children of supervisord in ascending order.
func (m *Supervisord) PIDs() []int {
	found := slices.DeleteFunc(proc.Children(m.PID()), func(pid int) bool { return !Alive(pid) })
	slices.Sort(found)
	return found
}

// PrepareStarter prepares a supervisord that runs as start_server with its own runtime directory.
func PrepareStarter(t testing.TB) *Supervisord {
	t.Helper()
	m := Prepare(t)
	m.Env = append(m.Env, "RUNTIME_DIRECTORY="+m.Path("run"))
	return m
}
