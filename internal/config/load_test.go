package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/lab/must"
)

// load loads one file with this text, which must be valid.
func load(t testing.TB, text string) *Config {
	t.Helper()
	c := must.Get(Load(filepath.Join(must.Files(t, map[string]string{"c.toml": text}), "c.toml")))(t)
	return c
}

// messages loads c.toml from these files and returns its errors without the directory.
func messages(t testing.TB, contents map[string]string) string {
	t.Helper()
	dir := must.Files(t, contents)
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

func TestControlSocketIsFoundThroughAnInvalidConfiguration(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "/run/a")
	for text, want := range map[string]string{
		"[supervisor]\ncontrol = \"/c\"\nlog_level = 7\n[program.web]\nworkers = 0\n": "/c",
		"[supervisor]\ncontrol = \"off\"\n":                                           "",
		"[supervisor]\nruntime_dir = \"/run/b\"\ncontrol = 7\n":                       "/run/b/control.sock",
		"this is not TOML": "/run/a/control.sock",
	} {
		dir := must.Files(t, map[string]string{"c.toml": text})
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

func TestIncludedProgramsAreRelativeToTheirOwnFile(t *testing.T) {
	dir := must.Files(t, map[string]string{
		"c.toml":               "[supervisor]\ninclude = [\"conf.d/*.toml\", \"*.toml\"]\n" + minimal,
		"conf.d/b.toml":        "[program.b]\ncommand = [\"b\"]\nstdout = \"b.log\"\nenvironment_file = [\"../b.env\"]\n",
		"conf.d/a.toml":        "[program.a]\ncommand = [\"a\"]\n",
		"conf.d/.#a.toml":      "this is an editor's lock file",
		"conf.d/a.toml.backup": "nor is this read",
	})
	c := must.Get(Load(filepath.Join(dir, "c.toml")))(t)
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
	dir := must.Files(t, map[string]string{"c.toml": "[supervisor]\ninclude = [\"conf.d/*.toml\"]\n", "conf.d/README": ""})
	c := must.Get(Load(filepath.Join(dir, "c.toml")))(t)
	if len(c.Programs) != 0 || len(c.Warnings) != 1 {
		t.Fatalf("it has the programs %v and the warnings %v", c.Programs, c.Warnings)
	}
	want := "c.toml:2: warning: supervisor.include: there is no program: write a table [program.NAME] into a file that " +
		"matches conf.d/*.toml"
	if got := strings.ReplaceAll(withoutColumns(c.Warnings[0]), dir+"/", ""); got != want {
		t.Errorf("the warning is %s, want %s", got, want)
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
	must.Do(t, unix.Mkfifo(fifo, 0o600))
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
	path := filepath.Join(must.Files(t, map[string]string{"c.toml": text}), "c.toml")
	before := heap()
	var kept []*Config
	for range 20 {
		c := must.Get(Load(path))(t)
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

func TestIncludePatternThatWalksOverTheDiskIsRefused(t *testing.T) {
	include := "include = [\"x" + strings.Repeat("/*", 20) + ".toml\"]\n"
	dir := must.Files(t, map[string]string{"c.toml": "[supervisor]\n" + include + minimal})
	must.Do(t, os.Mkdir(filepath.Join(dir, "x"), 0o755))
	for _, link := range []string{"a", "b", "c"} { // each directory contains itself three times
		must.Do(t, os.Symlink(".", filepath.Join(dir, "x", link)))
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
