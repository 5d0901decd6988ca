package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"example.org/supervisord/internal/lab"
)

func TestRunIsTheDefaultCommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-c"}, {"run", "-c"}, {"run", "--config"}} {
		m := lab.Prepare(t)
		m.Write(lab.Web)
		m.Launch(append(args, m.Path("config.toml"))...)
		m.Serves(1)
		m.Finish()
	}
}

func TestCheckReportsOK(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.Web)
	if out, code := m.Run("check", "-c", m.Path("config.toml")); out != "ok\n" || code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckReportsFileAndLine(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.File("c.toml", "[program.web]\ncommand = [\"true\"]\nworkerz = 2\n")
	out, code := m.Run("check", "-c", path)
	if code != 78 || !strings.Contains(out, path+":3:1: ") || !strings.Contains(out, "workers") {
		t.Errorf("exit code %d, and the position or the nearest key is missing: %s", code, out)
	}
}

func TestCheckReportsEveryMistake(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.File("c.toml", "[program.a]\ncommand = \"true\"\n[program.b]\ncommand = [\"true\"]\nworkers = 0\n"+
		"[[program.b.listen]]\naddress = \"nowhere\"\n")
	out, code := m.Run("check", "-c", path)
	for _, place := range []string{":2:1: ", ":5:1: ", ":7:1: "} {
		if code != 78 || !strings.Contains(out, path+place) {
			t.Errorf("exit code %d, and line %s is not reported: %s", code, place, out)
		}
	}
}

