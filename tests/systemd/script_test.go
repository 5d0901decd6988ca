package systemd_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/systemd"
	"example.org/supervisord/socket"
)

// TestScript runs script/*.txtar under the systemd of each suite: each is a story about one booted system.
// script/README.md has its language. Without -long, the older systemd has those that tell them apart.
func TestScript(t *testing.T) {
	t.Parallel()
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			runStories(t, suite, func(text string) bool {
				return lab.Long() || suite == newest || strings.Contains(text, "["+suite+"]")
			}, "script")
		})
	}
}

// TestPackage runs package/*.txtar, which need no systemd.
func TestPackage(t *testing.T) { runStories(t, "", func(string) bool { return true }, "package") }

// runStories runs the stories in a directory that are chosen by their text.
func runStories(t *testing.T, suite string, chosen func(text string) bool, dir string) {
	t.Parallel()
	files, err := filepath.Glob(dir + "/*.txtar")
	lab.Must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return !chosen(lab.Text(name)) })
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	for name, does := range steps() {
		commands[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if s := ts.Value(storyKey{}).(*story); neg {
				ts.Fatalf("! is not for %s", name)
			} else {
				s.ts = ts
				ts.Check(does(s, args))
			}
		}
	}
	work, err := os.MkdirTemp(lab.Built.Dir, "work-"+suite+"-") // -count runs the stories again
	lab.Must(t, err)
	testscript.Run(t, testscript.Params{Files: files, WorkdirRoot: work, RequireUniqueNames: true, Cmds: commands,
		Setup: func(e *testscript.Env) error { return prepareStory(e, suite) },
		Condition: func(name string) (bool, error) {
			switch name {
			case "long":
				return lab.Long(), nil
			case "flow": // sockets can be chosen by the flow of a datagram
				return (socket.Spec{Handover: socket.Flow}).Unpermitted() == nil, nil
			case "extrausers":
				return lab.Exists("/usr/lib/libnss_extrausers.so.2"), nil
			case "checkout":
				return lab.Exists(lab.Root(".git")), nil
			}
			return name == suite, nil
		}})
}

// story is one script while it runs.
type story struct {
	*systemd.Lab
	t       testing.TB
	ts      *testscript.TestScript
	out     string                 // what the last command in the lab has said
	began   time.Time              // the phase
	master  string                 // PIDs inside the lab, as mark has seen them
	workers []string               // of hello
	load    *lab.Traffic           // what press has begun
	begun   map[string]chan string // what begin has, by name
	noted   map[string]string      // what note has, by command
}

type storyKey struct{}

// inside is where programs are in a lab.
const inside = "/usr/local/bin/"

// prepareStory boots a furnished lab, and sets the variables of the script.
func prepareStory(e *testscript.Env, suite string) error {
	s := &story{t: e.T().(testing.TB), began: time.Now(), begun: map[string]chan string{}, noted: map[string]string{}}
	e.Values[storyKey{}] = s
	for name, value := range map[string]string{"supervisord": lab.Built.Supervisord, "source": lab.Root(""),
		"HOME": os.Getenv("HOME"), "dist": filepath.Join(lab.Built.Dir, "packages")} {
		e.Setenv(name, value)
	}
	if suite == "" {
		return nil
	}
	s.Lab = boot(s.t, suite)
	e.Defer(func() {
		if s.t.Failed() {
			out, _, _ := s.Try(s.t.Context(), "journalctl", "--no-pager", "-o", "short-precise", "-n", "100")
			s.t.Logf("the end of the journal:\n%s", out)
		}
		if err := s.Close(); err != nil {
			s.t.Error(err)
		}
	})
	e.Setenv("root", s.Path("/"))
	return errors.Join(s.furnish(), os.WriteFile(filepath.Join(e.WorkDir, "hello.toml"), []byte(helloConfig), 0o644))
}

