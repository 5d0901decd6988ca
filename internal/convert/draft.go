package convert

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/socket"
)

// location is a line of a file, or an argument of a command line ("argument 3", without a line).
type location struct {
	file string
	line int
}

func (p location) String() string {
	if p.line == 0 {
		return p.file
	}
	return p.file + ":" + strconv.Itoa(p.line)
}

// setting is one key or option of a source.
type setting struct {
	at       location
	key      string
	as       string // how errors show the key; "": like that
	value    string
	text     string   // how comments show it; "": key = value
	comments []string // of the source, next to it
}

func (s setting) String() string {
	switch {
	case s.key == "password", s.key == "username":
		return s.key // the value must not get into comments
	case s.text != "":
		return shorten(s.text)
	}
	return s.key + " = " + shorten(s.value)
}

// shorten keeps a value in a comment readable.
func shorten(s string) string {
	if runes := []rune(show(s)); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return show(s)
}

// draft gathers the configuration.
type draft struct {
	Source
	World
	about     []string // comments about all programs
	head      *program // what belongs to no program: [supervisor], and comments at the top
	programs  []*program
	addresses map[string]string // the program that has each address
	logs      map[string]string // the program that writes each log file
	lacking   int
	problems  []document.Problem
}

func newDocument(s Source, w World) *draft {
	d := &draft{Source: s, World: w, addresses: map[string]string{}, logs: map[string]string{}}
	d.head = &program{draft: d, tables: map[string]*table{}, given: map[string]setting{}}
	return d
}

// wrong reports a mistake in the source.
func (d *draft) wrong(s setting, what, remedy string) {
	d.problems = append(d.problems, document.Problem{File: s.at.file, Line: s.at.line, Key: cmp.Or(s.as, s.key), What: what, Remedy: remedy})
}

// say adds a comment about all programs, once.
func (d *draft) say(text string) {
	if !slices.Contains(d.about, text) {
		d.about = append(d.about, text)
	}
}

// path makes a path of the source absolute.
func (d *draft) path(path string) string { return filepath.Clean(joinPath(d.Dir, path)) }

// joinPath resolves a path from a directory.
func joinPath(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// read reads another file of the source. It reports one that is not text.
func (d *draft) read(s setting, path string) (string, bool) {
	text, err := d.Read(path)
	if err == nil {
		err = checkText(location{file: path}, text)
	}
	if err != nil {
		d.wrong(s, "cannot read "+path+": "+err.Error(), "make it a readable text file, or do not name it")
	}
	return text, err == nil
}

// included reads the files that match a pattern of the source.
func (d *draft) included(s setting, pattern string, read func(path, text string)) {
	paths, err := d.Glob(pattern)
	if err != nil || len(paths) == 0 {
		d.head.note("", s, "no file matches "+pattern)
	}
	for _, path := range paths {
		if text, ok := d.read(s, path); ok {
			read(path, text)
		}
	}
}

// result is the configuration, or every mistake in the source.
func (d *draft) result() (Result, error) {
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b document.Problem) int { return cmp.Compare(a.Line, b.Line) })
		return Result{}, &document.Error{Problems: slices.Compact(d.problems)}
	}
	if len(d.programs) == 0 {
		return Result{}, malformed(location{file: d.Name}, "defines no program", "name the file that defines one, and check --from")
	}
	r := Result{Kind: d.Kind, Text: d.write(), Lacking: d.lacking}
	for _, p := range d.programs {
		if p.off {
			r.Off++
		} else {
			r.Programs++
		}
	}
	const mostElements = 45_000 // package config reads 50,000 keys and elements of arrays
	if elements := strings.Count(r.Text, "\n") + strings.Count(r.Text, `", "`); len(r.Text) > maxResult || elements > mostElements {
		return Result{}, malformed(location{file: d.Name}, "makes a configuration that is too large for supervisord", "convert it in parts")
	}
	return r, nil
}

// program is one [program.NAME], or the head of the draft.
type program struct {
	*draft
	name    string
	off     bool // commented out: its own supervisor would not start it
	quiet   bool // a copy of the program before, whose comments hold for both
	tables  map[string]*table
	listen  []*table
	lead    []string           // comments of the source above the program
	pending []string           // comments of the source for the next key
	given   map[string]setting // keys of the source so far
	run     invocation
	fill    func(setting) (setting, bool) // replaces what the source's supervisor expands in a value; nil: nothing
}

