package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket"
)

// TestScript runs script/*.txtar: each is a story about one supervisord and the configurations, commands and answers
// that make it. script/README.md has its language.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{Dir: "script", WorkdirRoot: lab.Built.Dir, RequireUniqueNames: true,
		Setup: prepareStory, Cmds: storyCommands(), Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Geteuid() == 0, nil
			case "low-ports": // only root may bind them
				return lab.Number("/proc/sys/net/ipv4/ip_unprivileged_port_start") > 99, nil
			case "long":
				return lab.Long(), nil
			case "flows": // a table of them is permitted
				return (socket.Spec{Handover: socket.Flow}).Unpermitted() == nil, nil
			case "installed":
				return lab.Exists(commandline.Installed), nil
			case "namespaces": // they can be made
				return exec.Command("unshare", "--mount", "--pid", "--fork", "--mount-proc", "true").Run() == nil, nil
			case "reference": // start_server is the one in Perl
				path, _ := exec.LookPath("start_server")
				return strings.Contains(lab.Text(path), "perl"), nil
			}
			if module, is := strings.CutPrefix(name, "perl:"); is {
				return exec.Command("perl", "-M"+module, "-e1").Run() == nil, nil
			}
			return false, fmt.Errorf("there is no such condition")
		}})
}

// story is one script while it runs.
type story struct {
	*lab.Supervisord
	ts      *testscript.TestScript
	running map[string]*lab.Running  // what begin has started, by name
	asked   map[string][]chan string // what begin-get has
	load    *lab.Traffic             // what press has begun
	last    lab.Entry                // what -next comes after
	places  *strings.Replacer        // {free1} and the like
}

type storyKey struct{}

// prepareStory prepares a supervisord in the directory of the script, fills its files and sets its variables.
func prepareStory(e *testscript.Env) error {
	t := e.T().(testing.TB)
	s := &story{Supervisord: lab.PrepareIn(t, e.WorkDir), running: map[string]*lab.Running{},
		asked: map[string][]chan string{}}
	e.Values[storyKey{}] = s
	e.Defer(s.Finish) // testscript removes the directory before the test's own cleanup
	var pairs []string
	free := lab.Reserve(t)
	for name, value := range map[string]string{"free1": free, "port1": free[strings.LastIndex(free, ":")+1:],
		"free2": lab.Reserve(t), "busy": lab.Occupy(t)} {
		e.Setenv(name, value)
		pairs = append(pairs, "{"+name+"}", value)
	}
	s.places = strings.NewReplacer(pairs...)
	me, err := user.Current()
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"me": fmt.Sprintf("%s (uid %s, pid ", me.Username, me.Uid),
		"dir": e.WorkDir, "HOME": os.Getenv("HOME"), "worker": lab.Built.Worker, "supervisord": lab.Built.Supervisord,
		"client": lab.Built.Client, "starter": lab.Built.Starter, "starts": lab.Built.StartServer,
		"hello": lab.Built.Hello, "source": lab.Root(""), "path": os.Getenv("PATH"),
		"cpus": strconv.Itoa(runtime.GOMAXPROCS(0))} {
		e.Setenv(name, value)
	}
	for _, pair := range s.Environ() {
		if name, value, _ := strings.Cut(pair, "="); name == "GORACE" || name == lab.MarkVariable {
			e.Setenv(name, value)
		}
	}
	return filepath.WalkDir(e.WorkDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.WriteFile(path, []byte(s.fill(lab.Text(path))), 0o644)
	})
}

func (s *story) fill(text string) string { return s.places.Replace(s.Fill(text)) }

// looks are the commands that look at something; numbers those whose answer is a number.
var (
	looks   = strings.Fields("ctl tty supervisord document get says holds there proc request json log")
	numbers = strings.Fields("listens children processes")
)

