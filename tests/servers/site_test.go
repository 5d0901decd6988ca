package servers

import (
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

const examples = "../../examples/servers"

// ordinary is for docs/servers.md: the same as a user without privileges.
var ordinary = flag.Bool("user", false, "run supervisord as an ordinary user, with bind = \"on\"")

// nobody is the number of a user without privileges.
const nobody = 65534

// readyTimeout replaces that of the examples: a JVM that starts beside others on a busy machine takes minutes.
const readyTimeout = 4 * time.Minute

// startTimeout is longer than readyTimeout.
const startTimeout = readyTimeout + 10*time.Second

// redeploys is the number of redeploys under load.
func redeploys() int {
	if lab.Long() {
		return 10
	}
	return 1
}

// site is a supervisord with the servers of one example.
type site struct {
	*lab.Supervisord
	from      string            // the directory of its kind: examples, or naive
	name      string            // of the example
	addresses map[string]string // addresses of the example by those of the test
	programs  []string
	redeploys int  // under load
	here      bool // runs on this machine, not in the root
}

// prepareFrom copies the configuration of this name, for a test that changes it before the launch.
func prepareFrom(t *testing.T, from, name string) *site {
	t.Helper()
	s := &site{Supervisord: lab.Prepare(t), redeploys: redeploys(), from: from, name: name,
		addresses: map[string]string{}}
	t.Cleanup(s.close)
	s.copy()
	return s
}

// directoryKey is the line in which an example names a directory that it shares with others, or the file of a program
// there.
var directoryKey = regexp.MustCompile(`(?m)^directory\s*=\s*"(\w+)"|^command .*"(\w+)/target/`)

// copy copies NAME.toml and the directory NAME, or the one that NAME.toml names, with the addresses of this test.
func (s *site) copy() {
	s.T.Helper()
	text := lab.Text(filepath.Join(s.from, s.name+".toml"))
	from := []string{s.name + ".toml", s.name}
	for _, m := range directoryKey.FindAllStringSubmatch(text, -1) {
		from = append(from, m[1])
	}
	for _, from := range from {
		err := filepath.WalkDir(filepath.Join(s.from, from), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, _ := filepath.Rel(s.from, path)
			return s.copyFile(path, s.Path(relative), entry)
		})
		if !os.IsNotExist(err) || from != s.name {
			lab.Must(s.T, err)
		}
	}
	for _, m := range programTable.FindAllStringSubmatch(s.Read(s.name+".toml"), -1) {
		s.programs = append(s.programs, m[1])
	}
	if name := s.name + ".toml"; !strings.Contains(s.Read(name), "ready") {
		s.File(name, programTable.ReplaceAllString(s.Read(name), fmt.Sprintf("$0\nready.timeout = %q", readyTimeout)))
	}
	s.File("test.toml", fmt.Sprintf(
		"[supervisor]\nruntime_dir = \"run\"\nlog_level = \"debug\"\nlog_format = \"json\"\ninclude = [%q]\n", s.name+
			".toml"))
}

var (
	programTable = regexp.MustCompile(`(?m)^\[program\.([^.\]]+)\]$`)
	// anAddress matches an address of the examples: 127.0.0.1:PORT, or, for a separate port, a number in the range of the
	// examples.
	anAddress = regexp.MustCompile(`127\.0\.0\.1:[0-9]+|\b(81[0-5][0-9]|90[0-5][0-9])\b`)
)