func TestCommandGivenAsAStringIsAnErrorWithRemedy(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.File("c.toml", "[program.a]\ncommand = \"./web -v\"\n")
	if out, code := m.Run("check", "-c", path); code != 78 || !strings.Contains(out, `["./web", "-v"]`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckReportsMistakesInIncludedFiles(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	wrong := m.File("conf.d/b.toml", "[program.b]\n\ncommand = 7\n")
	path := m.File("c.toml", "[supervisor]\ninclude = [\"conf.d/*.toml\"]\n[program.a]\ncommand = [\"true\"]\n")
	if out, code := m.Run("check", "-c", path); code != 78 || !strings.Contains(out, wrong+":3:1: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestEveryLineOfCheckBeginsWithAFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.File("c.toml", "[program.a]\ncommand = [\"no-such-command\"]\n")
	if out, code := m.Run("check", "-c", path); code != 0 ||
		!strings.HasPrefix(out, path+":2:1: warning: program.a.command: ") || !strings.HasSuffix(out, "\nok\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	path = m.File("c.toml", "[program.a]\ncommand = \"x\"\nworkerz = 2\n")
	if out, code := m.Run("check", "-c", path); code != 78 || strings.Count(out, "\n") != 2 ||
		strings.Count("\n"+out, "\n"+path+":") != 2 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckPrintsJSON(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	for text, want := range map[string]string{
		"[program.a]\ncommand = [\"true\"]\n": `{"ok":true,"files":["FILE"],"findings":[]}`,
		"[program.a]\ncommand = [\"no-such-command\"]\nenvironment = {PATH = \"/\"}\n": `{"ok":true,"files":["FILE"],"findings":[{"severity":"warning","file":"FILE","line":2,"column":1,"key":"program.a.command",` +
			`"what":"there is no no-such-command in PATH, which is \"/\"","remedy":"it must exist when a generation starts; ` +
			`write its whole path, or set PATH in environment"}]}`,
		"[program.a]\ncommand = [\"true\"]\n workerz = 2\n": `{"ok":false,"findings":[{"severity":"error","file":"FILE","line":3,"column":2,"key":"program.a.workerz","what":"unknown key","remedy":"did you mean workers?"}]}`,
	} {
		path := m.File("c.toml", text)
		out, code := m.Run("check", "--json", "-c", path)
		var compact bytes.Buffer
		lab.Must(t, json.Compact(&compact, []byte(out)))
		if got := strings.ReplaceAll(compact.String(), path, "FILE"); got != want ||
			(code == 0) != strings.HasPrefix(want, `{"ok":true`) {
			t.Errorf("exit code %d: got\n%s\nwant\n%s", code, got, want)
		}
	}
}

func TestCheckNotesWhichListenersAreShared(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.File("c.toml", strings.Replace(strings.TrimPrefix(lab.Web, "\n"), "[program.web.ready]",
		lab.Listener("udp:127.0.0.1:0")+"[program.web.ready]", 1))
	want := path + ":6:1: note: program.web.listen[1].handover: the generations share the listener " +
		"\"udp:127.0.0.1:0\": udp has no connections\nok\n"
	if out, code := m.Run("check", "-c", path); code != 0 || out != want {
		t.Errorf("exit code %d: got\n%swant\n%s", code, out, want)
	}
}

func TestCheckOfAMissingFileNamesTheFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	if out, code := m.Run("check", "-c", m.Path("nowhere.toml")); code != 78 ||
		!strings.Contains(out, m.Path("nowhere.toml")) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckTouchesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write("pid_file = \"{dir}/p.pid\"\n" + strings.Replace(lab.Web, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.Run("check", "-c", m.Path("config.toml"))
	entries, err := os.ReadDir(m.Dir)
	lab.Must(t, err)
	if len(entries) != 1 {
		t.Errorf("files besides the configuration: %v", entries)
	}
}

func TestExampleConfigurationIsValid(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path, err := filepath.Abs("../config.toml.example")
	lab.Must(t, err)
	if out, code := m.Run("check", "-c", path); code != 0 || !strings.HasSuffix(out, "ok\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestVersionIsOneLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}, {"-V"}, {"--version", "-c", "/nothing"}} {
		out, code := lab.Prepare(t).Run(args...)
		if code != 0 || !regexp.MustCompile(`^supervisord \d+\.\d+\.\d+\S* \(.*go1\.\S+, linux/\w+\)\n$`).MatchString(out) {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

func TestVersionAsJSONDescribesTheBuild(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	head, err := exec.Command("git", "-C", lab.Root(""), "rev-parse", "HEAD").Output()
	if stat, missing := os.Stat(lab.Root(".git")); err != nil || missing != nil || !stat.IsDir() {
		t.Skip("the go command records no commit here: the source is in a worktree or not in a git checkout")
	}
	buildWith(t, m.Path("plain"), "-buildvcs=true")
	out, err := exec.Command(m.Path("plain"), "version", "--json").Output()
	lab.Must(t, err)
	var got map[string]any
	lab.Must(t, json.Unmarshal(out, &got))
	if got["commit"] != strings.TrimSpace(string(head)) || got["platform"] != "linux/"+runtime.GOARCH ||
		got["go"] != runtime.Version() {
		t.Errorf("the output is %s", out)
	}
}

// buildWith builds supervisord with flags of go build.
func buildWith(t *testing.T, to string, flags ...string) {
	t.Helper()
	build := exec.Command("go", append(append([]string{"build", "-o", to}, flags...), "./cmd/supervisord")...)
	build.Dir = lab.Root("")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestVersionFromTheScriptIsInTheLogAndTheStatus(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	script := exec.Command(lab.Root("scripts/version"), "--ldflags")
	script.Env = append(os.Environ(), "VERSION=v7.8.9", "COMMIT=fedcba")
	flags, err := script.Output()
	lab.Must(t, err)
	buildWith(t, m.Path("linked"), "-ldflags", strings.TrimSpace(string(flags)))
	out, err := exec.Command(m.Path("linked"), "version", "--json").Output()
	lab.Must(t, err)
	if !strings.Contains(string(out), `"version": "7.8.9"`) || !strings.Contains(string(out), `"commit": "fedcba"`) {
		t.Errorf("the output is %s", out)
	}
	m.Via = []string{"sh", "-c", "shift; exec " + m.Path("linked") + ` "$@"`, "sh"}
	m.Start(lab.Web)
	m.Serves(1)
	if started := m.Await(lab.Says(lab.Starts)); started.Version != "7.8.9" {
		t.Errorf("the log says %s", started.Text)
	}
	if out := m.CtlOK("status"); !strings.HasPrefix(out, "supervisord 7.8.9, PID ") {
		t.Errorf("the status is %s", out)
	}
}

func TestHelpNamesTheCommandsAndTheSignals(t *testing.T) {
	t.Parallel()
	out, code := lab.Prepare(t).Run("--help")
	for _, word := range []string{"Run:", "Deploy:", "Observe:", "Migrate:", "run", "check", "version", "--config", "HUP",
		"TERM", "QUIT", "USR1"} {
		if code != 0 || !strings.Contains(out, word) {
			t.Errorf("exit code %d, and %s is missing: %s", code, word, out)
		}
	}
}

func TestMistakesOnTheCommandLineExitWith2AndSayWhatToWrite(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	config := m.Path("config.toml")
	for line, want := range map[string]string{
		"nonsense-command": `"nonsense-command" is not a command: see ` + "`supervisord --help`",
		"statsu":           `"statsu" is not a command: did you mean status?`,
		"statsu --json":    `"statsu" is not a command: did you mean status?`,
		"help statsu":      `"statsu" is not a command: did you mean status?`,
		config: `"` + config + `" is not a command: write -c ` + config +
			" to name the configuration",
		"check " + config: `"` + config + `" is one argument too many: write -c ` + config +
			" to name the configuration",
		"run too many":                `"too" is one argument too many: write ` + "`supervisord run`",
		"scale":                       "N is missing: write `supervisord scale [PROGRAM] N`",
		"scale web -c " + config:      "N is missing: write `supervisord scale web N`",
		"scale few -c " + config:      `"few" is not a number of workers: write a number such as 4`,
		"scale web many -c " + config: `"many" is not a number of workers: write a number such as 4`,
		"log-level": "LEVEL is missing: write `supervisord log-level LEVEL`; it can be debug, info, " +
			"warn, error",
		"kill web":               "--generation is missing: write `supervisord kill [PROGRAM] --generation N`",
		"pause web -c " + config: "a pause ends by itself: say how long it lasts at most, such as --for 30s",
		"reload --timout 30s":    "unknown flag --timout: did you mean --timeout?",
		"check --nonsense":       "unknown flag --nonsense: see `supervisord check --help`",
		"reload -x":              "unknown flag -x: see `supervisord reload --help`",
		"reload --timeout":       "--timeout needs a value: write --timeout 5m0s",
		"reload --timeout 30":    "--timeout: 30 has no unit: write 30s",
		"reload --timeout soon":  `--timeout: "soon" is not a duration: write one such as 30s or 5m`,
		"reload --timeout 1ms":   "--timeout 1ms is out of range: write 1s to 24h",
		"logs web -n few":        `--lines: "few" is not a number: write one such as 100`,
		"status --json=perhaps":  `--json: "perhaps" is neither true nor false: write --json alone`,
		"status --json --watch": "--watch and --json exclude each other: `supervisord events --json` follows " +
			"what happens",
		"reload --canary -c --hold":      `--canary: "-c" is not a canary: write a number of workers`,
		"reload --wait --no-wait":        "--wait and --no-wait contradict each other: remove one",
		"reload --no-wait --drained":     "--drained waits for the old generation, and --no-wait does not wait: remove one",
		"reload --canary 1 -c " + config: "a canary needs an end",
	} {
		out, code := m.Run(strings.Fields(line)...)
		if _, after, ok := strings.Cut(out, "\n}\n"); ok { // the document of --json
			out = after
		}
		if code != 2 || !strings.HasPrefix(out, "supervisord: "+want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: exit code %d: %swant %s", line, code, out, want)
		}
	}
}

func TestHelpIsNoWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	topics := append(commands(m), "exit-status", "")
	for _, columns := range []string{"", "60"} {
		width := 80
		if columns != "" {
			m.Env = []string{"COLUMNS=" + columns}
			width, _ = strconv.Atoi(columns)
		}
		for _, topic := range topics {
			out, code := m.Run(strings.Fields("help " + topic)...)
			if code != 0 || len(out) < 50 {
				t.Errorf("help %s: exit code %d: %s", topic, code, out)
			}
			examples := false
			for line := range strings.Lines(out) {
				examples = line == "Examples:\n" || examples && line != "\n" // they are commands, which stay whole
				if n := utf8.RuneCountInString(line) - 1; n > width && !examples {
					t.Errorf("help %s has a line of %d columns of %d: %s", topic, n, width, line)
				}
			}
		}
	}
}

func TestHelpHasTheExitStatusOnceAndEachCommandItsOwn(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	all := m.CtlOK("help", "exit-status")
	for _, code := range []string{"0", "1", "2", "10", "11", "12", "13", "14", "15", "16", "69", "77", "78", "130"} {
		if !strings.Contains(all, fmt.Sprintf("\n  %-3s  ", code)) {
			t.Errorf("%s is missing: %s", code, all)
		}
	}
	reload := m.CtlOK("reload", "--help")
	if !strings.Contains(reload, "\n  12   a worker was not ready in time\n") || strings.Contains(reload, "\n  77 ") ||
		!strings.Contains(reload, "help exit-status") {
		t.Errorf("the help of reload is %s", reload)
	}
	if status := m.CtlOK("status", "--help"); strings.Contains(status, "Exit status") {
		t.Errorf("the help of status repeats the exit codes: %s", status)
	}
}

func TestRunWithABadConfigurationExitsWith78(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.Web + "[program.web.stop]\ntimeout = 5\n")
	if out, code := m.Run("run", "-c", m.Path("config.toml")); code != 78 ||
		!strings.Contains(out, m.Path("config.toml")+":") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestConfigurationOfPythonsSupervisorIsNamedWithTheCommandThatConvertsIt(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.File("supervisord.conf",
		"; Ansible managed\n[unix_http_server]\nfile=/tmp/s.sock\n\n[supervisord]\nnodaemon=true\n\n[program:cat]\n"+
			"command=/bin/cat\n")
	for _, args := range [][]string{{"-c", path}, {"run", "-c", path}, {"check", "-c", path}} {
		out, code := m.Run(args...)
		if code != 78 || !strings.Contains(out, path+":2:1: this is the configuration of Python's Supervisor") ||
			!strings.Contains(out, "supervisord convert "+path) {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
	if out, code := m.Run("convert", path); code != 0 || !strings.Contains(out, "[program.cat]") {
		t.Errorf("the command that the remedy names exits with %d: %s", code, out)
	}
}

func TestSupervisordRunsWithNoProgramYetAndStartsTheFirstAtAReload(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("conf.d/README", "")
	m.Start("include = [\"conf.d/*.toml\"]\n")
	m.Await(lab.Contains("there is no program"), lab.Contains("conf.d/*.toml"))
	m.Until("it answers", func() bool { _, code := m.Ctl("status"); return code == 0 })
	m.File("conf.d/web.toml", lab.Web)
	m.CtlOK("reload")
	m.Serves(1)
	m.CtlOK("reload")
	m.Gone(1)
}

func TestPageWhoseAddressIsInUseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken := lab.Occupy(t)
	m := lab.Start(t, "http = \""+taken+"\"\n"+lab.Web)
	if e := m.Await(lab.Says("cannot serve metrics and the page")); !strings.Contains(e.Error, "in use") ||
		!strings.Contains(e.Error, "choose another port") {
		t.Errorf("the log says %s", e.Text)
	}
	m.Serves(1)
}

func TestVerdictOnACommandThatCannotRunNamesNoPID(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(strings.Replace(lab.Web, "{worker}", `"/nonexistent/worker"`, 1))
	if out, code := m.Ctl("reload"); code != 11 || !strings.Contains(out, "worker 2 (slot 0) at step exec") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestRunWithAnAddressInUseExitsWith1AndNamesIt(t *testing.T) {
	t.Parallel()
	taken := lab.Occupy(t)
	m := lab.Prepare(t)
	m.Write(strings.Replace(lab.Web, "127.0.0.1:0", taken, 1))
	out, code := m.Run("run", "-c", m.Path("config.toml"))
	if code != 1 || !strings.Contains(out, taken) || !strings.Contains(out, "in use") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestLogIsJSONWithoutATerminal(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	if first := m.Serves(1); first.Time.IsZero() || first.Level != "info" || first.Program != "web" {
		t.Errorf("the line is %+v", first)
	}
}

func TestLogIsForPeopleOnATerminal(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.Web)
	m.Via = lab.TerminalCommand(t)
	m.Launch("-c", m.Path("config.toml"))
	l := m.Await(lab.Contains("generation 1 serves after"))
	if strings.HasPrefix(l.Text, "{") {
		t.Errorf("on a terminal there is JSON: %s", l.Text)
	}
	m.Cmd.Process.Signal(syscall.SIGTERM)
	m.Ends(0)
}

func TestLogFormatIsAsConfigured(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "log_format = \"console\"\n"+lab.Web)
	if l := m.Await(lab.Contains(" web: generation 1 serves after ")); strings.HasPrefix(l.Text, "{") {
		t.Errorf("with log_format = console: %s", l.Text)
	}
}

func TestLogLevelIsAsConfigured(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "log_level = \"warn\"\n"+lab.WebWith("exit=1"))
	m.Await(lab.Says(lab.StartRetry))
	m.Never(func(l lab.Entry) bool { return l.Level == "info" || l.Level == "debug" })
}

func TestWrongArgumentsExitWith2AndSayWhatIsRight(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for words, want := range map[string]string{
		"scale web 0":      "use `supervisord stop web`",
		"scale web 100001": "at most",
		"completion foo":   "bash",
	} {
		args := append(strings.Fields(words), "-c", m.Path("config.toml"))
		if out, code := m.Run(args...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s", words, code, out)
		}
	}
	if out, code := m.Run("completion"); code != 0 || !strings.Contains(out, "zsh") {
		t.Errorf("completion: exit code %d: %s", code, out)
	}
}

func TestMissingConfigurationIsNamedWhereNoSupervisordAnswers(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	for _, command := range []string{"status", "reload"} {
		path := m.Path("nope.toml")
		if out, code := m.Run(command, "-c", path); code != 69 || !strings.Contains(out, "there is no "+path) {
			t.Errorf("%s: exit code %d: %s", command, code, out)
		}
	}
}
