package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// environmentCases maps texts of environment files to their variables as Go prints them, or to the error.
var environmentCases = []struct{ name, text, want string }{
	{"plain", "A=1\nB=two words\n", `A="1" B="two words"`},
	{"no line end", "A=1", `A="1"`},
	{"empty values", "A=\nB=''\nC=\"\"", `A="" B="" C=""`},
	{"comments and blank lines", "# a\n\n ; b\n  A=1 # no comment\n", `A="1 # no comment"`},
	{"spaces", "  A =  1 2 \t\r\nB=\t x", `A="1 2" B="x"`},
	{"export", "export A=1\nexport  B='2'\n", `A="1" B="2"`},
	{"the later entry comes later", "A=1\nA=2", `A="1" A="2"`},
	{"equals signs", "A=b=c", `A="b=c"`},
	{"single quotes", "A='$x \\ \"\n#y' \nB=1", `A="$x \\ \"\n#y" B="1"`},
	{"double quotes", "A=\"a\\\"b\\\\c\\$d\\`e\\n\\\nf\ng\"\n", `A="a\"b\\c$d` + "`" + `e\\nf\ng"`},
	{"backslashes", "A=a\\ b\\\nc\\\\d\\ \nB=x\\", `A="a bc\\d " B="x"`},
	{"quotes within", "A=it's \"x\"", `A="it's \"x\""`},
	{"byte order mark", "\ufeffA=1", `A="1"`},
	{"no equals sign", "A=1\nsecret words\n", `f:2: the line has no =: write NAME=VALUE`},
	{"bad name", "\nA-B=1\n", `f:2: "A-B" is not a valid variable name: use letters, digits and _, not beginning with ` +
		`a digit`},
	{"name with a space", "export A B=1",
		`f:1: "export A B" is not a valid variable name: use letters, digits and _, not beginning with a digit`},
	{"no name", "=1", `f:1: "" is not a valid variable name: use letters, digits and _, not beginning with a digit`},
	{"ours", "LISTEN_FDS=1", `f:1: LISTEN_FDS is set by supervisord itself: remove it`},
	{"open single quote", "B=1\nA='x\n\n", `f:2: the quote is not closed: close it`},
	{"open double quote", "A=\"x\\\"\\", `f:1: the quote is not closed: close it`},
	{"behind the quote", "A='x'y",
		`f:1: there is something after the closing quote: remove it, or put all of the value in quotes`},
	{"NUL", "A=x\x00", `f:1: the value has a NUL character: remove it`},
	{"the line after a long value", "A='\n\n'\nB", `f:4: the line has no =: write NAME=VALUE`},
}

func TestEnvironmentFileGrammar(t *testing.T) {
	for _, c := range environmentCases {
		t.Run(c.name, func(t *testing.T) {
			variables, err := parse("f", c.text)
			var got []string
			for _, v := range variables {
				got = append(got, fmt.Sprintf("%s=%q", v.Name, v.Value))
			}
			if err != nil {
				got = []string{err.Error()}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got\n%s\nwant\n%s", s, c.want)
			}
		})
	}
}

func TestEnvironmentIsReadInOrder(t *testing.T) {
	dir := must.Files(t, map[string]string{
		"1.env": "A=1\nB=1\nC=1\n", "2.env": "B=2\nC=2\nD=2\n",
		"d/C": "3 \nsecond line", "d/D": "", "d/E": "\n", "d/F": "a\x00b", "d/.hidden": "x",
	})
	variables, err := Read([]string{filepath.Join(dir, "1.env"), filepath.Join(dir, "2.env"), "-/no/such/file",
		filepath.Join(dir, "d")})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"A": "own", "X": "own"}
	variables.Apply(got)
	want := map[string]string{"X": "own", "A": "1", "B": "2", "C": "3 ", "E": "", "F": "a\nb"}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMissingEnvironmentFileIsReported(t *testing.T) {
	for _, read := range []func() (Variables, error){
		func() (Variables, error) { return Read([]string{"/no/such/file"}) },
		func() (Variables, error) { return Read([]string{"/no/such/dir/"}) },
	} {
		if _, err := read(); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "environment_file") {
			t.Errorf("got %v", err)
		}
	}
}

func TestBadEnvironmentDirIsRefused(t *testing.T) {
	for name, want := range map[string]string{"A-B": "is not a valid variable name",
		"LISTEN_PID": "is set by supervisord itself"} {
		dir := must.Files(t, map[string]string{name: "x"})
		if _, err := Read([]string{dir}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "A"), 0o600))
	if _, err := Read([]string{dir}); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Errorf("a FIFO: %v", err)
	}
	if _, err := readDir(filepath.Join(must.Files(t, map[string]string{"f": ""}), "f")); err == nil {
		t.Error("a file was read as a directory")
	}
}

func TestSymlinkInAnEnvironmentDirIsFollowed(t *testing.T) { // as in a mounted Kubernetes secret
	dir := must.Files(t, map[string]string{"..data/TOKEN": "x"})
	must.Do(t, os.Symlink("..data/TOKEN", filepath.Join(dir, "TOKEN")))
	variables, err := Read([]string{dir})
	if err != nil || len(variables) != 1 || variables[0].Value != "x" {
		t.Errorf("got %+v, %v", variables, err)
	}
}

// FuzzEnvironmentFile: reading returns for any text, and accepted variables are valid in an environment.
func FuzzEnvironmentFile(f *testing.F) {
	for _, c := range environmentCases {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		variables, err := parse("f", text)
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("the error does not say where: %v", err)
		}
		for _, v := range variables {
			if !ValidName(v.Name) || strings.Contains(v.Value, "\x00") || v.Unset {
				t.Errorf("accepted %+v", v)
			}
			again, err := parse("f", v.Name+"='"+strings.ReplaceAll(v.Value, "'", "")+"'\n")
			if err != nil || len(again) != 1 ||
				again[0].Value != strings.ReplaceAll(strings.ReplaceAll(v.Value, "'", ""), "\r\n", "\n") {
				t.Errorf("%+v does not come back in quotes: %+v, %v", v, again, err)
			}
		}
	})
}