func (s *site) copyFile(from, to string, entry fs.DirEntry) error {
	if entry.Name() == "target" { // where cargo builds
		return fs.SkipDir
	}
	if entry.IsDir() {
		return os.MkdirAll(to, 0o755)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	replaced := anAddress.ReplaceAllStringFunc(string(text), s.standIn)
	if strings.HasSuffix(to, ".toml") {
		replaced = lab.WithHandover(s.Fill(replaced))
	}
	return os.WriteFile(to, []byte(replaced), info.Mode().Perm())
}

// drain gives every program this drain.timeout, which a server with clients that keep their connections always uses up,
// and as long a drain.silence: on a busy machine a server may pause within an answer for longer than by default. For a
// program that shares its listener the table would be an error.
func (s *site) drain(timeout string) {
	if lab.Shared() {
		return
	}
	name := s.name + ".toml"
	config := s.Read(name)
	for _, program := range s.programs {
		config += fmt.Sprintf("\n[program.%s.drain]\ntimeout = %q\nsilence = %[2]q\n", program, timeout)
	}
	s.File(name, config)
}

// standIn returns the replacement of an address or port of the example.
func (s *site) standIn(found string) string {
	if strings.Contains(found, ":") {
		return s.at(found)
	}
	_, port, _ := net.SplitHostPort(s.at("127.0.0.1:" + found))
	return port
}

// at returns the replacement of an address of the example.
func (s *site) at(address string) string {
	if s.addresses[address] == "" {
		s.addresses[address] = lab.Reserve(s.T)
	}
	return s.addresses[address]
}

// replace replaces a text in a file of the copy.
func (s *site) replace(name, old, with string) {
	s.T.Helper()
	text := s.Read(name)
	if !strings.Contains(text, old) {
		s.T.Fatalf("%s has no %q", name, old)
	}
	s.File(name, strings.ReplaceAll(text, old, with))
}

// launch starts supervisord.
func (s *site) launch() {
	s.T.Helper()
	s.Env = []string{"PATH=" + s.Path("bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME")}
	if !lab.Long() { // half of the CPU of a JVM's start is for its second compiler
		s.Env = append(s.Env, "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
	}
	if !s.here {
		s.Via = theGround().via(s.Dir, filepath.Dir(lab.Built.Supervisord))
	}
	if *ordinary {
		s.ordinary()
		// some open these
		become := fmt.Sprintf(
			`chown %d /dev/stdout /dev/stderr; exec setpriv --reuid=%[1]d --regid=%[1]d --clear-groups "$@"`, nobody)
		s.Via = append(s.Via, "sh", "-c", become, "sh")
	}
	s.Launch("run", "-c", s.Path("test.toml"))
}

// serves waits until every program serves.
func (s *site) serves() *site {
	s.T.Helper()
	s.reaches(1)
	return s
}

// reaches waits until this generation of every program serves.
func (s *site) reaches(generation int) {
	s.T.Helper()
	for _, program := range s.programs {
		l := s.AwaitLong(lab.Program(program), func(l lab.Entry) bool {
			return l.Msg == lab.TrialFailed || l.Msg == lab.GenerationServes && l.Generation == generation
		})
		if l.Msg == lab.TrialFailed {
			s.T.Fatalf("%s does not serve: %s", program, l.Text)
		}
	}
}

// ordinary gives the directories of the site to nobody, and turns bind on. The files may be links to those of the next
// run.
func (s *site) ordinary() {
	s.T.Helper()
	lab.NeedRoot(s.T, "only root can start supervisord as another user")
	lab.Must(s.T, filepath.WalkDir(s.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return os.Chown(path, nobody, nobody)
	}))
	s.File(s.name+".toml", programTable.ReplaceAllString(s.Read(s.name+".toml"), "$0\nbind = \"on\""))
}

// redeploy replaces every server as often as s.redeploys says, with `supervisord reload`, and waits each time until the
// old one is gone.
func (s *site) redeploy() {
	s.T.Helper()
	for n := range s.redeploys {
		time.Sleep(250 * time.Millisecond) // the load meets each generation; no event to wait for
		if out, code := s.run("reload", "--drained", "--timeout", startTimeout.String()); code != 0 {
			s.T.Fatalf("redeploy %d: exit code %d\n%s", n+1, code, out)
		}
	}
	s.reaches(s.redeploys + 1)
	time.Sleep(250 * time.Millisecond)
}

// run runs a subcommand that talks to this supervisord.
func (s *site) run(args ...string) (out string, code int) {
	s.T.Helper()
	return s.Run(append(args, "-c", s.Path("test.toml"))...)
}

// close stops supervisord as an operator would, and checks that no process is left. A server may use all of the longest
// stop.timeout of the examples, 30 s.
func (s *site) close() {
	if s.Cmd == nil {
		return
	}
	s.Cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	s.Wait()
	if s.Cmd.ProcessState.ExitCode() != 0 {
		s.T.Errorf("supervisord exited with %v", s.Cmd.ProcessState)
	}
	s.Never(lab.Says(lab.WorkerKilled))
	s.Never(lab.Says(lab.WorkerDied))
	for _, pid := range lab.Left(s.processes) {
		s.T.Errorf("process %d is left: %q", pid, lab.Cmdline(pid))
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes returns the processes in the directory of the site or with its mark, because many servers overwrite their
// environment.
func (s *site) processes() []int {
	found := s.Processes()
	for _, pid := range proc.PIDs() {
		mounts := lab.Text(proc.Path(pid, "mountinfo"))
		if pid != os.Getpid() && strings.Contains(mounts, " "+s.Dir+" ") && !slices.Contains(found, pid) {
			found = append(found, pid)
		}
	}
	return found
}