// furnish puts supervisord, its unit and the worker of helloConfig into the lab.
func (s *story) furnish() error {
	return errors.Join(s.Copy(lab.Built.Supervisord, inside+"supervisord"), s.Copy(lab.Built.Hello, inside+"hello"),
		s.Copy(lab.Root("systemd/supervisord.service"), "/etc/systemd/system/supervisord.service"),
		s.Write("/etc/supervisord/config.toml", []byte(helloConfig), 0o644))
}

// helloConfig runs examples/hello with two workers.
const helloConfig = `
[program.hello]
command = ["/usr/local/bin/hello", "-version", "1"]
workers = 2
listen = [{ name = "http", address = "127.0.0.1:8080" }]
ready.method = "notify"
`

// steps are the commands beside those of testscript, which come first: none may have the name of one of them.
func steps() map[string]func(*story, []string) error {
	return map[string]func(*story, []string) error{
		"config": (*story).config, "prepare": (*story).prepare, "up": (*story).up, "start": (*story).start,
		"down": (*story).down, "run": (*story).run, "show": (*story).show, "get": (*story).get,
		"journal": (*story).journal, "processes": (*story).processes, "keep": (*story).keep, "mark": (*story).mark,
		"until": (*story).until, "times": (*story).times, "die": (*story).die, "succeeded": (*story).succeeded,
		"reload": (*story).reload, "replaced": (*story).replaced, "store": (*story).store, "press": (*story).press,
		"lossless": (*story).lossless, "answered": (*story).answered,
		"begin": (*story).begin, "end": (*story).end, "note": (*story).note, "same": (*story).same,
		"install": (*story).install, "copy": (*story).copy, "freeze": (*story).freeze, "thaw": (*story).thaw,
		"packed": (*story).packed, "pack": (*story).pack,
	}
}

// cut cuts words at the first mark.
func cut(words []string, mark string) (before, after []string) {
	if i := slices.Index(words, mark); i >= 0 {
		return words[:i], words[i+1:]
	}
	return words, nil
}

// expect checks a text: =TEXT is all of it, !TEXT is not in it, ~PATTERN matches, and any other TEXT is in it.
func expect(text string, want []string) error {
	for _, w := range want {
		met := strings.Contains(text, w)
		switch {
		case strings.HasPrefix(w, "="):
			met = text == w[1:]
		case strings.HasPrefix(w, "!"):
			met = !strings.Contains(text, w[1:])
		case strings.HasPrefix(w, "~"):
			met = regexp.MustCompile("(?m)" + w[1:]).MatchString(text)
		}
		if !met {
			return fmt.Errorf("want %q, got: %s", w, text)
		}
	}
	return nil
}

// run runs "COMMAND… [=> [CODE] TEXT…]" in the lab.
func (s *story) run(words []string) error {
	argv, want := cut(words, "=>")
	code := 0
	if len(want) > 0 {
		if n, err := strconv.Atoi(want[0]); err == nil {
			code, want = n, want[1:]
		}
	}
	out, got, err := s.Try(s.t.Context(), argv...)
	if s.out = out; err == nil && got != code {
		err = fmt.Errorf("exit status %d, want %d: %s", got, code, out)
	}
	return errors.Join(err, expect(out, want))
}

// sh runs lines of a shell in the lab.
func (s *story) sh(lines string) error { return s.run([]string{"sh", "-ec", lines}) }

// until repeats a step until it succeeds. There is no event for what it looks at.
func (s *story) until(words []string) error {
	return wait(func() error { return steps()[words[0]](s, words[1:]) })
}

func wait(step func() error) error {
	for end := time.Now().Add(lab.Patience); ; time.Sleep(20 * time.Millisecond) {
		if err := step(); err == nil {
			return nil
		} else if time.Now().After(end) {
			return fmt.Errorf("still after %v: %w", lab.Patience, err)
		}
	}
}

// times repeats "N STEP [and STEP]…".
func (s *story) times(words []string) error {
	n, err := strconv.Atoi(words[0])
	for range n {
		for step, rest := cut(words[1:], "and"); err == nil && len(step) > 0; step, rest = cut(rest, "and") {
			err = steps()[step[0]](s, step[1:])
		}
	}
	return err
}