// storyCommands are the commands beside those of testscript.
func storyCommands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){}
	add := func(name string, run func(*story, []string)) {
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			s := ts.Value(storyKey{}).(*story)
			s.ts = ts
			if neg {
				ts.Fatalf("! is not for %s: write what it must not say as '!TEXT'", name)
			}
			run(s, args)
		}
	}
	for name, run := range map[string]func(*story, []string){
		"write": (*story).write, "start": (*story).start, "launch": (*story).launch, "with": (*story).with,
		"file": (*story).file, "via": (*story).via, "count": (*story).count, "post": (*story).post,
		"address": (*story).setAddress, "until": (*story).until, "await": (*story).await, "never": (*story).never,
		"serves": (*story).serves, "gone": (*story).gone, "worker": (*story).worker, "alive": (*story).alive,
		"dead": (*story).dead, "signal": (*story).signal, "reload": (*story).reload, "upgrade": (*story).upgrade,
		"begin": (*story).begin, "said": (*story).said, "begin-get": (*story).beginGet, "end-get": (*story).endGet,
		"in-order": (*story).inOrder, "end": (*story).end, "gate": (*story).gate, "open": (*story).open,
		"times": (*story).times, "connect": (*story).connect, "finish": (*story).finish, "die": (*story).die,
		"ends": (*story).ends, "press": (*story).press, "answers": (*story).answers, "lossless": (*story).lossless,
		"redeploy": (*story).redeploy, "share": (*story).share, "take": (*story).take, "leave": (*story).leave,
		"broken": (*story).broken,
	} {
		add(name, run)
	}
	for _, name := range slices.Concat(looks, numbers) {
		add(name, func(s *story, args []string) { s.must(append([]string{name}, args...)) })
	}
	return all
}

// look runs a command that looks at something, and returns what is not as its words after => want it.
func (s *story) look(words []string) error {
	name := words[0]
	code := "0"
	args, want := cutWords(words[1:], "=>")
	if len(want) > 0 && numeric.MatchString(want[0]) && !slices.Contains(numbers, name) {
		code, want = want[0], want[1:]
	}
	config := []string{"-c", s.Path("config.toml")}
	var err error
	switch name {
	case "ctl":
		err = s.run(code, append(args, config...))
	case "tty":
		argv := append(lab.TerminalCommand(s.T), lab.ProgramFor(args))
		err = s.execute(code, slices.Concat(argv, args, config))
	case "supervisord":
		err = s.run(code, args)
	case "document":
		if err = s.run(code, append(append(args, "--json"), config...)); err == nil {
			err = s.isDocument(code, args[0])
		}
	case "get":
		return s.get(code, args, want)
	case "json":
		return s.json(args)
	case "listens":
		return expect(fmt.Sprint(len(lab.Addresses(s.T, s.PID()))), []string{"=" + want[0]})
	case "children":
		return expect(fmt.Sprint(len(s.PIDs())), []string{"=" + want[0]})
	case "there":
		_, err := os.Lstat(s.ts.MkAbs(args[0]))
		return err
	case "exec": // after until or times; by itself it is testscript's
		return s.ts.Exec(args[0], args[1:]...)
	case "log":
		return expect(s.Log.String(), want)
	case "holds":
		return expect(lab.Text(s.ts.MkAbs(args[0])), want)
	case "proc":
		return expect(s.proc(args[0], args[1]), want)
	case "request":
		_, text := s.Request(args[0], args[1], "")
		return expect(text, want)
	case "processes":
		return expect(fmt.Sprint(len(s.Processes())), []string{"=" + want[0]})
	case "says":
		want = args
	default:
		s.ts.Fatalf("%s cannot be repeated", name)
	}
	if err != nil {
		return err
	}
	return expect(s.ts.ReadFile("stdout")+s.ts.ReadFile("stderr"), want)
}

// pid is the number that a word is, or that the file of this name has.
func (s *story) pid(word string) int {
	if numeric.MatchString(word) {
		return atoi(s.ts, word)
	}
	return atoi(s.ts, strings.TrimSpace(s.ts.ReadFile(word)))
}

