package servers

import (
	"crypto/rand"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/process"
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

// stopTimeout is the longest stop.timeout of the examples: a server may use all of it.
const stopTimeout = 30 * time.Second

// redeploys is the usual number of redeploys under load.
func redeploys() int {
	if lab.Long() {
		return 10
	}
	return 4
}

// site is a supervisord with the servers of one example, in a private directory.
type site struct {
	t         *testing.T
	from      string // the directory of its kind: examples, or naive
	name      string
	dir       string
	mark      string
	addresses map[string]string // addresses of the example by those of the test
	programs  []string
	redeploys int            // under load
	here      bool           // runs on this machine, not in the root
	child     *process.Child // nil: none was started
	log       lab.Transcript
	over      bool
}

// serves waits until every program serves.
func (s *site) serves() *site {
	s.t.Helper()
	for _, program := range s.programs {
		s.await(lab.GenerationServes, program, 1)
	}
	return s
}

// prepareFrom copies the configuration of this name, for a test that changes it before the launch.
func prepareFrom(t *testing.T, from, name string) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv") // t.TempDir has paths too long for unix sockets
	lab.Must(t, err)
	s := &site{t: t, redeploys: redeploys(), from: from, name: name, dir: dir, mark: rand.Text(),
		addresses: map[string]string{}}
	t.Cleanup(func() {
		s.close()
		if t.Failed() {
			t.Logf("the log: %s", s.log.Report())
		}
		os.RemoveAll(dir)
	})
	lab.Must(t, os.Chmod(dir, 0o755))
	s.copy()
	return s
}

// directoryKey is the line in which an example names a directory that it shares with others, or the file of a program
// there.
var directoryKey = regexp.MustCompile(`(?m)^directory\s*=\s*"(\w+)"|^command .*"(\w+)/target/`)

// copy copies NAME.toml and the directory NAME, or the one that NAME.toml names, with the addresses of this test.
func (s *site) copy() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.from, s.name+".toml"))
	lab.Must(s.t, err)
	from := []string{s.name + ".toml", s.name}
	for _, m := range directoryKey.FindAllSubmatch(text, -1) {
		from = append(from, string(m[1]))
	}
	for _, from := range from {
		err := filepath.WalkDir(filepath.Join(s.from, from), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, _ := filepath.Rel(s.from, path)
			return s.copyFile(path, s.path(relative), entry)
		})
		if !os.IsNotExist(err) || from != s.name {
			lab.Must(s.t, err)
		}
	}
	for _, m := range programTable.FindAllStringSubmatch(s.read(s.name+".toml"), -1) {
		s.programs = append(s.programs, m[1])
	}
	if name := s.name + ".toml"; !strings.Contains(s.read(name), "ready") {
		s.write(name, programTable.ReplaceAllString(s.read(name), fmt.Sprintf("$0\nready.timeout = %q", readyTimeout)))
	}
	s.write("test.toml", fmt.Sprintf(
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
		replaced = lab.WithHandover(strings.ReplaceAll(replaced, "{dir}", s.dir))
	}
	return os.WriteFile(to, []byte(replaced), info.Mode().Perm())
}

// drain gives every program this drain.timeout, which a server with clients that keep their connections always uses up.
// For a program that shares its listener the table would be an error.
func (s *site) drain(timeout string) {
	if lab.Shared() {
		return
	}
	name := s.name + ".toml"
	config := s.read(name)
	for _, program := range s.programs {
		config += fmt.Sprintf("\n[program.%s.drain]\ntimeout = %q\n", program, timeout)
	}
	s.write(name, config)
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
		s.addresses[address] = lab.Reserve(s.t)
	}
	return s.addresses[address]
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.path(name))
	lab.Must(s.t, err)
	return string(text)
}

func (s *site) write(name, text string) {
	s.t.Helper()
	lab.Must(s.t, os.WriteFile(s.path(name), []byte(text), 0o644))
}

// replace replaces a text in a file of the copy.
func (s *site) replace(name, old, with string) {
	s.t.Helper()
	text := s.read(name)
	if !strings.Contains(text, old) {
		s.t.Fatalf("%s has no %q", name, old)
	}
	s.write(name, strings.ReplaceAll(text, old, with))
}