// config makes "FILE [OLD NEW]…" the configuration, with NEW in place of OLD;
// \n in it ends a line.
func (s *story) config(words []string) error {
	text := s.ts.ReadFile(words[0])
	for pair := range slices.Chunk(words[1:], 2) {
		if !strings.Contains(text, pair[0]) {
			return fmt.Errorf("%s has no %q", words[0], pair[0])
		}
		text = strings.ReplaceAll(text, pair[0], strings.ReplaceAll(pair[1], `\n`, "\n"))
	}
	return s.Write("/etc/supervisord/config.toml", []byte(text), 0o644)
}

const (
	dropIns    = "/etc/systemd/system/supervisord.service.d"
	socketUnit = "/etc/systemd/system/supervisord.socket"
)

// prepare begins anew: supervisord is stopped, and its unit has nothing beside it but "[NAME.conf|LINE]… [-- LINE…]":
// the project's drop-ins, lines of a section [Service], and after -- those of a socket unit, which is started.
func (s *story) prepare(words []string) error {
	service, listen := cut(words, "--")
	s.began = time.Now()
	err := s.sh("systemctl stop supervisord.socket supervisord.service || :; systemctl reset-failed; rm -rf " + dropIns +
		" " + socketUnit)
	lines := "[Service]\n"
	for _, word := range service {
		if strings.HasSuffix(word, ".conf") {
			err = errors.Join(err, s.Copy(lab.Root("systemd/drop-ins/"+word), dropIns+"/"+word))
		} else {
			lines += word + "\n"
		}
	}
	err = errors.Join(err, s.Write(dropIns+"/zz-lines.conf", []byte(lines), 0o644))
	if len(listen) == 0 {
		return errors.Join(err, s.sh("systemctl daemon-reload"))
	}
	return errors.Join(err, s.Write(socketUnit, []byte("[Socket]\n"+strings.Join(listen, "\n")+"\n"), 0o644),
		s.sh("systemctl daemon-reload; systemctl start supervisord.socket"))
}

// up starts supervisord, and marks it; start is prepare and up.
func (s *story) up([]string) error {
	return errors.Join(s.sh("systemctl start supervisord"), s.mark(nil))
}

func (s *story) start(words []string) error { return errors.Join(s.prepare(words), s.up(nil)) }

// mark remembers who supervisord and the workers of hello are; keep fails unless they are still the same workers.
func (s *story) mark([]string) error {
	s.workers = s.pids("hello")
	err := s.sh("systemctl show --value -p MainPID supervisord")
	s.master = s.out
	s.ts.Setenv("master", s.master)
	return err
}

func (s *story) keep([]string) error {
	if now := s.pids("hello"); !slices.Equal(now, s.workers) {
		return fmt.Errorf("the workers were %v and are %v", s.workers, now)
	}
	return nil
}

// pids returns the PIDs (inside the lab) of the processes with this name, oldest first. It reads the lab's /proc from
// outside, which costs less than a command inside.
func (s *story) pids(name string) (found []string) {
	dirs, _ := filepath.Glob(s.Path("/proc/[0-9]*"))
	for _, dir := range dirs {
		if lab.Text(dir+"/comm") == name+"\n" {
			found = append(found, filepath.Base(dir))
		}
	}
	slices.SortFunc(found, func(a, b string) int { return atoi(a) - atoi(b) })
	return found
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text) // 0: it is no number
	return n
}

// processes fails unless "N NAME" are there; $PID is then that of the first.
func (s *story) processes(words []string) error {
	found := s.pids(words[1])
	if len(found) != atoi(words[0]) {
		return fmt.Errorf("there are %v", found)
	}
	if len(found) > 0 {
		s.ts.Setenv("PID", found[0])
	}
	return nil
}