// proc is what /proc/PID/FILE has, with lines in place of zero bytes; of fd, lines such as "3 socket:[17]"; of a link,
// where it leads. A process in the middle of execve(2) has an empty environ: it is read again.
func (s *story) proc(pid, file string) string {
	n := s.pid(pid)
	if file == "fd" {
		var lines strings.Builder
		for fd, to := range lab.Descriptors(s.T, n) {
			fmt.Fprintln(&lines, fd, to)
		}
		return lines.String()
	}
	path := proc.Path(n, file)
	if to, err := os.Readlink(path); err == nil {
		return to
	}
	text := lab.Text(path)
	if file == "environ" {
		s.Until("the process has an environment", func() bool { text = lab.Text(path); return text != "" || !lab.Alive(n) })
	}
	return "\n" + strings.ReplaceAll(text, "\x00", "\n")
}

var numeric = regexp.MustCompile(`^\d+$`)

// expect checks a text: =TEXT is all of it but the last newline, ^TEXT its beginning, !TEXT is not in it, ~PATTERN
// matches, and any other TEXT is in it.
func expect(text string, want []string) error {
	for _, w := range want {
		met := strings.Contains(text, w)
		switch {
		case strings.HasPrefix(w, "="):
			met = strings.TrimSuffix(text, "\n") == w[1:]
		case strings.HasPrefix(w, "^"):
			met = strings.HasPrefix(text, w[1:])
		case strings.HasPrefix(w, "!"):
			met = !strings.Contains(text, w[1:])
		case strings.HasPrefix(w, "~"):
			met = regexp.MustCompile(w[1:]).MatchString(text)
		}
		if !met {
			return fmt.Errorf("want %q, got: %s", w, text)
		}
	}
	return nil
}

// must is look that must find everything as it should be.
func (s *story) must(words []string) { s.ts.Check(s.look(words)) }

// until repeats a look until everything is as it should be.
func (s *story) until(words []string) {
	var err error
	defer func() {
		if s.T.Failed() {
			s.T.Logf("the last time: %v", err)
		}
	}()
	s.Until(strings.Join(words, " "), func() bool { err = s.look(words); return err == nil })
}

// times is N looks, each of which must find everything as it should be.
func (s *story) times(words []string) {
	for range atoi(s.ts, words[0]) {
		s.must(words[1:])
	}
}

// run runs supervisord, and execute a command, which must exit with code.
func (s *story) run(code string, args []string) error {
	return s.execute(code, append([]string{lab.ProgramFor(args)}, args...))
}

func (s *story) execute(code string, argv []string) error {
	err := s.ts.Exec(argv[0], argv[1:]...)
	got := 0
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		got = exit.ExitCode()
	} else {
		s.ts.Check(err)
	}
	if strconv.Itoa(got) != code {
		return fmt.Errorf("exit code %d, want %s: %s%s", got, code, s.ts.ReadFile("stdout"), s.ts.ReadFile("stderr"))
	}
	return nil
}

