package convert

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
)

// place is where something stands: in a file, or among the arguments of a command line ("argument 3", without a line).
type place struct {
	file string
	line int
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return p.file + ":" + strconv.Itoa(p.line)
}

// item is one setting of a source.
type item struct {
	at       place
	key      string
	value    string
	text     string   // as a comment shows it; "": key = value
	comments []string // that the source has at it
}

// secret are keys whose values must not get into comments.
var secret = []string{"password", "username"}

func (it item) String() string {
	switch {
	case slices.Contains(secret, it.key):
		return it.key
	case it.text != "":
		return shorten(it.text)
	}
	return it.key + " = " + shorten(it.value)
}

// shorten keeps a value in a comment readable.
func shorten(s string) string {
	if runes := []rune(s); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return s
}

// document gathers what a configuration says.
type document struct {
	Source
	World
	about     []string // what is to be known of all programs
	head      []string // comments about what belongs to no program
	global    table    // [supervisor]
	programs  []*program
	names     map[string]bool
	addresses map[string]string // of each address the program that has it
	logs      map[string]string // of each log file the program that has it
	lacking   int
	size      int // of what the programs hold, in bytes
	problems  []config.Problem
}

// mostValues bounds what comes out: package config takes 50,000 keys and elements, of at most a MiB together.
const mostValues = 45_000

// enough reports whether it makes no sense to go on: there is more than one configuration can hold, or as many errors as
// anybody reads.
func (d *document) enough() bool { return d.size > maxText || len(d.problems) >= mostProblems }

const mostProblems = 100

func newDocument(s Source, w World) *document {
	return &document{Source: s, World: w, global: table{name: "supervisor"},
		names: map[string]bool{}, addresses: map[string]string{}, logs: map[string]string{}}
}

// program is one [program.NAME].
type program struct {
	doc      *document
	name     string
	off      bool // would not start under its source: written, but with a # before each line
	quiet    bool // one of several that are alike: what there is to say was said at the first
	tables   map[string]*table
	listen   []*table
	lead     []string // comments of the source at the program itself
	comments []string // and those for what is written next
}

// tableOrder is how the tables of a program follow each other, as in config.toml.example.
var tableOrder = []string{"", "environment", "limits", "listen", "ready", "reload", "stop", "restart", "log"}

// table is a table as it will be written.
type table struct {
	name  string // as in its header; "": the program's own
	lines []line
}

// line is a comment (key "") or a key with its value in TOML.
type line struct{ key, text string }

func (t *table) comment(text string) { t.lines = append(t.lines, line{text: text}) }

// set writes a key. A second value for it takes the place of the first.
func (t *table) set(key string, value any) {
	text := inTOML(value)
	for i := range t.lines {
		if t.lines[i].key == key {
			t.lines[i].text = text
			return
		}
	}
	t.lines = append(t.lines, line{key: key, text: text})
}

// value is the value of a key as it is written; "": it is not there.
func (t *table) value(key string) string {
	for i := len(t.lines) - 1; i >= 0; i-- {
		if t.lines[i].key == key {
			return t.lines[i].text
		}
	}
	return ""
}

func (t *table) has(key string) bool { return t.value(key) != "" }

// empty reports whether the table has comments at most.
func (t *table) empty() bool {
	return !slices.ContainsFunc(t.lines, func(l line) bool { return l.key != "" })
}

// wrong reports that the source is malformed.
func (d *document) wrong(it item, what, remedy string) {
	if len(d.problems) < mostProblems {
		d.problems = append(d.problems, config.Problem{File: it.at.file, Line: it.at.line, Key: it.key, What: what, Remedy: remedy})
	}
}

// lacks says in the head of the configuration that a setting has no equivalent.
func (d *document) lacks(it item, instead string) {
	d.lacking++
	d.note(it, "no equivalent: "+instead)
}

// note says something about a setting in the head of the configuration.
func (d *document) note(it item, text string) {
	d.head = append(d.head, it.comments...)
	d.head = append(d.head, fmt.Sprintf("%s: %s: %s", it.at, it, text))
}

// say says something of all programs, once.
func (d *document) say(text string) {
	if !slices.Contains(d.about, text) {
		d.about = append(d.about, text)
	}
}

// program begins a program. Its name is made fit, and unlike those before.
func (d *document) program(it item, name string) *program {
	p := &program{doc: d, name: fit(name), tables: map[string]*table{}, lead: it.comments}
	const most = 2000
	if len(d.programs) >= most {
		d.wrong(it, fmt.Sprintf("more than %d programs", most), "convert it in parts")
		return p
	}
	for n := 2; d.names[p.name]; n++ {
		end := "-" + strconv.Itoa(n)
		p.name = fit(name)
		p.name = p.name[:min(len(p.name), 64-len(end))] + end
	}
	d.names[p.name] = true
	d.programs = append(d.programs, p)
	if p.name != name {
		p.note("", it, fmt.Sprintf("called %s here: a name has letters, digits, dots, dashes and underscores, at most 64, and is there once", p.name))
	}
	return p
}

// fit makes a name that a program can have.
func fit(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimRight(strings.TrimLeft(name, ".-_"), "-")
	if name == "" {
		return "program"
	}
	return name[:min(len(name), 64)]
}

