// Package meant says what a person means by a key that supervisord does not have: a word of another program, a key of
// another table, a misspelt or a removed one; and recognizes files of other programs. Its answers are instructions with
// the person's own values in them.
package meant

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
)

// Keys are the keys that a configuration has.
type Keys struct {
	Program    []KeyTable // the program's own, and those below it
	Supervisor []string   // of [supervisor]

	once  sync.Once
	words map[string]meaning // see meanings
}

// KeyTable is a table below a program and its keys. The path is "" for the program itself.
type KeyTable struct {
	Path string
	Keys []string
}

// join is the path of a key below a program.
func join(table, key string) string { return strings.TrimPrefix(table+"."+key, ".") }

// homes returns the paths of the keys of a program that name may stand for where it is not known: keys of that name,
// and those of which it is the table and the name, such as stop_timeout.
func (k *Keys) homes(name string) (paths []string) {
	name = document.Plain(name)
	for _, t := range k.Program {
		for _, key := range t.Keys {
			combined := document.Plain(strings.ReplaceAll(t.Path, ".", "") + key)
			if own := document.Plain(key); own == name || combined == name ||
				t.Path != "" && len(key) > 2 && own+document.Plain(t.Path) == name {
				paths = append(paths, join(t.Path, key))
			}
		}
	}
	if len(paths) > 1 && !strings.Contains(paths[0], ".") { // the program's own key is more likely
		return paths[:1]
	}
	if len(paths) > 1 && strings.HasPrefix(paths[1], "limits.rlimits.") { // nice
		return paths[:1]
	}
	return paths
}

// place returns where a key belongs that the table v does not have, and its full name; "": nowhere.
func (k *Keys) place(v document.Value, name string) (meant, remedy string) {
	raw := v.Child(name).Raw
	if slices.ContainsFunc(k.Supervisor,
		func(key string) bool { return document.Plain(key) == document.Plain(name) }) && len(k.homes(name)) == 0 {
		return "", fmt.Sprintf("it is a key of [supervisor]: write it there, %s = %s", strings.ToLower(name),
			document.TOML(raw))
	}
	paths := k.homes(name)
	switch len(paths) {
	case 0:
		return "", ""
	case 1:
		return fullName(v, paths[0]), instruct(v, paths[0], raw)
	}
	return "", fmt.Sprintf("it is a key of several tables: write %s", or(paths))
}

// misspelt is place for a key that looks like one of another table, and like none of the table v.
func (k *Keys) misspelt(v document.Value, name string) (meant, remedy string) {
	var own, others []string
	here := strings.TrimPrefix(strings.TrimPrefix(genericName(v.Key), "program"), ".")
	for _, t := range k.Program {
		if t.Path == here {
			own = t.Keys
		} else if t.Path != "limits.rlimits" { // whose names are short
			others = append(others, t.Keys...)
		}
	}
	near, is := document.Nearest(name, others)
	if _, typo := document.Nearest(name, own); typo || !is || len(name) < 4 || len(k.homes(near)) != 1 {
		return "", ""
	}
	path := k.homes(near)[0]
	return fullName(v, path), fmt.Sprintf("did you mean %s? %s", path, instruct(v, path, v.Child(name).Raw))
}

// or lists words as alternatives.
func or(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// programOf returns the full name of the program of the table v, "program.web"; "": it is in none.
func programOf(v document.Value) string { return programPrefix().FindString(v.Key) }

// fullName is the name in v's program of the key with this path.
func fullName(v document.Value, path string) string { return join(programOf(v), path) }

// instruct is the instruction to set the key with this path, such as "reload.soak", instead of what the table v has.
func instruct(v document.Value, path string, raw any) string {
	return "write " + line(v, path, document.TOML(raw))
}

// line is the line that sets the key with this path to a value in TOML, and where it goes if that is not where the
// table v is.
func line(v document.Value, path, value string) string {
	program := programOf(v)
	table, key := "", path
	if at := strings.LastIndex(path, "."); at >= 0 {
		table, key = path[:at], path[at+1:]
	}
	text := key + " = " + value
	here := strings.TrimPrefix(strings.TrimPrefix(genericName(v.Key), "program"), ".")
	rest, below := path, here == "" && program != ""
	if !below && program != "" {
		rest, below = strings.CutPrefix(path, here+".")
	}
	switch inner, _, nested := strings.Cut(rest, "."); {
	case program == "":
		return fmt.Sprintf("%s in [%s]", text, strings.TrimSuffix("program.NAME."+table, "."))
	case below && here == "" && inner == "listen" && nested:
		return listening(v, strings.TrimPrefix(path, "listen."), value)
	case below && (!nested || !v.Has(inner)):
		return rest + " = " + value
	case below:
		return fmt.Sprintf("%s in the table %s", text, strings.TrimSuffix(strings.TrimSuffix(rest, key), "."))
	case table == "":
		return fmt.Sprintf("%s in [%s], before the tables below it", text, program)
	case table == "listen" || strings.HasPrefix(table, "listen."):
		return fmt.Sprintf("%s in [[%s.listen]]", strings.TrimPrefix(path, "listen.")+" = "+value, program)
	}
	return fmt.Sprintf("%s in [%s.%s]", text, program, table)
}

// listening is the line that sets a key of the only listener of the program v, or where it goes if there are several.
func listening(v document.Value, key, value string) string {
	at := v.Child("listen")
	address := "127.0.0.1:8080"
	if items := at.OneOrMore(); at.Raw != nil && len(items) > 0 {
		only, is := items[0].Raw.(string)
		if !is || len(items) > 1 {
			return fmt.Sprintf("%s = %s in [[%s]]", key, value, at.Key)
		}
		address = only
	}
	return fmt.Sprintf("listen = [{ address = %s, %s = %s }]", document.Quote(address), key, value)
}

// addresses returns the addresses that another program's word for a listener names: a port, host:port, or ports as
// Compose has them.
func addressesMeant(raw any) (list []string) {
	for _, item := range (document.Value{Raw: raw}).OneOrMore() {
		text := strings.TrimSpace(fmt.Sprint(item.Raw))
		text = strings.TrimPrefix(strings.TrimPrefix(text, "http://"), "tcp://")
		outside, inside, mapped := strings.Cut(text, ":")
		switch {
		case isPort(text):
			list = append(list, document.Quote("127.0.0.1:"+text))
		case mapped && isPort(outside) && isPort(inside) && outside == inside:
			list = append(list, document.Quote(":"+outside))
		case mapped && isPort(outside) && isPort(inside):
			list = append(list, fmt.Sprintf("{ address = %q, binds = %q }", ":"+outside, ":"+inside))
		default:
			if strings.HasPrefix(text, "/") {
				text = "unix:" + text
			}
			if _, err := socket.ParseAddress(text); err != nil {
				return nil
			}
			list = append(list, document.Quote(text))
		}
	}
	return list
}

func isPort(s string) bool { return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == "" }