// replaced waits until there are as many workers of hello as were marked, and none of them, and marks those.
func (s *story) replaced([]string) error {
	return wait(func() error {
		now := s.pids("hello")
		if len(now) != len(s.workers) ||
			slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(s.workers, pid) }) {
			return fmt.Errorf("the workers were %v and are %v", s.workers, now)
		}
		s.workers = now
		return nil
	})
}

// reload sends HUP, and is replaced.
func (s *story) reload([]string) error {
	return errors.Join(s.mark(nil), s.sh("kill -HUP "+s.master), s.replaced(nil))
}

// die kills the master, at any moment, or with "reload" at any moment of a reload, and is succeeded.
func (s *story) die(words []string) error {
	first := ""
	if len(words) > 0 {
		first = "kill -HUP $pid; "
	}
	return errors.Join(s.sh(fmt.Sprintf("systemctl reset-failed supervisord; "+
		"pid=$(systemctl show --value -p MainPID supervisord); echo $pid; %s sleep 0.%03d; kill -9 $pid", first,
		rand.IntN(30))), s.succeeded([]string{s.out}))
}

// succeeded waits until systemd has started another master than the one with this PID.
func (s *story) succeeded(words []string) error {
	return s.sh("tries=0; until [ $(systemctl show --value -p MainPID supervisord) != " + words[0] +
		" ] && systemctl is-active -q supervisord; do tries=$((tries+1)); [ $tries -lt 600 ]; sleep 0.05; done")
}

// down stops supervisord, which must succeed and leave nothing.
func (s *story) down([]string) error {
	return errors.Join(s.sh("systemctl stop supervisord; "+
		"cat /sys/fs/cgroup/system.slice/supervisord.service/cgroup.procs 2>/dev/null | "+
		"sed 's/^/left behind: /'; ls -d /run/supervisord 2>/dev/null || :"), expect(s.out, []string{"="}),
		s.show([]string{"Result=success", "NFileDescriptorStore=0"}))
}

// show fails unless properties of supervisord are NAME=VALUE.
func (s *story) show(words []string) error {
	for _, word := range words {
		name, _, _ := strings.Cut(word, "=")
		if err := s.run([]string{"systemctl", "show", "-p", name, "supervisord", "=>", "=" + word}); err != nil {
			return err
		}
	}
	return nil
}

// journal looks at the entries of this phase: "MATCH… => TEXT…".
func (s *story) journal(words []string) error {
	since := s.began.UnixMicro()
	return errors.Join(s.sh("journalctl --sync"), s.run(append([]string{"journalctl", "--no-pager", "--all", "-q", "-o",
		"cat", fmt.Sprintf("--since=@%d.%06d", since/1e6, since%1e6)}, words...)))
}

var (
	storeCount   = regexp.MustCompile(`NFileDescriptorStore=(\d+)`)
	fdsOfSockets = regexp.MustCompile(`"fds": \[([^\]]*)\]`)
)

// store waits until systemd keeps exactly the descriptors for N ready workers (2): a pidfd, a notify socket and the
// notifications of a filter for each, the sockets of the listener, and the two records. Generations take turns with the
// sockets: one that serves, one on trial, and max_draining.
func (s *story) store(words []string) error {
	workers := atoi(append(words, "2")[0])
	return wait(func() error {
		err := s.sh("supervisord status --json; systemctl show -p NFileDescriptorStore supervisord")
		fds, kept := fdsOfSockets.FindStringSubmatch(s.out), storeCount.FindStringSubmatch(s.out)
		if err != nil || fds == nil || kept == nil {
			return errors.Join(err, fmt.Errorf("there is no status: %s", s.out))
		}
		if n := strings.Count(fds[1], ",") + 1; n > 6 || atoi(kept[1]) != 3*workers+n+2 {
			return fmt.Errorf("%d workers have %d sockets, and the store holds %s", workers, n, kept[1])
		}
		return nil
	})
}

