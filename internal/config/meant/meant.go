// Package meant says what a person means by a key that supervisord does not have: a word of another program
// (words.txt), a key of another table, or a removed one; and recognizes files of other programs. Its answers are
// instructions with the person's own values in them.
package meant

import (
	"cmp"
	_ "embed" // words.txt
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/pattern"
)

// Keys are the keys that a configuration has.
type Keys struct {
	Program    []KeyTable // the program's own, and those below it
	Supervisor []string   // of [supervisor]
}

// KeyTable is a table below a program and its keys. The path is "" for the program itself.
type KeyTable struct {
	Path string
	Keys []string
}

// synonym is what some words of other programs stand for.
type synonym struct {
	key, how string // the path of a key in a program, and how its value is written: see writers
	remedy   string // what to do instead of any key; "": see key
	words    []string
}

//go:embed words.txt
var wordList string

// words are the entries of words.txt, and the values that it lists, by the name of the list.
var words = sync.OnceValues(func() (entries []synonym, values map[string]map[string]string) {
	values = map[string]map[string]string{}
	list := ""
	for line := range strings.Lines(wordList) {
		line = strings.TrimSuffix(line, "\n")
		below, isBelow := strings.CutPrefix(line, "\t")
		remedy, isRemedy := strings.CutPrefix(line, "! ")
		name, isList := strings.CutPrefix(line, "? ")
		switch {
		case line == "" || line[0] == '#':
		case isBelow && list != "":
			for _, word := range strings.Fields(below) {
				from, to, _ := strings.Cut(word, "=")
				values[list][from] = to
			}
		case isBelow:
			last := &entries[len(entries)-1]
			last.words = append(last.words, strings.Fields(below)...)
		case isRemedy:
			entries = append(entries, synonym{remedy: remedy})
		case isList:
			list, values[name] = name, map[string]string{}
		default:
			key, how, _ := strings.Cut(line, " (")
			entries = append(entries, synonym{key: key, how: strings.TrimSuffix(how, ")")})
		}
	}
	return entries, values
})

// programPrefix is the beginning of the full name of a key of a program; an index is that of an element of an array.
var programPrefix, index = pattern.Lazy(`^program\.("[^"]*"|[^.]+)`), pattern.Lazy(`\[\d+\]`)

// programOf returns the full name of the program of the table v, "program.web"; "": it is in none.
func programOf(v document.Value) string { return programPrefix().FindString(v.Key) }

// pathOf returns the path of the table v in its program, without indexes; "": it is the program.
func pathOf(v document.Value) string {
	return index().ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(v.Key, programOf(v)), "."), "")
}

// Unknown returns what to write instead of a key that the table v does not have, and the full name of the key that the
// author meant. It is the Unknown of a document.
func (k *Keys) Unknown(v document.Value, name string) (meant, remedy string) {
	word := strings.TrimPrefix(pathOf(v)+"."+document.Plain(name), ".")
	if programOf(v) == "" {
		word = "." + word
	}
	if meant, remedy = k.answer(v, word, v.Child(name).Raw); remedy == "" {
		meant, remedy = k.misplaced(v, name)
	}
	return meant, remedy
}

// Scalar returns what to write where v is another value than a table, and its name that of a table. It is the Scalar of
// a document.
func (k *Keys) Scalar(v document.Value) string {
	table := document.Value{In: v.In, Key: programOf(v)}
	if table.Key == "" || strings.Contains(pathOf(v), ".") {
		return ""
	}
	_, remedy := k.answer(table, "="+pathOf(v), v.Raw)
	return remedy
}

// answer is Unknown for a word of words.txt; remedy is "" for any other word.
func (k *Keys) answer(v document.Value, word string, raw any) (meant, remedy string) {
	entries, _ := words()
	for _, e := range entries {
		if !slices.Contains(e.words, word) {
			continue
		}
		value := write(e.how, raw)
		switch {
		case e.remedy != "":
			return "", strings.ReplaceAll(e.remedy, "NAME", cmp.Or(strings.TrimPrefix(programOf(v), "program."), "NAME"))
		case value == "" && word[0] == '=':
			continue
		case value == "":
			return programOf(v) + "." + e.key, "write " + k.table(v, e.key)
		case strings.HasSuffix(e.key, ".url") && !v.Has("method"):
			return programOf(v) + "." + strings.TrimSuffix(e.key, "url") + "method",
				`write method = "http" and ` + line(v, e.key, value)
		}
		return programOf(v) + "." + e.key, "write " + line(v, e.key, value)
	}
	return "", ""
}