// schema is the schema of the documents that commands print.
var schema = sync.OnceValue(func() *jsonschema.Schema {
	var parsed any
	err := yaml.Unmarshal([]byte(lab.Text(lab.Root("docs/openapi.yaml"))), &parsed)
	if err == nil {
		text, _ := json.Marshal(parsed)
		parsed, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err == nil {
		err = c.AddResource("openapi.json", parsed)
	}
	if err != nil {
		panic(err)
	}
	return c.MustCompile("openapi.json#/components/schemas/CommandReport")
})

// isDocument checks that stdout is one document that follows the schema and agrees with the exit code and stderr.
func (s *story) isDocument(code, command string) error {
	var d struct {
		Command, Host, Error string
		Exit                 int
	}
	out := s.ts.ReadFile("stdout")
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(out)) // one document, and nothing after it
	if err == nil {
		err = schema().Validate(parsed)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	s.ts.Check(json.Unmarshal([]byte(out), &d))
	if strconv.Itoa(d.Exit) != code || d.Command != command || d.Host == "" || (code == "0") != (d.Error == "") ||
		!strings.Contains(s.ts.ReadFile("stderr"), d.Error) {
		return fmt.Errorf("the document does not agree with exit code %s and what stderr says", code)
	}
	return nil
}

// place cuts HOST:PORT/PATH, unix:FILE, or /PATH of the only listener.
func (s *story) place(word string) (address, path string) {
	if strings.HasPrefix(word, "unix:") {
		return word, "/"
	}
	address, path, _ = strings.Cut(word, "/")
	if address == "" {
		address = s.Address()
	}
	return address, "/" + path
}

// get requests HOST:PORT/PATH, or /PATH of the only listener; code 1: it must fail.
func (s *story) get(code string, args, want []string) error {
	address, path := s.place(args[0])
	body, err := lab.Get(address, path)
	if (err != nil) != (code != "0") {
		return fmt.Errorf("%v: %s", err, body)
	}
	if err != nil {
		body = err.Error()
	}
	return expect(body, want)
}

// json checks values in the JSON of the last command: PATH=VALUE, PATH>NUMBER, PATH~PART; !PATH: it is not there, or
// empty.
func (s *story) json(words []string) error {
	var document any
	if err := json.Unmarshal([]byte(s.ts.ReadFile("stdout")), &document); err != nil {
		return err
	}
	for _, word := range words {
		if absent, is := strings.CutPrefix(word, "!"); is {
			if text := value(document, absent); text != "" && text != "[]" && text != "0" && text != "false" {
				return fmt.Errorf("%s is %s", absent, text)
			}
			continue
		}
		at := strings.IndexAny(word, "=>~")
		if at < 0 {
			return fmt.Errorf("%s: want PATH=VALUE, PATH>NUMBER or PATH~PART", word)
		}
		got := value(document, word[:at])
		if !meets(got, word[at:at+1], word[at+1:]) {
			return fmt.Errorf("%s: it is %q", word, got)
		}
	}
	return nil
}

// meets compares a value: with = it is want, with ~ it has want in it, with > it is a number above want.
func meets(got, how, want string) bool {
	switch how {
	case "~":
		return strings.Contains(got, want)
	case ">":
		g, err := strconv.ParseFloat(got, 64)
		w, wrong := strconv.ParseFloat(want, 64)
		return errors.Join(err, wrong) == nil && g > w
	}
	return got == want
}

// value is the value at a path such as programs.0.name, as text; "": there is none.
func value(document any, path string) string {
	for key := range strings.SplitSeq(path, ".") {
		switch d := document.(type) {
		case map[string]any:
			document = d[key]
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n >= len(d) {
				return ""
			}
			document = d[n]
		default:
			return ""
		}
	}
	switch d := document.(type) {
	case nil:
		return ""
	case string:
		return d
	}
	text, _ := json.Marshal(document)
	return string(text)
}

// write writes config.toml. FILE.toml begins inside the table [supervisor]; otherwise the words are sections, with
// "and" between them: "supervisor KEY…", or a program, "NAME [ARGUMENT…] [+ KEY…]", whose worker says when it is ready
// and listens on a port of the kernel's choice; with the argument sleep it does nothing. KEY is a line of TOML.
func (s *story) write(words []string) {
	if strings.HasSuffix(words[0], ".toml") {
		s.Write(s.fill(s.ts.ReadFile(words[0])))
		return
	}
	var head, programs []string
	for len(words) > 0 {
		section, rest := cutWords(words, "and")
		if words = rest; section[0] == "supervisor" {
			head = section[1:]
			continue
		}
		args, keys := cutWords(section[1:], "+")
		command := "{worker}"
		for _, a := range args {
			command += ", " + strconv.Quote(a)
		}
		programs = append(programs, "[program."+section[0]+"]")
		ready := `ready.method = "notify"`
		if slices.Equal(args, []string{"sleep"}) {
			command, ready = "{sleep}", `ready = { delay = "10ms", accepts = false }`
		}
		for _, line := range []string{"command = [" + command + "]", `listen = ["127.0.0.1:0"]`, ready} {
			key, _, _ := strings.Cut(line, " ")
			table, _, _ := strings.Cut(key, ".")
			if !slices.ContainsFunc(keys, func(k string) bool {
				return strings.HasPrefix(k, key+" ") || strings.HasPrefix(k, table+" ")
			}) {
				programs = append(programs, line)
			}
		}
		programs = append(programs, keys...)
	}
	s.Write(s.fill(strings.Join(append(head, programs...), "\n") + "\n"))
}

// cutWords cuts words at the first that is a separator.
func cutWords(words []string, separator string) (before, after []string) {
	if i := slices.Index(words, separator); i >= 0 {
		return words[:i:i], words[i+1:]
	}
	return words, nil
}

// file writes a file of these lines.
func (s *story) file(words []string) {
	s.File(words[0], s.fill(strings.Join(words[1:], "\n")+"\n"))
}

// start writes the configuration and starts supervisord; launch does not wait until generation 1 serves.
func (s *story) start(words []string) {
	s.launch(words)
	s.last = s.Serves(1)
}

// launch starts supervisord with a configuration as for write, or with arguments after --; its PID is $master.
func (s *story) launch(words []string) {
	args := []string{"-c", s.Path("config.toml")}
	if len(words) > 0 && words[0] == "--" {
		args = words[1:]
	} else if len(words) > 0 {
		s.write(words)
	}
	s.Launch(args...)
	s.ts.Setenv("master", strconv.Itoa(s.PID()))
}

// with adds variables to the environment of the supervisord that is started next.
func (s *story) with(words []string) { s.Env = append(s.Env, words...) }

// via is the command that executes supervisord from now on, or none; "terminal": on one.
func (s *story) via(words []string) {
	if s.Via = words; len(words) == 1 && words[0] == "terminal" {
		s.Via = lab.TerminalCommand(s.T)
	}
}

// broken builds the supervisord of breaks, once, as $broken.
func (s *story) broken([]string) {
	path, err := broken()
	s.ts.Check(err)
	s.ts.Setenv("broken", path)
}

// address sets $address to that of the only listener.
func (s *story) setAddress([]string) { s.ts.Setenv("address", s.Address()) }

// post sends "PATH TOKEN" to the page, whose address the last line found has.
func (s *story) post(words []string) {
	var line struct{ Address string }
	s.ts.Check(json.Unmarshal([]byte(s.last.Text), &line))
	r, err := http.NewRequest(http.MethodPost, "http://"+line.Address+words[0], nil)
	s.ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+words[1])
	r.Close = true
	answer, err := http.DefaultTransport.RoundTrip(r)
	s.ts.Check(err)
	answer.Body.Close()
	if answer.StatusCode >= 300 {
		s.ts.Fatalf("%s", answer.Status)
	}
}

