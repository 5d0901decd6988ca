package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/rogpeppe/go-internal/txtar"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
)

// problemFiles are the invalid configurations in testdata/problems, by path: c.toml, perhaps files that it includes,
// and "want", all that is said of them.
func problemFiles(t testing.TB) map[string]*txtar.Archive {
	t.Helper()
	paths, err := filepath.Glob("testdata/problems/*.txt")
	if err != nil || len(paths) < 60 {
		t.Fatalf("there are %d files, %v", len(paths), err)
	}
	list := map[string]*txtar.Archive{}
	for _, path := range paths {
		if list[path], err = txtar.ParseFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestBadFilesAreRefusedWithEveryProblemInItsPlace: with -update it writes what is said.
func TestBadFilesAreRefusedWithEveryProblemInItsPlace(t *testing.T) {
	for path, archive := range problemFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			contents := map[string]string{}
			for _, f := range archive.Files {
				contents[f.Name] = string(f.Data)
			}
			dir := must.Files(t, contents)
			_, err := Load(filepath.Join(dir, "c.toml"))
			refused, is := errors.AsType[*document.Error](err)
			if !is {
				t.Fatalf("got a %T, want an *document.Error", err)
			}
			got := strings.ReplaceAll(refused.Error(), dir+"/", "") + "\n"
			if *update {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				must.Do(t, os.WriteFile(path, txtar.Format(archive), 0o644))
			} else if got != contents["want"] {
				t.Errorf("got\n%s\nwant\n%s", got, contents["want"])
			}
		})
	}
}

// TestHostileFilesAreRefused: the size of what is read, and what the decoder would make of it, has bounds.
func TestHostileFilesAreRefused(t *testing.T) {
	const more = ": this is more than any configuration needs"
	for text, want := range map[string]string{
		"a = " + strings.Repeat("[", 100_000):         "c.toml:1: nested too deeply" + more,
		"[a" + strings.Repeat(".a", 100_000) + "]":    "c.toml:1: a key has more than 512 bytes" + more,
		"a = [" + strings.Repeat("1,", 100_000) + "]": "c.toml:1: more than 50000 keys and values" + more,
		strings.Repeat("#", 1<<20+1):                  "c.toml: read c.toml: more than 1048576 bytes",
	} {
		if got := messages(t, map[string]string{"c.toml": text}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := Parse("/", "c.toml", []byte("[program.web]\ncommand = [\"a\"]\n  x = 0660\n")); err == nil ||
		!strings.HasPrefix(err.Error(), "c.toml:3:") || !strings.Contains(err.Error(), `write it in quotes: "0660"`) {
		t.Errorf("syntax: %v", err)
	}
}

// TestWordsOfOthersLeadToKeysThatExist: each key that a word of another program, or a removed one, leads to exists, and
// neither is a key.
func TestWordsOfOthersLeadToKeysThatExist(t *testing.T) {
	known, own := map[string]bool{"": true}, map[string]bool{}
	for _, table := range programTables() {
		for _, key := range table.Keys {
			path := strings.TrimPrefix(table.Path+"."+key, ".")
			known[path], own[document.Plain(path)] = true, true
		}
	}
	words := 0
	for word, key := range newLoader().keys.Words() {
		if words++; own[word] || !known[key] {
			t.Errorf("%s is a key, or leads to %q, which is none", word, key)
		}
	}
	if words < 400 {
		t.Errorf("there are %d words", words)
	}
}

func TestMissingFileIsAProblem(t *testing.T) {
	if got, want := messages(t, nil), "c.toml: cannot read: no such file or directory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func addr(s string) socket.Address { return must.Be(socket.ParseAddress(s)) }

var update = flag.Bool("update", false, "rewrite the golden files")

// written is the line that a remedy says to write.
var written = regexp.MustCompile(
	`(?:write|small letters and _:) ([a-z_.]+ = .+?)(?: in (?:\[|the table)|,? or | and |, without|$)`)

// TestConfigurationsFromIntuition: what people write who have read nothing is answered with the line to write. Each
// file of testdata/intuition has its answers beside it.
func TestConfigurationsFromIntuition(t *testing.T) {
	list, err := filepath.Glob("testdata/intuition/*.toml")
	if err != nil || len(list) < 15 {
		t.Fatalf("there are %d configurations, %v", len(list), err)
	}
	for _, path := range list {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text := must.Get(os.ReadFile(path))(t)
			_, refused := Parse("/srv", filepath.Base(path), text)
			if refused == nil {
				t.Fatal("it is accepted")
			}
			got := refused.Error() + "\n"
			for line := range strings.Lines(got) {
				line = strings.TrimSuffix(line, "\n")
				m := written.FindStringSubmatch(line)
				switch {
				case m != nil:
					var tree map[string]any
					if _, err := toml.Decode(m[1], &tree); err != nil {
						t.Errorf("%s: the line to write is not TOML: %v", m[1], err)
					}
				case !strings.Contains(line, ": remove it") && !strings.Contains(line, ": write [") &&
					!strings.Contains(line, "a number without a unit") &&
					!strings.Contains(line, ": write each program as a table: ["):
					t.Errorf("no line to write: %s", line)
				}
			}
			golden := strings.TrimSuffix(path, "toml") + "txt"
			if *update {
				must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			if want, _ := os.ReadFile(golden); got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// TestWordsOfOtherProgramsMayHaveAnyValue: each word is answered, whatever its value is.
func TestWordsOfOtherProgramsMayHaveAnyValue(t *testing.T) {
	for _, value := range []string{`"x"`, `""`, "7", "-1", "1.5", "true", "[]", `["a", 1]`, `[[]]`, "{}", `{ x = 1 }`,
		"1979-05-27"} {
		tables := map[string]string{}
		for word := range newLoader().keys.Words() {
			table, key, nested := strings.Cut(word, ".")
			if !nested {
				table, key = "", word
			}
			tables[table] += key + " = " + value + "\n"
		}
		for table, keys := range tables {
			header := strings.TrimSuffix("[program.web."+table, ".") + "]\n"
			_, refused := Parse("/srv", "c.toml", []byte(header+keys))
			if refused == nil || strings.Count(refused.Error(), "unknown key") != strings.Count(keys, "\n") {
				t.Errorf("%s%s: got %v", header, value, refused)
			}
		}
	}
}