// table is one of the program's tables: "" its own, or such as "stop".
func (p *program) table(name string) *table {
	if p.tables[name] == nil {
		p.tables[name] = &table{name: name}
	}
	return p.tables[name]
}

// set writes a key of a table, below the comments that the source has there.
func (p *program) set(name, key string, value any) {
	t := p.table(name)
	p.carry(t)
	if !p.doc.enough() {
		t.set(key, value)
		p.doc.size += len(key) + len(t.value(key)) + maxText/mostValues
	}
}

// carry puts the comments of the source at what is written next.
func (p *program) carry(t *table) {
	for _, c := range p.comments {
		t.comment(c)
	}
	p.comments = nil
}

// note says something about a setting in one of the program's tables.
func (p *program) note(name string, it item, text string) {
	if !p.quiet {
		p.carry(p.table(name))
		p.table(name).comment(fmt.Sprintf("%s: %s: %s", it.at, it, text))
	}
}

// lacks says that a setting has no equivalent, and what to do instead.
func (p *program) lacks(it item, instead string) {
	if !p.quiet {
		p.doc.lacking++
	}
	p.note("", it, "no equivalent: "+instead)
}

// insists says that a setting has no equivalent, also of the later ones of several programs that are alike.
func (p *program) insists(it item, instead string) {
	quiet := p.quiet
	p.quiet = false
	p.lacks(it, instead)
	p.quiet = quiet
}

// holds says that a setting needs no words here: so it is anyway.
func (p *program) holds(it item, why string) { p.note("", it, "needs nothing: "+why) }

// wrong reports that the source is malformed.
func (p *program) wrong(it item, what, remedy string) { p.doc.wrong(it, what, remedy) }

// seconds writes a duration, if it is one that may be set. At least is the shortest, in milliseconds.
func (p *program) seconds(name, key string, it item, n float64, atLeast int) bool {
	const year = 365 * 24 * 3600
	if !(n >= 0 && n <= year) {
		p.lacks(it, fmt.Sprintf("%s.%s is from 0 seconds to a year", name, key))
		return false
	}
	if n*1000 < float64(atLeast) {
		n = float64(atLeast) / 1000
		p.note(name, it, fmt.Sprintf("the shortest there is is %s", duration(n)))
	}
	p.set(name, key, duration(n))
	return true
}

// duration is a number of seconds as package config reads it.
func duration(n float64) string {
	if n == float64(int64(n)) {
		return strconv.FormatInt(int64(n), 10) + "s"
	}
	return strconv.FormatFloat(max(n*1000, 0.000001), 'f', -1, 64) + "ms"
}

// readyAfter is the readiness that most sources have: alive for so many seconds.
func (p *program) readyAfter(it item, n float64) {
	const timeout = 60 // the default of ready.timeout, in seconds
	p.set("ready", "method", "delay")
	if p.seconds("ready", "delay", it, n, 0) && n > timeout {
		if total := n + timeout; total <= 365*24*3600 {
			p.set("ready", "timeout", duration(total))
		} else {
			p.set("ready", "timeout", duration(n))
		}
	}
}

// workers writes how many there are; false: it cannot be.
func (p *program) workers(it item, n int) bool {
	const most = 10_000
	if n < 1 || n > most {
		p.lacks(it, fmt.Sprintf("workers is from 1 to %d", most))
		return false
	}
	p.set("", "workers", n)
	return true
}

// listenTable adds a listener. It returns nil, and says why, where another program has the address, and reports an address
// that cannot be.
func (p *program) listenTable(it item, name, address string) *table {
	if first, ok := p.doc.addresses[address]; ok && p.off {
		p.note("", it, fmt.Sprintf("%s is the address of %s, too: one program holds a socket", address, first))
	} else if ok {
		p.lacks(it, fmt.Sprintf("%s is already the address of %s: one program holds a socket", address, first))
		return nil
	}
	var bad *socket.SpecError
	if err := (socket.Spec{Address: address}).Check(); errors.As(err, &bad) {
		p.wrong(it, bad.What, bad.Remedy)
		return nil
	}
	if !strings.HasSuffix(address, ":0") && !p.off {
		p.doc.addresses[address] = p.name
	}
	t := &table{name: "listen"}
	p.carry(t)
	if name != "" {
		t.set("name", name)
	}
	t.set("address", address)
	p.listen = append(p.listen, t)
	return t
}

// path is a path of the source as an absolute one.
func (d *document) path(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(d.Dir, path)
}

// result is what came out, or all that is wrong with the source.
func (d *document) result() (Result, error) {
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b config.Problem) int { return cmp.Compare(a.Line, b.Line) })
		return Result{}, &config.Error{Problems: d.problems}
	}
	r := Result{Kind: d.Kind, Text: d.write(), Lacking: d.lacking}
	for _, p := range d.programs {
		if p.off {
			r.Off++
		} else {
			r.Programs++
		}
	}
	if len(d.programs) == 0 && d.size <= maxText {
		return Result{}, malformed(place{file: d.Name}, "", "has no program", "name the file that has one, and see that --from is right")
	}
	if elements := strings.Count(r.Text, "\", "); d.size > maxText || len(r.Text) > maxText || elements > 2*mostValues {
		return Result{}, malformed(place{file: d.Name}, "", "makes more than one configuration can hold", "convert it in parts")
	}
	return r, nil
}