// conditions on a line of the log: FIELD=VALUE, FIELD~PART, FIELD>NUMBER, or a TEXT in the line, !TEXT not in it;
// -next: after the last one found.
func (s *story) conditions(words []string) (n int, conds []lab.Cond) {
	n = 1
	for _, word := range words {
		if word == "-next" {
			conds = append(conds, lab.After(s.last))
			continue
		}
		if many, is := strings.CutPrefix(word, "-n="); is {
			n, _ = strconv.Atoi(many)
			continue
		}
		field := logField.FindStringSubmatch(word)
		conds = append(conds, func(l lab.Entry) bool {
			if text, absent := strings.CutPrefix(word, "!"); field == nil {
				return strings.Contains(l.Text, text) != absent
			}
			var entry map[string]any
			json.Unmarshal([]byte(l.Text), &entry) // what is not JSON has no fields
			got := value(entry, field[1])
			return (got != "" || field[2] == "=") && meets(got, field[2], field[3])
		})
	}
	return n, conds
}

var logField = regexp.MustCompile(`^([a-z_]+)([=~>])(.*)$`)

// await waits for lines of the log; $LINE is then the last of them, and $PID the PID in it, or the number at its end.
func (s *story) await(words []string) {
	n, conds := s.conditions(words)
	s.last = s.AwaitN(n, conds...)[n-1]
	s.ts.Setenv("LINE", s.last.Text)
	if s.last.PID != 0 {
		s.ts.Setenv("PID", strconv.Itoa(s.last.PID))
	} else if number := lastNumber.FindString(s.last.Text); number != "" {
		s.ts.Setenv("PID", number)
	}
}

var lastNumber = regexp.MustCompile(`\d+$`)

func (s *story) never(words []string) {
	_, conds := s.conditions(words)
	s.Never(conds...)
}

