package document

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"example.org/supervisord/internal/lab/must"
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
		if got := at.Of(path).Line; got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
	if !at[`t."q.k".l.A`].octal || at["arr[0].x"].octal {
		t.Error("octal numbers are not recognized")
	}
}

// FuzzPositions: the scanner returns for any text. In text that the decoder accepts it finds the position of every
// value, and those of the decoder's keys in their order.
func FuzzPositions(f *testing.F) {
	example := must.Get(os.ReadFile("../../../config.toml.example"))(f)
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
		meta, err := toml.Decode(text, &tree)
		if err != nil {
			return
		}
		checkAll(t, at, Value{Raw: tree}, text)
		checkOrder(t, at, meta.Keys(), text)
	})
}

// checkAll: everything in v has a position.
func checkAll(t *testing.T, at Positions, v Value, text string) {
	if _, ok := at[v.Key]; v.Key != "" && !ok {
		t.Errorf("%q has no position in %q", v.Key, text)
	}
	table, _ := v.Raw.(map[string]any)
	for name := range table {
		checkAll(t, at, v.Child(name), text)
	}
	items, _ := v.Elements()
	for _, item := range items {
		checkAll(t, at, item, text)
	}
}

// checkOrder: the positions of the decoder's keys, which know no elements of arrays, are in the order of these keys.
func checkOrder(t *testing.T, at Positions, keys []toml.Key, text string) {
	index := regexp.MustCompile(`\[\d+\]`)
	before := func(a, b Position) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) }
	places := map[string][]Position{}
	for path, p := range at {
		name := index.ReplaceAllString(path, "")
		places[name] = append(places[name], p)
	}
	for name, list := range places {
		slices.SortFunc(list, before)
		places[name] = slices.Compact(list)
	}
	last := Position{}
	for _, key := range keys {
		name := ""
		for _, part := range key {
			if index.MatchString(part) {
				return // it looks like an element of an array
			}
			name = Key(name, part)
		}
		list := places[name]
		if len(list) == 0 || before(list[0], last) < 0 {
			t.Fatalf("%q is at %v, after %v, in %q", name, list, last, text)
		}
		last, places[name] = list[0], list[1:]
	}
}
