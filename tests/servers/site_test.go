package servers

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

const examples = "../../examples/servers"

// redeployed is how often a server is replaced under load.
const redeployed = 10

// site is a supervisord with the servers of one example, in a directory of its own.
type site struct {
	t         *testing.T
	name      string
	dir       string
	mark      string
	addresses map[string]string // of the example, by that of the test
	programs  []string
	here      bool // it runs on this machine, not in the root
	cmd       *exec.Cmd
	log       journal
	ended     chan struct{}
	over      bool
}

// open starts the example of this name, and returns when every program of it serves.
func open(t *testing.T, name string) *site {
	t.Helper()
	s := prepare(t, name)
	s.launch()
	return s.serves()
}

// serves waits until every program serves.
func (s *site) serves() *site {
	s.t.Helper()
	for _, program := range s.programs {
		s.await(generationServes, program, 1)
	}
	return s
}

// prepare copies an example, for a test that changes something in it before it is launched.
func prepare(t *testing.T, name string) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv") // t.TempDir has paths too long for unix sockets
	lab.Must(t, err)
	s := &site{t: t, name: name, dir: dir, mark: rand.Text(), addresses: map[string]string{}, ended: make(chan struct{})}
	t.Cleanup(func() {
		s.close()
		if t.Failed() {
			t.Logf("the log:\n%s", s.log.tail(120))
		}
		os.RemoveAll(dir)
	})
	lab.Must(t, os.Chmod(dir, 0o755))
	s.copy()
	return s
}

// directoryKey is where an example names a folder that it shares with others.
var directoryKey = regexp.MustCompile(`(?m)^directory\s*=\s*"(\w+)"`)

// copy copies NAME.toml, and the folder NAME where there is one, or the one that it names, with addresses of this test.
func (s *site) copy() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, s.name+".toml"))
	lab.Must(s.t, err)
	from := []string{s.name + ".toml", s.name}
	if m := directoryKey.FindSubmatch(text); m != nil && string(m[1]) != s.name {
		from = append(from, string(m[1]))
	}
	for _, from := range from {
		err := filepath.WalkDir(filepath.Join(examples, from), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, _ := filepath.Rel(examples, path)
			return s.copyFile(path, s.path(relative), entry)
		})
		if !os.IsNotExist(err) || from != s.name {
			lab.Must(s.t, err)
		}
	}
	for _, m := range programTable.FindAllStringSubmatch(s.read(s.name+".toml"), -1) {
		s.programs = append(s.programs, m[1])
	}
	s.write("test.toml", fmt.Sprintf("[supervisor]\nruntime_dir = \"run\"\nlog_level = \"debug\"\nlog_format = \"json\"\ninclude = [%q]\n", s.name+".toml"))
}

var (
	programTable = regexp.MustCompile(`(?m)^\[program\.([^.\]]+)\]`)
	// anAddress is one of the examples: 127.0.0.1:PORT, or, where a server has its port apart, a port of the range they use.
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
	return os.WriteFile(to, []byte(anAddress.ReplaceAllStringFunc(string(text), s.standIn)), info.Mode().Perm())
}

// standIn is what an address or a port of the example is replaced by.
func (s *site) standIn(found string) string {
	if strings.Contains(found, ":") {
		return s.at(found)
	}
	_, port, _ := net.SplitHostPort(s.at("127.0.0.1:" + found))
	return port
}

// at is the address that stands in for one of the example.
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

// replace changes a text that stands in a file of the copy.
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
	s.cmd = g.command([]string{s.dir, built}, supervisord(), "run", "-c", s.path("test.toml"))
	s.cmd.Env = []string{"PATH=" + s.path("bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + os.Getenv("HOME"),
		"XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME"), lab.MarkVariable + "=" + s.mark}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.WaitDelay = 2 * time.Second // whoever is left may hold the pipe
	lab.Must(s.t, s.cmd.Start())
	go func() {
		s.cmd.Wait()
		close(s.ended)
	}()
}