// launch starts supervisord.
func (s *site) launch() {
	s.t.Helper()
	g := theGround()
	if s.here {
		g = ground{}
	}
	argv := []string{supervisord(), "run", "-c", s.path("test.toml")}
	if *ordinary {
		s.ordinary()
		// some open these
		become := fmt.Sprintf(
			`chown %d /dev/stdout /dev/stderr; exec setpriv --reuid=%[1]d --regid=%[1]d --clear-groups "$@"`, nobody)
		argv = append([]string{"sh", "-c", become, "sh"}, argv...)
	}
	cmd := g.command([]string{s.dir, built}, argv...)
	cmd.Env = []string{"PATH=" + s.path("bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + os.Getenv("HOME"),
		"XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME"), lab.MarkVariable + "=" + s.mark}
	var err error
	s.child, err = process.Start(cmd, s.log.Add, nil)
	lab.Must(s.t, err)
}

// ordinary gives the directories of the site to nobody, and turns bind on. The files may be links to those of the next
// run.
func (s *site) ordinary() {
	s.t.Helper()
	lab.NeedRoot(s.t, "only root can start supervisord as another user")
	lab.Must(s.t, filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return os.Chown(path, nobody, nobody)
	}))
	s.write(s.name+".toml", programTable.ReplaceAllString(s.read(s.name+".toml"), "$0\nbind = \"on\""))
}

// redeploy replaces every server as often as s.redeploys says, with `supervisord reload`, and waits each time until the
// old one is gone.
func (s *site) redeploy() {
	s.t.Helper()
	for n := range s.redeploys {
		time.Sleep(250 * time.Millisecond) // the load meets each generation; no event to wait for
		out, err := s.command("reload", "--drained", "--timeout", startTimeout.String()).CombinedOutput()
		if err != nil {
			s.t.Fatalf("redeploy %d: %v\n%s", n+1, err, out)
		}
	}
	for _, program := range s.programs {
		s.await(lab.GenerationServes, program, s.redeploys+1)
	}
	time.Sleep(250 * time.Millisecond)
}

// command prepares a subcommand that talks to this supervisord.
func (s *site) command(args ...string) *exec.Cmd {
	return exec.Command(supervisord(), append(args, "-c", s.path("test.toml"))...)
}

// close stops supervisord as an operator would, and checks that nothing is left.
func (s *site) close() {
	if s.child == nil || s.over {
		return
	}
	s.over = true
	s.child.Cmd.Process.Signal(syscall.SIGTERM)
	if patience := lab.Patience + stopTimeout; !s.child.Within(patience) {
		s.t.Errorf("supervisord has not exited after %v", patience)
		s.child.Cmd.Process.Kill()
		<-s.child.Ended
	} else if s.child.Cmd.ProcessState.ExitCode() != 0 {
		s.t.Errorf("supervisord exited with %v", s.child.Cmd.ProcessState)
	}
	for _, sentence := range []string{lab.WorkerKilled, lab.WorkerDied} {
		if found, _ := s.log.All(lab.Says(sentence)); len(found) > 0 {
			s.t.Errorf("unexpected in the log: %s", found[0].Text)
		}
	}
	s.nothingLeft()
}

// nothingLeft fails if a process of the site is left, or one of its addresses is still open.
func (s *site) nothingLeft() {
	for _, pid := range lab.Left(s.processes) {
		s.t.Errorf("process %d is left: %q", pid, lab.Cmdline(pid))
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes returns the processes in the directory of the site or with its mark, because many servers overwrite their
// environment.
func (s *site) processes() (found []int) {
	for _, pid := range proc.PIDs() {
		environ, _ := proc.Environ(pid)
		mounts := lab.Text(proc.Path(pid, "mountinfo"))
		if pid != os.Getpid() && (environ[lab.MarkVariable] == s.mark || strings.Contains(mounts, " "+s.dir+" ")) {
			found = append(found, pid)
		}
	}
	return found
}

// await waits for a log entry with this message about a program and a generation.
func (s *site) await(sentence, program string, generation int) {
	s.t.Helper()
	late := time.After(startTimeout)
	for {
		found, more := s.log.All(lab.Says(sentence), lab.Program(program), lab.Gen(generation))
		if len(found) > 0 {
			return
		}
		if failed, _ := s.log.All(lab.Says(lab.TrialFailed), lab.Program(program)); len(failed) > 0 {
			s.t.Fatalf("%s does not serve: %s", program, failed[0].Text)
		}
		select {
		case <-more:
		case <-s.child.Ended:
			s.t.Fatalf("supervisord has exited (%v) before %q of %s, generation %d", s.child.Cmd.ProcessState, sentence, program,
				generation)
		case <-late:
			s.t.Fatalf("after %v not in the log: %q of %s, generation %d", startTimeout, sentence, program, generation)
		}
	}
}
