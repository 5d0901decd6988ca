package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// files writes files into a new directory and returns it.
func files(t testing.TB, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load loads one file with this text, which must be valid.
func load(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Load(filepath.Join(files(t, map[string]string{"c.toml": text}), "c.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// messages loads c.toml from these files and returns its errors without the directory.
func messages(t testing.TB, contents map[string]string) string {
	t.Helper()
	dir := files(t, contents)
	_, err := Load(filepath.Join(dir, "c.toml"))
	if err == nil {
		return ""
	}
	var refused *document.Error
	if !errors.As(err, &refused) {
		t.Fatalf("got a %T, want an *document.Error", err)
	}
	return strings.ReplaceAll(withoutColumns(err), dir+"/", "")
}

var column = regexp.MustCompile(`(?m)^([^ ]*:[0-9]+):[0-9]+: `)

// withoutColumns returns the text of problems with lines only: TestProblemsHaveColumns is about columns.
func withoutColumns(problems any) string {
	return column.ReplaceAllString(fmt.Sprint(problems), "$1: ")
}

const minimal = "[program.web]\ncommand = [\"./web\"]\n"

func TestDefaults(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "/run/a:/run/b")
	c := load(t, minimal)
	dir := filepath.Dir(c.Files[0])
	if want := (Settings{LogLevel: "info", LogFormat: "auto", RuntimeDir: "/run/a"}); c.Supervisor.Include != nil ||
		c.Supervisor.RuntimeDir != want.RuntimeDir ||
		c.Supervisor.Control != "/run/a/control.sock" || c.Supervisor.ControlMode() != 0o660 ||
		c.Supervisor.ControlGroup != "" || c.Supervisor.ControlRead != "none" ||
		c.Supervisor.LogLevel != want.LogLevel || c.Supervisor.LogFormat != want.LogFormat || c.Supervisor.Watch ||
		c.Supervisor.PIDFile != "" {
		t.Errorf("supervisor is %+v", c.Supervisor)
	}
	want := Program{
		Name: "web", File: c.Files[0], Line: 1, Command: []string{"./web"}, Directory: dir, Workers: 1, Bind: BindAuto,
		Stdout: Output{Kind: output.Inherit}, Stderr: Output{Kind: output.Inherit},
		Ready:  Ready{Check: ready.Check{Method: ready.Delay, Delay: time.Second}, Timeout: time.Minute},
		Reload: ReloadPolicy{Strategy: All, MaxSurge: 1, MaxDraining: 4},
		Stop:   StopPolicy{Steps: []StopStep{{syscall.SIGTERM, 30 * time.Second}}},
		Restart: Restart{When: Always, BackoffMin: 200 * time.Millisecond, BackoffMax: 30 * time.Second, Budget: 5,
			StableAfter: 10 * time.Second, Generation: Same},
		Hooks: Hooks{Timeout: 30 * time.Second},
		Drain: DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second},
	}
	if p := c.Programs[0]; !p.Equal(want) || p.File != want.File || p.Line != want.Line {
		t.Errorf("program is\n%+v, want\n%+v", p, want)
	}
}

// everything sets every key that is compatible with the others to a value that is not the default.
const everything = `
[supervisor]
pid_file = "run/pid"
log_level = "debug"
log_format = "json"
watch = true
include = ["conf.d/*.toml"]
runtime_dir = "run"
control = "run/c.sock"
control_group = "0"
control_read = "any"
[program.web]
command = ["./web", "", "{fd:http}", "{other}"]
directory = "current"
user = "0"
group = "root"
workers = 3
environment = { LANG = "C.UTF-8", EMPTY = "" }
environment_file = ["web.env", "-env"]
stdout = "null"
stderr = "log/err"
bind = "on"
watch = ["./web", "/etc/web"]
limits.nofile = 65536
limits.core = "unlimited"
limits.rlimits = { as = "512MiB", nice = 20 }
limits.umask = "0027"
limits.nice = -5
limits.oom_score_adj = 100
limits.no_new_privileges = true
limits.ignore_sigpipe = true
limits.ambient_capabilities = ["cap_net_bind_service", "KILL"]
[[program.web.listen]]
name = "http"
address = "127.0.0.1:8080"
handover = "share"
backlog = 100
socket = { reuse_port = true, defer_accept = "5s", fast_open = 256, keep_alive = "30s", interface = "lo" }
nonblock = true
binds = "127.0.0.1:3000"
when_down = "queue 20s"
fd = 7
[[program.web.listen]]
address = "unix:/run/web.sock"
mode = 0o660
user = "root"
group = "0"
[[program.web.listen]]
address = "[::1]:8080"
socket.ipv6_only = false
[program.web.ready]
method = "http"
timeout = "5s"
url = "http://127.0.0.1:9{slot}/{pid}"
interval = "1s"
[program.web.reload]
strategy = "rolling"
max_surge = 2
soak = "2s"
preflight = ["./web", "-check"]
every = "6h"
max_draining = 7
[program.web.stop]
steps = [{ signal = "sigquit", timeout = "20s" }, { signal = "Term", timeout = "infinity" }]
group = true
[program.web.restart]
when = "on-failure"
backoff = { min = "1s", max = "2s" }
budget = 3
stable_after = "3s"
[program.web.compat]
reload_signal = "USR1"
int_signal = "sigint"
generation = "new"
retry = "4s"
status_file = "web.status"
starter_names = { http = "web" }
`

func TestEveryValueArrives(t *testing.T) {
	c := load(t, everything)
	dir := filepath.Dir(c.Files[0])
	umask, nice, oom := 0o027, -5, 100
	want := Program{
		Name: "web", Command: []string{"./web", "", "{fd:http}", "{other}"}, Directory: dir +
			"/current", User: "0", Group: "root", Workers: 3,
		Environment: map[string]string{"LANG": "C.UTF-8", "EMPTY": ""}, EnvironmentFiles: []string{dir + "/web.env",
			"-" + dir + "/env"},
		Stdout: Output{Kind: output.Null}, Stderr: Output{Kind: output.ToFile, Path: dir + "/log/err"},
		Watch: []string{dir + "/current/web", "/etc/web"}, StatusFile: dir + "/web.status", Bind: BindOn,
		Limits: spawn.Limits{
			RLimits: map[string]uint64{"nofile": 65536, "core": spawn.RLimitInfinity, "as": 512 << 20, "nice": 20},
			Umask:   &umask, Nice: &nice, OOMScoreAdj: &oom, NoNewPrivileges: true, IgnoreSIGPIPE: true,
			AmbientCapabilities: []string{"CAP_NET_BIND_SERVICE", "CAP_KILL"},
		},
		Listen: []socket.Spec{
			{Program: "web", Name: "http", Address: addr("127.0.0.1:8080"), Backlog: 100,
				Sockopts: socket.Sockopts{ReusePort: true, DeferAccept: 5 * time.Second, FastOpen: 256,
					KeepAlive: 30 * time.Second, Interface: "lo", NonBlock: true},
				WhenDown: socket.WhenDown{Refuse: true, After: 20 * time.Second}, InWorker: socket.InWorker{FD: socket.FixedFD(7),
					StarterName: "web", Binds: addr("127.0.0.1:3000")}, Handover: socket.Share},
			{Program: "web", Name: "unix:/run/web.sock", Address: addr("unix:/run/web.sock"),
				Access:   socket.Access{Mode: 0o660, User: "root", Group: "0"},
				Handover: socket.Share, Unasked: socket.Unasked{HandoverWhy: unixWhy}, WhenDown: DefaultWhenDown},
			{Program: "web", Name: "[::1]:8080", Address: addr("[::1]:8080"), Sockopts: socket.Sockopts{IPv6Only: "false"},
				Handover: socket.Share,
				WhenDown: DefaultWhenDown,
				Unasked: socket.Unasked{HandoverWhy: `with strategy "rolling" old and new workers serve side by side, ` +
					`and without per_slot they have one socket`}},
		},
		Ready: Ready{Check: ready.Check{Method: ready.HTTP, URL: "http://127.0.0.1:9{slot}/{pid}", Interval: time.Second},
			Timeout: 5 * time.Second},
		Reload: ReloadPolicy{Strategy: Rolling, MaxSurge: 2, Soak: 2 * time.Second, Preflight: []string{"./web", "-check"},
			Retry: 4 * time.Second, Every: 6 * time.Hour, MaxDraining: 7},
		Stop: StopPolicy{Steps: []StopStep{{syscall.SIGQUIT, 20 * time.Second}, {syscall.SIGTERM, Forever}}, Group: true,
			ReloadSignal: syscall.SIGUSR1, IntSignal: syscall.SIGINT},
		Restart: Restart{When: OnFailure, BackoffMin: time.Second, BackoffMax: 2 * time.Second, Budget: 3,
			StableAfter: 3 * time.Second, Generation: New},
		Hooks: Hooks{Timeout: 30 * time.Second},
		Drain: DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second},
	}
	if !c.Programs[0].Equal(want) {
		t.Errorf("program is\n%+v, want\n%+v", c.Programs[0], want)
	}
	s := c.Supervisor
	if s.PIDFile != dir+"/run/pid" || s.LogLevel != "debug" || s.LogFormat != "json" || !s.Watch ||
		s.Include[0] != dir+"/conf.d/*.toml" || s.RuntimeDir != dir+"/run" ||
		s.Control != dir+"/run/c.sock" || s.ControlMode() != 0o666 || s.ControlGroup != "0" || s.ControlRead != "any" {
		t.Errorf("supervisor is %+v", s)
	}
}

func TestPerSlotArrives(t *testing.T) {
	c := load(t, minimal+"[[program.web.listen]]\naddress = \"127.0.0.1:8080\"\nper_slot = true\n")
	if !c.Programs[0].Listen[0].PerSlot {
		t.Errorf("the listener is %+v", c.Programs[0].Listen[0])
	}
}

func TestControlSocketIsInTheRuntimeDirByDefault(t *testing.T) {
	for text, want := range map[string]string{
		"runtime_dir = \"/run/b\"\n":                    "/run/b/control.sock",
		"runtime_dir = \"/run/b\"\ncontrol = \"/c\"\n":  "/c",
		"runtime_dir = \"/run/b\"\ncontrol = \"\"\n":    "",
		"runtime_dir = \"/run/b\"\ncontrol = \"off\"\n": "",
	} {
		if got := load(t, "[supervisor]\n"+text+minimal).Supervisor.Control; got != want {
			t.Errorf("%q: it is at %q, want %q", text, got, want)
		}
	}
}

func TestControlSocketIsFoundThroughAnInvalidConfiguration(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "/run/a")
	for text, want := range map[string]string{
		"[supervisor]\ncontrol = \"/c\"\nlog_level = 7\n[program.web]\nworkers = 0\n": "/c",
		"[supervisor]\ncontrol = \"off\"\n":                                           "",
		"[supervisor]\nruntime_dir = \"/run/b\"\ncontrol = 7\n":                       "/run/b/control.sock",
		"this is not TOML": "/run/a/control.sock",
	} {
		dir := files(t, map[string]string{"c.toml": text})
		got := ControlSockets(filepath.Join(dir, "c.toml"))
		if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[len(got)-1] != want) {
			t.Errorf("%q: it is at %q, want %q", text, got, want)
		}
		if own := len(got) == 2; own != strings.HasSuffix(want, "/control.sock") {
			t.Errorf("%q: it is at %q", text, got)
		}
	}
	if got := ControlSockets("/no/such/file"); len(got) != 2 || got[1] != "/run/a/control.sock" ||
		filepath.Dir(got[0]) != "/run/a" {
		t.Errorf("without a file it is at %q", got)
	}
	if one, other := ControlSockets("/etc/a.toml"), ControlSockets("/etc/b.toml"); one[0] == other[0] ||
		one[1] != other[1] {
		t.Errorf("two configurations have their sockets at %q and %q", one, other)
	}
}

