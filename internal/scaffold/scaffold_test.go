package scaffold

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
)

// project makes a directory shop with files: NAME=TEXT, and NAME! for an executable one.
func project(t *testing.T, files ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shop")
	must.Do(t, os.Mkdir(dir, 0o755))
	for _, file := range files {
		name, text, _ := strings.Cut(file, "=")
		mode := os.FileMode(0o644)
		if n, is := strings.CutSuffix(name, "!"); is {
			name, mode = n, 0o755
		}
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), mode))
	}
	return dir
}

func TestDirectoryThatIsNotThereIsSaidToBeMissing(t *testing.T) {
	if _, err := Find(filepath.Join(t.TempDir(), "nodir")); err == nil || !strings.HasPrefix(err.Error(),
		"there is no directory ") || !strings.Contains(err.Error(), "supervisord init -- ./server") {
		t.Errorf("got %v", err)
	}
}

func TestNamedCommandIsKeptWordByWord(t *testing.T) {
	found := Named("/srv/x", []string{"./my server.sh", `a "b"`, ""})
	text, _ := found.Configuration("/srv/x", true)
	c, err := config.Parse("/srv/x", "c.toml", []byte(text))
	if err != nil || c.Programs[0].Name != "my-server" ||
		strings.Join(c.Programs[0].Command, "|") != `./my server.sh|a "b"|` || c.Programs[0].Directory != "/srv/x" {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestOrdinaryUserIsToldToBind(t *testing.T) {
	for _, ordinary := range []bool{false, true} {
		text, _ := Named("/srv/shop", []string{"npm", "start"}).Configuration("", ordinary)
		if strings.Contains(text, "\nbind = \"on\"\n") != ordinary {
			t.Errorf("ordinary: %v:\n%s", ordinary, text)
		}
	}
	if text, _ := Named("/srv/shop", []string{"celery", "worker"}).Configuration("", true); strings.Contains(text,
		"bind") {
		t.Errorf("a program without a port is told to bind:\n%s", text)
	}
}

// The words of `sh -c` are not split.
func TestCommandOfAShellIsUnderstood(t *testing.T) {
	for script, want := range map[string]string{"exec PORT=5002 ./web": `address = "127.0.0.1:5002"`,
		"exec celery -A tasks worker": "[program.shop.stop]"} {
		found := Named("/srv/shop", []string{"sh", "-c", script})
		if wrong := differs("/srv", found, nil, "has "+want); wrong != "" {
			t.Errorf("%s: no %s: %s", script, want, wrong)
		}
	}
}

// TestProjects reads testdata/projects.txt: the files of a directory shop, as for project, "> COMMAND" or only ">" for
// what Find finds there, and what init makes of it: the name and the command of the program, what its configuration
// has and lacks, or the error. The configuration is valid, and says how to build the program.
func TestProjects(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/projects.txt"))(t)
	for story := range strings.SplitSeq(strings.NewReplacer(`\n`, "\n", `\t`, "\t", "\n", "\x00").Replace(
		strings.TrimSpace(string(text))), "\x00\x00") {
		lines := strings.Split(story, "\x00")
		at := slices.IndexFunc(lines, func(line string) bool { return line[0] == '>' })
		dir, command := project(t, lines[:at]...), strings.Fields(lines[at][1:])
		found, err := Named(dir, command), error(nil)
		if len(command) == 0 {
			found, err = Find(dir)
		}
		for _, line := range append(lines[at+1:], "has command = [") {
			if wrong := differs(dir, found, err, line); wrong != "" {
				t.Errorf("%q: %s: %s", lines[:at+1], line, wrong)
			}
			if strings.HasPrefix(line, "error ") {
				break
			}
		}
	}
}

// differs says how a line of a story is not true.
func differs(dir string, f Found, err error, line string) string {
	what, want, _ := strings.Cut(line, " ")
	if what == "error" {
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Sprintf("%+v, %v", f, err)
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	text, todo := f.Configuration("", false)
	_, err = config.Parse(dir, "c.toml", []byte(text))
	if got := map[string]string{"name": f.Name, "command": strings.Join(f.Command, " "), "has": want,
		"lacks": want}[what]; got != want || err != nil || strings.Contains(text, "\n\n\n") ||
		what == "has" && !strings.Contains(text, want) || what == "lacks" && strings.Contains(text, want) {
		return fmt.Sprintf("%v: got %+v\n%s", err, f, text)
	}
	if !strings.Contains(strings.Join(todo, "\n"), f.Build) {
		return fmt.Sprintf("nothing says how to build it: %q", todo)
	}
	return ""
}

func TestDirectoryThatIsNoProjectIsNamed(t *testing.T) {
	for _, dir := range []string{"/nowhere/at/all", os.Args[0]} {
		if _, err := Find(dir); err == nil || strings.Contains(err.Error(), "recognized") ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
