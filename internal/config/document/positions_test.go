package document

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestPositions(t *testing.T) {
	const text = "\ufeff# comment = 1\n" + `a = """
x = 1 \"""
""""" # a text that ends with two quotes
b.c = '''
]'''
[t."q.k".'l'] # [no]
"\u0041" = 0o17
list = [ # =
  { x = 1, y = { z = 2 } },
  [1,
   2], "}",
]
[[arr]]
x = 1
[arr.sub]
y = 1
[[arr]]
[[arr.deep]]
z = '\'
[later.sub]
[later]
`
	at, _, err := findPositions(text)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"a": 2, "b.c": 5, `t."q.k".l`: 7, `t."q.k".l.A`: 8, `t."q.k".l.list`: 9, `t."q.k".l.list[0].y.z`: 10,
		`t."q.k".l.list[1]`: 11, `t."q.k".l.list[1][1]`: 12, `t."q.k".l.list[2]`: 12, "arr[0]": 14, "arr[0].x": 15,
		"arr[0].sub.y": 17,
		"arr[1]":       18, "arr[1].deep[0]": 19, "arr[1].deep[0].z": 20, "later.sub": 21, "later": 22,
		"later.nothing.at.all": 22, "nothing": 0,
	} {
		if got := at.of(path).Line; got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
	if !at[`t."q.k".l.A`].octal || at["arr[0].x"].octal {
		t.Error("octal numbers are not recognized")
	}
}

// FuzzPositions: the scanner returns for any text, and finds the position of every value in text that the decoder
// accepts.
func FuzzPositions(f *testing.F) {
	example, err := os.ReadFile("../../../config.toml.example")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add(regexp.MustCompile(`(?m)^#([a-z\[{}\]])`).ReplaceAllString(string(example), "$1"))
	for _, text := range []string{
		"", "[", "]", "=", "a", "a =", "a = [", "a = {", "a = \"", "[a", "[[a]", "[a]\n[a]\n", "a = 1\na.b = 2\n",
		"a = {b = [1, {c = 2}], \"d.e\" = 3}\n",
		"[a]\nb = ./x\n", "[[a]]\nb = 0o17\n[[a]]\n[a.c]\n", "a = 1979-05-27\n", "a = [ # x\n 1,\n]\n",
		"; ini\n[program:x]\ncommand=y ; z\n",
		"a = " + strings.Repeat("[", 40), "[a" + strings.Repeat(".a", 400) + "]",
	} {
		f.Add(text)
	}
	f.Add("a = \"\"\"\\\"\"\"\"\"\nb={a={},\nb=[[],[{}]]}\n[[a.b]]\n[[a.b.'']]\n")
	f.Fuzz(func(t *testing.T, text string) {
		at, _, err := findPositions(text)
		if err != nil {
			return
		}
		var tree map[string]any
		if _, err := toml.Decode(text, &tree); err != nil {
			return
		}
		Value{In: &Document{}, Raw: tree}.walk(func(v Value) {
			if _, ok := at[v.Key]; v.Key != "" && !ok {
				t.Errorf("%q has no position in %q", v.Key, text)
			}
		})
	})
}