// newProgram begins a program. Its name is made valid and unique.
func (d *draft) newProgram(s setting, name string) *program {
	p := &program{draft: d, name: validName(name), tables: map[string]*table{}, lead: s.comments, given: map[string]setting{}}
	taken := func(other *program) bool { return other.name == p.name }
	for n := 2; slices.ContainsFunc(d.programs, taken); n++ {
		end := "-" + strconv.Itoa(n)
		p.name = validName(name)
		p.name = p.name[:min(len(p.name), 64-len(end))] + end
	}
	d.programs = append(d.programs, p)
	if p.name != name {
		p.note("", s, fmt.Sprintf("renamed to %s: a name is unique and has at most 64 letters, digits, dots, dashes and underscores", p.name))
	}
	return p
}

// validName makes a name that a program or listener can have.
func validName(name string) string {
	const valid = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune(valid, r) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimRight(strings.TrimLeft(name, ".-_"), "-")
	return cmp.Or(name[:min(len(name), 64)], "program")
}

// table returns one of the program's tables: "" is its own, "stop" for example another. [supervisor] belongs to the head.
func (p *program) table(name string) *table {
	if name == "supervisor" {
		p = p.head
	}
	if p.tables[name] == nil {
		p.tables[name] = &table{}
	}
	return p.tables[name]
}

// in returns a table and the rest of a key such as "stop.signal".
func (p *program) in(key string) (t *table, rest string) {
	name, rest, dotted := strings.Cut(key, ".")
	if !dotted {
		return p.table(""), key
	}
	return p.table(name), rest
}

// set sets a key such as "stop.signal".
func (p *program) set(key string, value any) {
	t, rest := p.in(key)
	p.carry(t)
	t.set(rest, value)
}

// value returns the value of a key in TOML, "" if it is not set.
func (p *program) value(key string) string {
	t, rest := p.in(key)
	return t.value(rest)
}

// unset reports whether a table has no keys.
func (p *program) unset(name string) bool {
	return !slices.ContainsFunc(*p.table(name), func(l line) bool { return l.key != "" })
}

// carry writes the source's comments that wait for the next key.
func (p *program) carry(t *table) {
	for _, c := range p.pending {
		t.comment(c)
	}
	p.pending = nil
}

// note adds a comment about a setting to a table, once. It reports whether it did.
func (p *program) note(table string, s setting, text string) bool {
	if p.quiet {
		return false
	}
	t := p.table(table)
	p.carry(t)
	return t.comment(fmt.Sprintf("%s: %s: %s", s.at, s, text))
}

// lacks adds the comment that a setting has no equivalent, with what to do instead.
func (p *program) lacks(s setting, instead string) {
	if p.note("", s, "no equivalent: "+instead) {
		p.lacking++
	}
}

// listener adds a listener. It returns nil if another program has the address or the address is invalid.
func (p *program) listener(s setting, name, address string) *table {
	first, taken := p.addresses[address]
	switch {
	case taken && p.off:
		p.note("", s, fmt.Sprintf("%s is also the address of %s: only one program can have a socket", address, first))
	case taken:
		p.lacks(s, fmt.Sprintf("%s is already the address of %s: only one program can have a socket", address, first))
		return nil
	}
	_, err := socket.ParseAddress(address)
	if bad, ok := errors.AsType[*socket.SpecError](err); ok {
		p.wrong(s, bad.What, bad.Remedy)
		return nil
	}
	if !strings.HasSuffix(address, ":0") && !p.off {
		p.addresses[address] = p.name
	}
	t := &table{}
	p.carry(t)
	if name != "" {
		t.set("name", name)
	}
	t.set("address", address)
	p.listen = append(p.listen, t)
	return t
}

// argv sets the command from p.run.
func (p *program) argv() { p.set("command", p.run.argv()) }

// environment sets a variable, in a shell if only a shell knows the value.
func (p *program) environment(s setting, name, value string) {
	const longest = 255 // package config bounds the length of a key
	err := environment.CheckName(name, nil)
	switch {
	case err != nil:
		p.lacks(s, err.Error())
	case len(name) > longest:
		p.lacks(s, fmt.Sprintf("the name of a variable has at most %d bytes", longest))
	case dynamic(value):
		p.run.export(name, value)
	default:
		p.set("environment."+name, value)
	}
}

// commandWords splits a command and reports what is wrong with it.
func (d *draft) commandWords(s setting, value string) ([]string, bool) {
	words, err := splitWords(value)
	switch {
	case err != nil:
		remedy := "close it"
		for _, c := range s.comments {
			remedy = fmt.Sprintf("close it; %s takes everything after a space and ; or # for a comment, even in quotes: %q", d.Kind, shorten(c))
		}
		d.wrong(s, err.Error(), remedy)
	case len(words) == 0 || words[0] == "":
		d.wrong(s, "is empty", "write the program and its arguments")
	default:
		return words, true
	}
	return nil, false
}