// table names a key without a value, or the table that it is.
func (k *Keys) table(v document.Value, path string) string {
	if slices.ContainsFunc(k.Program, func(t KeyTable) bool { return t.Path == path }) {
		return header(v, path)
	}
	at := strings.LastIndex(path, ".")
	return fmt.Sprintf("%s in %s", path[at+1:], header(v, path[:max(at, 0)]))
}

// misplaced is Unknown for a key that belongs in another table.
func (k *Keys) misplaced(v document.Value, name string) (meant, remedy string) {
	value := document.TOML(v.Child(name).Raw)
	table, isTable := v.Child(name).Raw.(map[string]any)
	paths := k.homes(name)
	ofSupervisor := v.Key != "supervisor" && slices.ContainsFunc(k.Supervisor,
		func(key string) bool { return document.Plain(key) == document.Plain(name) })
	switch {
	case ofSupervisor && (v.Key == "" || len(paths) == 0):
		return "", fmt.Sprintf("write %s = %s in [supervisor]", strings.ToLower(name), value)
	case v.Key == "" && isTable && table["command"] != nil:
		return "", "write [" + document.Key("program", name) + "]"
	case len(paths) == 0:
		return "", ""
	case len(paths) > 1:
		return "", "it is a key of several tables: write " + document.List(paths, " or ")
	}
	return programOf(v) + "." + paths[0], "write " + line(v, paths[0], value)
}

// homes returns the paths of the keys of a program that name may stand for where it is not known: keys of that name,
// and those of which it is the table and the name, such as stop_timeout.
func (k *Keys) homes(name string) (paths []string) {
	name = document.Plain(name)
	for _, t := range k.Program {
		table := document.Plain(strings.ReplaceAll(t.Path, ".", ""))
		for _, key := range t.Keys {
			own := document.Plain(key)
			if own == name || table+own == name || table != "" && len(key) > 2 && own+table == name {
				paths = append(paths, strings.TrimPrefix(t.Path+"."+key, "."))
			}
		}
	}
	// The program's own key is more likely than one of a table, and limits.nice than limits.rlimits.nice.
	if len(paths) > 1 && (!strings.Contains(paths[0], ".") || strings.HasPrefix(paths[1], "limits.rlimits.")) {
		return paths[:1]
	}
	return paths
}

// line is the line that sets the key with this path to a value in TOML, and where it goes if that is not the table v.
func line(v document.Value, path, value string) string {
	here := pathOf(v)
	rest, below := strings.CutPrefix(path, here+".")
	if here == "" {
		rest, below = path, true
	}
	inner, _, nested := strings.Cut(rest, ".")
	if programOf(v) != "" && below && (!nested || inner != "listen" && !v.Has(inner)) {
		return rest + " = " + value
	}
	at := strings.LastIndex(path, ".")
	return fmt.Sprintf("%s = %s in %s", path[at+1:], value, header(v, path[:max(at, 0)]))
}

// header is the header of the table with this path in v's program.
func header(v document.Value, table string) string {
	name := strings.TrimSuffix(cmp.Or(programOf(v), "program.NAME")+"."+table, ".")
	if table == "listen" {
		return "[[" + name + "]]"
	}
	return "[" + name + "]"
}

// Words yields every word that stands for a key of a program, with the path of that key; "": there is none.
func (k *Keys) Words() iter.Seq2[string, string] {
	return func(yield func(word, key string) bool) {
		entries, _ := words()
		for _, e := range entries {
			for _, word := range e.words {
				if !strings.ContainsAny(word[:1], "=.") && !yield(word, e.key) {
					return
				}
			}
		}
	}
}