// count fails unless exactly so many lines so far meet the conditions.
func (s *story) count(words []string) {
	_, conds := s.conditions(words[1:])
	want := atoi(s.ts, words[0])
	s.AwaitN(want, conds...) // what a command has answered for may not have been read
	if n := s.Count(conds...); n != want {
		s.ts.Fatalf("%d lines are so", n)
	}
}

func about(words []string) []string {
	about := []string{"generation=" + words[0]}
	if len(words) > 1 {
		about = append(about, "program="+words[1])
	}
	return about
}

// serves waits until "GENERATION [PROGRAM]" serves; gone until it is gone; worker for its first worker, $PID.
func (s *story) serves(words []string) { s.await(append(about(words), "msg="+lab.GenerationServes)) }
func (s *story) gone(words []string)   { s.await(append(about(words), "msg="+lab.GenerationGone)) }
func (s *story) worker(words []string) { s.await(append(about(words), "msg="+lab.WorkerRuns)) }

func (s *story) alive(pids []string) {
	for _, pid := range pids {
		if !lab.Alive(s.pid(pid)) {
			s.ts.Fatalf("%s is dead", pid)
		}
	}
}

// dead waits until processes are dead.
func (s *story) dead(pids []string) {
	for _, pid := range pids {
		s.Until(pid+" is dead", func() bool { return !lab.Alive(s.pid(pid)) })
	}
}