func TestWhoMayReadMayConnect(t *testing.T) {
	for text, want := range map[string]fs.FileMode{
		"control_read = \"none\"\n": 0o660,
		"control_read = \"any\"\n":  0o666,
	} {
		if got := load(t, "[supervisor]\n"+text+minimal).Supervisor.ControlMode(); got != want {
			t.Errorf("%q: the mode is %o, want %o", text, got, want)
		}
	}
}

func TestWorkersAutoIsOnePerCPU(t *testing.T) {
	if n := load(t, minimal+"workers = \"auto\"\n").Programs[0].Workers; n != runtime.GOMAXPROCS(0) {
		t.Errorf("got %d workers, want %d", n, runtime.GOMAXPROCS(0))
	}
}

func TestProgramsAreSortedByName(t *testing.T) {
	c := load(t, "[program.b]\ncommand=[\"b\"]\n[program.a]\ncommand=[\"a\"]\n[program.\"c.d\"]\ncommand=[\"c\"]")
	var names []string
	for _, p := range c.Programs {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "a b c.d" {
		t.Errorf("programs are %s", got)
	}
}

func TestIncludedProgramsAreRelativeToTheirOwnFile(t *testing.T) {
	dir := files(t, map[string]string{
		"c.toml":               "[supervisor]\ninclude = [\"conf.d/*.toml\", \"*.toml\"]\n" + minimal,
		"conf.d/b.toml":        "[program.b]\ncommand = [\"b\"]\nstdout = \"b.log\"\nenvironment_file = [\"../b.env\"]\n",
		"conf.d/a.toml":        "[program.a]\ncommand = [\"a\"]\n",
		"conf.d/.#a.toml":      "this is an editor's lock file",
		"conf.d/a.toml.backup": "nor is this read",
	})
	c, err := Load(filepath.Join(dir, "c.toml"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.Join(c.Files, " "), dir+"/", "")
	if want := "c.toml conf.d/a.toml conf.d/b.toml"; got != want {
		t.Errorf("files are %s, want %s", got, want)
	}
	b := c.Programs[1]
	if b.Directory != dir+"/conf.d" || b.Stdout.Path != dir+"/conf.d/b.log" || b.EnvironmentFiles[0] != dir+"/b.env" ||
		b.File != dir+"/conf.d/b.toml" {
		t.Errorf("program is %+v", b)
	}
	if got := strings.ReplaceAll(strings.Join(c.WatchPaths(), " "), dir,
		""); got != " /c.toml /conf.d /conf.d/a.toml /conf.d/b.toml" {
		t.Errorf("watch paths are %q", got)
	}
}

func TestConfigurationThatIncludesFilesMayHaveNoProgramYet(t *testing.T) {
	dir := files(t, map[string]string{"c.toml": "[supervisor]\ninclude = [\"conf.d/*.toml\"]\n", "conf.d/README": ""})
	c, err := Load(filepath.Join(dir, "c.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Programs) != 0 || len(c.Warnings) != 1 {
		t.Fatalf("it has the programs %v and the warnings %v", c.Programs, c.Warnings)
	}
	want := "c.toml:2: warning: supervisor.include: there is no program: write a table [program.NAME] into a file that " +
		"matches conf.d/*.toml"
	if got := strings.ReplaceAll(withoutColumns(c.Warnings[0]), dir+"/", ""); got != want {
		t.Errorf("the warning is %s, want %s", got, want)
	}
}

func TestIniSectionInATOMLStringIsNotAnIniFile(t *testing.T) {
	c := load(t, minimal+"environment = { TEXT = \"\"\"\n[supervisord]\n\"\"\" }\n")
	if got := c.Programs[0].Environment["TEXT"]; got != "[supervisord]\n" {
		t.Errorf("the variable is %q", got)
	}
}

func TestWarnings(t *testing.T) {
	c := load(t, minimal+"environment_file = [\"no.env\", \"-nofile\", \"nodir\"]\ndirectory = \"gone\"\n"+
		"[program.quiet]\ncommand = [\"true\"]\nready.method = \"delay\"")
	dir := filepath.Dir(c.Files[0])
	var got []string
	for _, w := range c.Warnings {
		got = append(got, strings.ReplaceAll(withoutColumns(w), dir+"/", ""))
	}
	want := `c.toml:2: warning: program.web.command: there is no gone/web: it must exist when a generation starts
c.toml:3: warning: program.web.environment_file: there is no no.env: it must exist when a generation starts
c.toml:3: warning: program.web.environment_file: there is no nodir: it must exist when a generation starts
c.toml:4: warning: program.web.directory: there is no gone: it must exist when a generation starts`
	if strings.Join(got, "\n") != want {
		t.Errorf("warnings are\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

func TestEqualIgnoresOnlyThePlace(t *testing.T) {
	const text = "[program.web]\ncommand = [\"./web\"]\nlimits = { umask = \"0027\" }\nenvironment = { A = \"1\" }\n" +
		"directory = \"/\"\n"
	p, q := load(t, text).Programs[0], load(t, "\n\n"+text).Programs[0]
	if !p.Equal(q) {
		t.Error("the same program in another file is not equal")
	}
	for _, change := range []string{"stop.timeout = \"1s\"", "workers = 2", "limits.nofile = 1",
		"environment_file = \"x\"", "listen = [{ address = \":0\" }]"} {
		text := text
		if strings.HasPrefix(change, "limits") {
			text = strings.Replace(text, "{ umask = \"0027\" }", "{ umask = \"0027\", nofile = 1 }", 1)
			change = ""
		}
		if p.Equal(load(t, text+change).Programs[0]) {
			t.Errorf("a program with other %s is equal", change)
		}
	}
}

func TestRuntimeDirOfAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Setenv("RUNTIME_DIRECTORY", "")
		if got := defaultRuntimeDir(); got != "/run/supervisord" {
			t.Errorf("root's is %s", got)
		}
		t.Skip("the rest needs an ordinary user")
	}
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if got := defaultRuntimeDir(); got != "/run/user/7/supervisord" {
		t.Errorf("with XDG_RUNTIME_DIR it is %s", got)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := defaultRuntimeDir(); !strings.Contains(got, "/supervisord-") {
		t.Errorf("without it is %s", got)
	}
	t.Setenv("TMPDIR", "/proc/missing")
	if got := defaultRuntimeDir(); !strings.HasPrefix(got, "/dev/shm/supervisord-") {
		t.Errorf("without a folder for temporary files it is %s", got)
	}
}

func TestFileThatIsNotRegularIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "c.toml")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", dir} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "not a file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestConfigKeepsNoPartOfTheText: the parser returns substrings of the text, each of which would keep the whole text in
// memory.
func TestConfigKeepsNoPartOfTheText(t *testing.T) {
	text := minimal + "stdout = \"x.log\"\nenvironment = { A = \"1\" }\nwatch = [\"x\"]\n#" + strings.Repeat("x", 900<<10)
	path := filepath.Join(files(t, map[string]string{"c.toml": text}), "c.toml")
	before := heap()
	var kept []*Config
	for range 20 {
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("%d configurations of one small program keep %d KiB", len(kept), grown>>10)
	}
	runtime.KeepAlive(kept)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDialectReplacesTheDefault(t *testing.T) {
	for text, want := range map[string][]dialect.Name{
		"":                                      nil,
		"dialect = []":                          {},
		`dialect = "systemd"`:                   {dialect.Systemd},
		`dialect = ["start_server", "systemd"]`: {dialect.StartServer, dialect.Systemd},
	} {
		got := load(t, web+text+"\nlisten = [{ address = \":1\" }]").Programs[0].Dialects
		if !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s is %#v", text, got)
		}
	}
}

func TestIncludePatternThatWalksOverTheDiskIsRefused(t *testing.T) {
	dir := files(t, map[string]string{"c.toml": "[supervisor]\ninclude = [\"x" + strings.Repeat("/*", 20) + ".toml\"]\n" +
		minimal})
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"a", "b", "c"} { // each directory contains itself three times
		if err := os.Symlink(".", filepath.Join(dir, "x", link)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(filepath.Join(dir, "c.toml"))
	if err == nil || !strings.Contains(withoutColumns(err), "c.toml:2: supervisor.include[0]: ") ||
		!strings.Contains(err.Error(),
			"looks into more than 100000 folders and files: write a pattern with fewer * in the folders") {
		t.Errorf("got %v", err)
	}
}

func TestWorkersAutoCountsTheCPUsThatSupervisordDoesNotUse(t *testing.T) {
	want := CPUs()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(want + 1)) // as supervisord limits its threads
	if c := load(t, "[program.web]\ncommand = [\"sleep\"]\nworkers = \"auto\"\n"); c.Programs[0].Workers != want {
		t.Errorf("%d workers, want %d", c.Programs[0].Workers, want)
	}
}

const oneProgram = "[program.web]\ncommand = [\"true\"]\n[program.web.ready]\nmethod = \"notify\"\n"

func TestHTTPIsOffByDefault(t *testing.T) {
	if c := load(t, oneProgram); c.Supervisor.HTTP.String() != "" || len(c.Warnings) > 0 {
		t.Errorf("http is %q, warnings %v", c.Supervisor.HTTP.String(), c.Warnings)
	}
}

func TestHTTPAddresses(t *testing.T) {
	for address, warned := range map[string]bool{
		"127.0.0.1:9001": false, "[::1]:0": false, "localhost:9001": false, "unix:/run/x.sock": false, "off": false,
		":9001": true, "0.0.0.0:9001": true, "[::]:9001": true, "192.0.2.1:80": true, "host.example:80": true,
	} {
		c := load(t, "[supervisor]\nhttp = \""+address+"\"\n"+oneProgram)
		if want := strings.TrimPrefix(address, "off"); c.Supervisor.HTTP.String() != want {
			t.Errorf("%s: read as %q", address, c.Supervisor.HTTP.String())
		}
		if got := len(c.Warnings) == 1 && strings.Contains(c.Warnings[0].What, "other machines"); got != warned {
			t.Errorf("%s: warnings %v", address, c.Warnings)
		}
	}
}

func TestHTTPAddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"9001", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "unix:x.sock", "unix:",
		"http://x:1", "unix:/" + strings.Repeat("x", 107)} {
		said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp = \"" + address + "\"\n" + oneProgram})
		if !strings.Contains(said, "c.toml:2: supervisor.http: ") {
			t.Errorf("%s: output %q", address, said)
		}
	}
}

