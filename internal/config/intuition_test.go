package config

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

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
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
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
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
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
