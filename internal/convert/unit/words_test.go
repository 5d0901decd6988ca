package unit

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCommandsAreSplitAsSystemdDoes(t *testing.T) {
	for value, want := range map[string][]string{
		"":                               nil,
		`/bin/a  b	c`:                    {"/bin/a", "b", "c"},
		`a "b c" 'd "e"' f\x20g h\sj ""`: {"a", "b c", `d "e"`, "f g", "h j", ""},
		`a "\t\n\\\"" '\'' \u00e4 \101`:  {"a", "\t\n\\\"", "'", "ä", "A"},
		`--x="a b" c"d"e`:                {"--x=a b", "cde"},
	} {
		if got, err := split(value); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", value, got, err, want)
		}
	}
	for _, value := range []string{`a "b`, `a 'b`, `a \q`, `a \`, `\x0`, `\x00`, `\U00110000`, `\400`} {
		if got, err := split(value); err == nil {
			t.Errorf("%s: %q", value, got)
		}
	}
}

func TestTimeSpansAreReadAsSystemdDoes(t *testing.T) {
	for value, want := range map[string]float64{"5": 5, "1.5": 1.5, "1min 30s": 90, "2h": 7200, "1min30": 90, "100ms": 0.1,
		"1d 2hours": 93600, "infinity": -1, "10 us": 1e-5, "": 0, "1M": 30.44 * 86400} {
		if got, ok := seconds(value, 1); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{"x", "5 parsecs", "-1", "1..2", "5s5x", "infinity 1"} {
		if got, ok := seconds(value, 1); ok {
			t.Errorf("%s: %v", value, got)
		}
	}
}

func TestNamesOfUnitsAreTakenApart(t *testing.T) {
	f := &file{name: nameOf(`foo-bar@a-b\x2dc.service`)}
	for letter, want := range map[byte]string{'n': `foo-bar@a-b\x2dc.service`, 'N': `foo-bar@a-b\x2dc`, 'p': "foo-bar",
		'P': "foo/bar", 'i': `a-b\x2dc`, 'I': "a/b-c", 'j': "bar", 'f': "/a/b-c", '%': "%"} {
		if got, ok := f.specifier(letter); !ok || got != want {
			t.Errorf("%%%c: %q, %v; want %q", letter, got, ok, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`/bin/x "a b" 'c' \x20`)
	f.Fuzz(func(t *testing.T, value string) {
		words, err := split(value)
		quoted := make([]string, len(words))
		for i, word := range words {
			quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
		}
		if again, bad := split(strings.Join(quoted, " ")); err != nil && words != nil || bad != nil ||
			!slices.Equal(again, words) {
			t.Errorf("%q, %v: quoted they are %q, %v", words, err, again, bad)
		}
		if total, ok := seconds(value, 1); !ok && total != 0 || ok && total < 0 && strings.TrimSpace(value) != "infinity" {
			t.Errorf("%q is %v seconds", value, total)
		}
	})
}