func TestTokenWithoutHTTPIsRefused(t *testing.T) {
	said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp_token_file = \"token\"\n" + oneProgram})
	if !strings.Contains(said, "supervisor.http_token_file: does nothing without http") {
		t.Errorf("output %q", said)
	}
}

func TestHostsOfThePage(t *testing.T) {
	c := load(t, "[supervisor]\nhttp = \"127.0.0.1:9001\"\nhttp_hosts = [\"SV.example.net.\", \"b\"]\n"+oneProgram)
	if got := strings.Join(c.Supervisor.HTTPHosts, " "); got != "sv.example.net b" {
		t.Errorf("read as %q", got)
	}
	for _, name := range []string{"", "sv.example.net:443", "https://sv.example.net", "*.example.net"} {
		said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp = \"127.0.0.1:9001\"\nhttp_hosts = \"" + name +
			"\"\n" + oneProgram})
		if !strings.Contains(said, "c.toml:3: supervisor.http_hosts: ") {
			t.Errorf("%s: output %q", name, said)
		}
	}
	said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp_hosts = \"x\"\n" + oneProgram})
	if !strings.Contains(said, "supervisor.http_hosts: does nothing without http") {
		t.Errorf("output %q", said)
	}
}

func TestHooks(t *testing.T) {
	c := load(t, oneProgram+"[program.web.hooks]\nafter_reload = [\"a\", \"b\"]\n")
	if h := c.Programs[0].Hooks; len(h.AfterReload) != 2 || h.ReloadFailed != nil || h.Timeout != 30*time.Second {
		t.Errorf("hooks are %+v", h)
	}
	said := messages(t, map[string]string{"c.toml": oneProgram + "[program.web.hooks]\ntimeout = \"1s\"\n"})
	if !strings.Contains(said, "program.web.hooks.timeout: does nothing without a hook") {
		t.Errorf("output %q", said)
	}
}