// get requests HOST:PORT/PATH over a new connection: "PLACE [=> TEXT…]".
func (s *story) get(words []string) error {
	address, path, _ := strings.Cut(words[0], "/")
	conn, err := s.Dial(address)(s.t.Context())
	if err != nil {
		return err
	}
	body, err := (&lab.Connection{Address: address, Once: true, Conn: load.NewWire(conn)}).Get("/" + path)
	_, want := cut(words, "=>")
	return errors.Join(err, expect(body, want))
}

// press puts load on 127.0.0.1:8080, of "FRESH [KEEPING]" clients: those that connect for each request, and those that
// keep their connection. It returns when a hundred were answered.
func (s *story) press(words []string) error {
	s.load = lab.PressThrough(s.t, s.Dial("127.0.0.1:8080"), atoi(words[0]), atoi(append(words, "0")[1]),
		2*time.Millisecond)
	return s.answered([]string{"100"})
}

// answered waits until N more requests were answered.
func (s *story) answered(words []string) error {
	want := len(s.load.Attempts()) + atoi(words[0])
	return wait(func() error {
		if n := len(s.load.Attempts()); n < want {
			return fmt.Errorf("only %d of %d requests were answered", n, want)
		}
		return nil
	})
}

// lossless ends the load when it continues still, and fails if a request was lost: then it tells what supervisord has
// said around that.
func (s *story) lossless([]string) error {
	err := s.answered([]string{"20"})
	s.load.Lossless(s.t)
	for at := range s.load.Losses() {
		out, _, failed := s.Try(s.t.Context(), "journalctl", "--no-pager", "-q", "-o", "short-precise", "-t", "supervisord",
			fmt.Sprintf("--since=@%d", at.Unix()-2), fmt.Sprintf("--until=@%d", at.Unix()+1))
		s.t.Logf("the journal around the first loss (%v):\n%s", failed, out)
		break
	}
	return err
}

// begin starts "NAME COMMAND…" in the background; end waits for its end: "NAME [=> TEXT…]".
func (s *story) begin(words []string) error {
	command, ended := s.Command(s.t.Context(), words[1:]...), make(chan string, 1)
	s.begun[words[0]] = ended
	go func() {
		out, err := command.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "%v", err)
		}
		ended <- string(out)
	}()
	return nil
}

func (s *story) end(words []string) error {
	select {
	case s.out = <-s.begun[words[0]]:
	case <-time.After(lab.Patience):
		return fmt.Errorf("it has not ended after %v", lab.Patience)
	}
	_, want := cut(words, "=>")
	return expect(s.out, want)
}

// note notes what a command says; same fails unless all that were noted say the same again.
func (s *story) note(argv []string) error {
	err := s.run(argv)
	s.noted[strings.Join(argv, "\x00")] = s.out
	return err
}

func (s *story) same([]string) error {
	var all error
	for argv, was := range s.noted {
		err := s.run(strings.Split(argv, "\x00"))
		if s.out != was {
			before, now := strings.Split(was, "\n"), strings.Split(s.out, "\n")
			added := slices.DeleteFunc(now, func(line string) bool { return slices.Contains(before, line) })
			err = fmt.Errorf("%q does not say the same; new is %q", argv, added)
		}
		all = errors.Join(all, err)
	}
	clear(s.noted)
	return all
}

// install builds packages of programs, and copies them into the lab.
func (s *story) install(packages []string) (err error) {
	for _, pkg := range packages {
		err = errors.Join(err, s.Copy(lab.Build(s.t, pkg), inside+filepath.Base(pkg)))
	}
	return err
}

// copy copies "FILE PATH" into the lab.
func (s *story) copy(words []string) error { return s.Copy(s.ts.MkAbs(words[0]), words[1]) }

// freeze stops systemd itself; thaw continues it.
func (s *story) freeze([]string) error { return syscall.Kill(s.PID, syscall.SIGSTOP) }
func (s *story) thaw([]string) error   { return syscall.Kill(s.PID, syscall.SIGCONT) }