// redeploy replaces every server ten times, as a user would who wants to know how it went, and waits each time until the old
// one has gone.
func (s *site) redeploy() {
	s.t.Helper()
	for n := range redeployed {
		time.Sleep(250 * time.Millisecond) // the load meets each generation; there is no event to wait for
		out, err := s.command("reload", "--drained", "--timeout", "40s").CombinedOutput()
		if err != nil {
			s.t.Fatalf("redeploy %d: %v\n%s", n+1, err, out)
		}
	}
	for _, program := range s.programs {
		s.await(generationServes, program, redeployed+1)
	}
	time.Sleep(250 * time.Millisecond)
}

// command prepares a command of the command line that asks this supervisord.
func (s *site) command(args ...string) *exec.Cmd {
	return exec.Command(supervisord(), append(args, "-c", s.path("test.toml"))...)
}

// close ends supervisord as an operator would, and sees that nothing is left of it.
func (s *site) close() {
	if s.cmd == nil || s.over {
		return
	}
	s.over = true
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			s.t.Errorf("supervisord ended with %v", s.cmd.ProcessState)
		}
	case <-time.After(lab.Patience):
		s.t.Errorf("supervisord has not ended after %v", lab.Patience)
		s.cmd.Process.Kill()
		<-s.ended
	}
	for _, sentence := range []string{workerKilled, workerDied} {
		if l, found := s.log.find(sentence, "", 0); found {
			s.t.Errorf("this should not be in the log: %s", l)
		}
	}
	s.nothingLeft()
}

// nothingLeft fails if a process of the site is left, or somebody listens where it did.
func (s *site) nothingLeft() {
	left := s.processes()
	if len(left) > 0 {
		time.Sleep(500 * time.Millisecond) // what was killed needs a moment to vanish
		left = s.processes()
	}
	for _, pid := range left {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		s.t.Errorf("process %d is left: %q", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes are those in the directory of the site, or with its mark: many servers write over their environment.
func (s *site) processes() []int {
	entries, err := os.ReadDir("/proc")
	lab.Must(s.t, err)
	mark := []byte(lab.MarkVariable + "=" + s.mark)
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		mounts, _ := os.ReadFile("/proc/" + e.Name() + "/mountinfo")
		if bytes.Contains(environ, mark) || bytes.Contains(mounts, []byte(" "+s.dir+" ")) {
			found = append(found, pid)
		}
	}
	return found
}

// The sentences of the log that the tests rely on.
const (
	generationServes = "new generation serves"
	trialFailed      = "new generation failed"
	workerKilled     = "worker is killed"
	workerDied       = "worker died"
)

// await waits until the log has a line with this sentence of a program and a generation.
func (s *site) await(sentence, program string, generation int) {
	s.t.Helper()
	for end := time.Now().Add(lab.Patience); ; time.Sleep(5 * time.Millisecond) {
		if _, found := s.log.find(sentence, program, generation); found {
			return
		}
		if l, failed := s.log.find(trialFailed, program, 0); failed {
			s.t.Fatalf("%s does not serve: %s", program, l)
		}
		select {
		case <-s.ended:
			s.t.Fatalf("supervisord has ended (%v) before %q of %s, generation %d", s.cmd.ProcessState, sentence, program, generation)
		default:
		}
		if time.Now().After(end) {
			s.t.Fatalf("after %v not in the log: %q of %s, generation %d", lab.Patience, sentence, program, generation)
		}
	}
}

// journal is what supervisord and its workers wrote.
type journal struct {
	mu   sync.Mutex
	text []byte
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, p...)
	return len(p), nil
}

// find returns the first line with a sentence, of a program and a generation unless these are zero.
func (j *journal) find(sentence, program string, generation int) (string, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(j.text) {
		if !bytes.Contains(line, []byte(sentence)) {
			continue
		}
		var l struct {
			Msg, Program string
			Generation   int
		}
		if json.Unmarshal(line, &l) == nil && l.Msg == sentence && (program == "" || l.Program == program) && (generation == 0 || l.Generation == generation) {
			return string(line), true
		}
	}
	return "", false
}

// tail is the last lines.
func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := strings.SplitAfter(string(j.text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