func atoi(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// signal sends "SIGNAL [PID or NAME]"; without a name to supervisord.
func (s *story) signal(words []string) {
	sig := unix.SignalNum("SIG" + words[0])
	if sig == 0 {
		s.ts.Fatalf("%s is not a signal", words[0])
	}
	if len(words) == 1 {
		s.last = s.Last()
		s.Signal(sig)
	} else if a := s.running[words[1]]; a != nil {
		s.ts.Check(a.Cmd.Process.Signal(sig))
	} else {
		s.ts.Check(syscall.Kill(s.pid(words[1]), sig))
	}
}

// reload sends HUP, and waits for the line that answers it.
func (s *story) reload([]string) { s.last = s.Reload() }

// upgrade sends USR2, and waits until supervisord was upgraded.
func (s *story) upgrade([]string) { s.last = s.Upgrade(lab.Upgraded) }

// begin starts "NAME COMMAND…" in the background; said waits until it has said a text; end for its end.
func (s *story) begin(words []string) { s.running[words[0]] = s.CtlStart(words[1:]...) }

func (s *story) said(words []string) {
	for _, text := range words[1:] {
		s.running[words[0]].Says(text)
	}
}

func (s *story) end(words []string) {
	if len(words) < 3 || words[1] != "=>" {
		s.ts.Fatalf("write: end NAME => CODE [TEXT…]")
	}
	s.ts.Check(expect(s.running[words[0]].Ends(atoi(s.ts, words[2])), words[3:]))
}

// begin-get is get in the background, by so many clients with -n=N: it returns when their connections are open, or with
// -connecting at once. end-get waits until each has its answer, or the reason why it has none.
func (s *story) beginGet(words []string) {
	n, connecting := 1, false
	for ; strings.HasPrefix(words[0], "-"); words = words[1:] {
		if many, is := strings.CutPrefix(words[0], "-n="); is {
			n = atoi(s.ts, many)
		}
		connecting = connecting || words[0] == "-connecting"
	}
	address, path := s.place(words[1])
	for range n {
		c, answer := &lab.Connection{Address: address, Once: true}, make(chan string, 1)
		if !connecting {
			s.ts.Check(c.Connect())
		}
		go func() {
			text, err := c.Get(path)
			if err != nil {
				text += "no answer: " + err.Error()
			}
			answer <- text
		}()
		s.asked[words[0]] = append(s.asked[words[0]], answer)
	}
}

func (s *story) endGet(words []string) {
	name, want := cutWords(words, "=>")
	for _, answer := range s.asked[name[0]] {
		if len(want) == 0 {
			want = []string{"!no answer"}
		}
		s.ts.Check(expect(<-answer, want))
	}
	delete(s.asked, name[0])
}

// share makes N connections to the only listener, and fails unless GENERATION answers PERCENT of them: all, or within
// five standard deviations; chance goes beyond once in 1.7 million. Small shares go beyond them more often, but hardly
// ever by 1.5 points.
func (s *story) share(words []string) {
	address, n, answered := s.Address(), atoi(s.ts, words[0]), 0
	for range n {
		if strings.HasPrefix(lab.Ask(s.T, address, "/"), "generation="+words[1]+" ") {
			answered++
		}
	}
	want, err := strconv.ParseFloat(words[2], 64)
	s.ts.Check(err)
	got, bound := 100*float64(answered)/float64(n), max(1.5, 5*math.Sqrt(want*(100-want)/float64(n)))
	if math.Abs(got-want) > bound || want == 100 && answered < n {
		s.ts.Fatalf("%.2f%% of %d connections, want %g%%, give or take %.2f", got, n, want, bound)
	}
}

// in-order waits for two lines, with -- between what they have, of which the first must come first.
func (s *story) inOrder(words []string) {
	first, second := cutWords(words, "--")
	s.await(first)
	before := s.last
	if s.await(second); s.last.N < before.N {
		s.ts.Fatalf("the second came first:\n%s\n%s", s.last.Text, before.Text)
	}
}

// gate makes gates, at which workers with the argument gate={dir}/NAME wait; open lets one pass.
func (s *story) gate(names []string) {
	for _, name := range names {
		s.Gate(name)
	}
}

func (s *story) open(names []string) { s.Open(s.Path(names[0])) }

// connect opens "N [ADDRESS]" connections, by default to the only listener, which stay open until the end.
func (s *story) connect(words []string) {
	address, _ := s.place(append(words, "/")[1])
	for range atoi(s.ts, words[0]) {
		c, err := net.DialTimeout("tcp", address, lab.Patience)
		s.ts.Check(err)
		s.ts.Defer(func() { c.Close() })
	}
}

// press puts load on "CLIENTS [ADDRESS]", by default on the only listener: clients that connect for each request, or of
// which half keep their connection with -keep. answers waits until a generation has answered one of them. lossless ends
// the load, and fails if a request was lost, or unless that many generations have answered.
func (s *story) press(words []string) {
	press := lab.PressNew
	if words[0] == "-keep" {
		words, press = words[1:], lab.Press
	}
	address, _ := s.place(append(words, "/")[1])
	s.load = press(s.T, address, atoi(s.ts, words[0]), 5*time.Millisecond)
}

func (s *story) answers(words []string) {
	s.Until("generation "+words[0]+" has answered", func() bool { return s.load.By(atoi(s.ts, words[0])) })
}

func (s *story) lossless(words []string) {
	if n := s.load.Lossless(s.T); len(words) > 0 && n != atoi(s.ts, words[0]) {
		s.ts.Fatalf("%d generations have answered", n)
	}
}

// redeploy reloads three times under load; the worker may lose so many requests each time it stops, or none.
func (s *story) redeploy(words []string) {
	most := 0
	if len(words) > 0 {
		most = atoi(s.ts, words[0])
	}
	s.RedeployWithLoss(most)
}

// take sets a variable to what the last command has printed.
func (s *story) take(words []string) {
	s.ts.Setenv(words[0], strings.TrimSpace(s.ts.ReadFile("stdout")))
}

// leave sends RTMIN+1, at which supervisord ends with 0 and leaves its workers.
func (s *story) leave([]string) {
	s.Signal(syscall.Signal(35))
	s.Wait()
	if state := s.Cmd.ProcessState; !state.Success() {
		s.ts.Fatalf("supervisord ended with %v", state)
	}
}

// finish ends supervisord, which must leave nothing; ends waits until it has ended by itself with this code; die kills
// it and leaves its workers, which sweep kills.
func (s *story) finish([]string)     { s.Finish() }
func (s *story) ends(words []string) { s.Ends(atoi(s.ts, words[0])) }

func (s *story) die(words []string) {
	s.Die()
	if len(words) > 0 {
		s.Sweep()
	}
}
