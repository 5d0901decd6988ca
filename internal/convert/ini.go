package convert

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"example.org/supervisord/internal/config"
)

// The two sources that are ini files are read by two dialects of Python's ConfigParser, which differ in what begins a comment,
// what continues a value, and which of two equal keys counts. Readers of ini files for Go know neither, and do not tell the
// lines; so this one follows the two parsers line by line.

// dialect is how an ini file is read.
type dialect struct {
	read     func(r *reader, raw string)
	lower    bool // keys are in small letters
	lastWins bool // of two equal keys in a section; else the first
}

// section is a section with its keys in their order.
type section struct {
	item
	name    string
	entries []entry
}

// entry is a key with its value. One that another has taken the place of says which.
type entry struct {
	item
	over  *place
	lines []string // of the value, until the file is read
}

// ini is one or several files.
type ini struct {
	sections []*section
	byName   map[string]*section
	keys     int
	problems []config.Problem
}

// mostKeys bounds the keys and the sections of an ini file: more than this is no configuration.
const mostKeys = 10_000

// find returns a section, or nil.
func (f *ini) find(name string) *section { return f.byName[name] }

// add adds a section.
func (f *ini) add(s *section) {
	if f.byName == nil {
		f.byName = map[string]*section{}
	}
	f.sections, f.byName[s.name] = append(f.sections, s), s
}

// count counts a section or a key; false: it is one too many.
func (f *ini) count(at place) bool {
	if f.keys++; f.keys == mostKeys {
		f.problems = append(f.problems, config.Problem{File: at.file, Line: at.line, What: fmt.Sprintf("more than %d keys and sections", mostKeys),
			Remedy: "convert it in parts"})
	}
	return f.keys < mostKeys
}

// get returns the value of a key that counts.
func (s *section) get(key string) (item, bool) {
	if s == nil {
		return item{}, false
	}
	for _, e := range s.entries {
		if e.key == key && e.over == nil {
			return e.item, true
		}
	}
	return item{}, false
}

// reader reads one file.
type reader struct {
	ini     *ini
	dialect dialect
	at      place
	section *section
	entry   int // the last one of section, or -1
	indent  int
	pending []string // comments, until it is known what they are at
}

// readINI reads a file into f.
func (f *ini) readINI(name, data string, d dialect) {
	r := &reader{ini: f, dialect: d, at: place{file: name}, entry: -1}
	for line := range strings.SplitSeq(strings.TrimSuffix(normal(data), "\n"), "\n") {
		r.at.line++
		d.read(r, line)
	}
	for _, s := range f.sections {
		for i := range s.entries {
			if e := &s.entries[i]; e.lines != nil {
				e.value, e.lines = strings.TrimRight(strings.Join(e.lines, "\n"), " \t\n"), nil
			}
		}
	}
}

// settle finds out which of equal keys count, and gives every section what [DEFAULT] has.
func (f *ini) settle(d dialect) {
	defaults := f.find("DEFAULT")
	for _, s := range f.sections {
		if defaults != nil && s != defaults {
			s.inherit(defaults)
		}
		counts := map[string]int{}
		for i := range s.entries {
			first, again := counts[s.entries[i].key]
			switch {
			case !again:
				counts[s.entries[i].key] = i
			case d.lastWins:
				s.entries[first].over = &s.entries[i].at
				counts[s.entries[i].key] = i
			default:
				s.entries[i].over = &s.entries[first].at
			}
		}
	}
}

// inherit takes the keys of [DEFAULT] that the section does not have.
func (s *section) inherit(defaults *section) {
	own := map[string]bool{}
	for _, e := range s.entries {
		own[e.key] = true
	}
	for _, e := range defaults.entries {
		if !own[e.key] {
			s.entries = append(s.entries, e)
		}
	}
}

// more goes on with the value of the key before.
func (r *reader) more(line string) {
	e := &r.section.entries[r.entry]
	if e.lines == nil {
		e.lines = []string{e.value} // from a file before
	}
	e.lines = append(e.lines, line)
}

// comment keeps a comment for what follows at once.
func (r *reader) comment(text string) {
	text = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(text), "#; "))
	if text != "" {
		r.pending = append(r.pending, text)
	}
}

func (r *reader) take() []string {
	taken := r.pending
	r.pending = nil
	return taken
}

func (r *reader) wrong(what, remedy string) {
	r.ini.problems = append(r.ini.problems, config.Problem{File: r.at.file, Line: r.at.line, What: what, Remedy: remedy})
}

// header begins a section, or goes on with one that was there before. False: the line is none.
func (r *reader) header(line string) bool {
	end := strings.LastIndexByte(line, ']')
	if line[0] != '[' || end < 2 {
		return false
	}
	name := line[1:end]
	r.entry = -1
	if r.section = r.ini.find(name); r.section != nil {
		r.section.comments = append(r.section.comments, r.take()...)
		return true
	}
	r.section = &section{item: item{at: r.at, key: name, text: "[" + name + "]", comments: r.take()}, name: name}
	if r.ini.count(r.at) {
		r.ini.add(r.section)
	}
	return true
}

// option takes a line with a key. False: the line is none.
func (r *reader) option(line, comment string) {
	at := strings.IndexAny(line, "=:")
	key := ""
	if at >= 0 {
		key = strings.TrimRightFunc(line[:at], unicode.IsSpace)
	}
	if key == "" {
		r.entry = -1
		r.wrong("is neither [section] nor key = value", "mend or remove the line")
		return
	}
	if r.dialect.lower {
		key = strings.ToLower(key)
	}
	value := strings.TrimSpace(line[at+1:])
	r.comment(comment)
	if !r.ini.count(r.at) {
		r.entry = -1
		return
	}
	r.section.entries = append(r.section.entries, entry{item: item{at: r.at, key: key, comments: r.take()}, lines: []string{value}})
	r.entry = len(r.section.entries) - 1
	if !r.dialect.lastWins { // what continues a key that does not count goes to the one that does
		r.entry = slices.IndexFunc(r.section.entries, func(e entry) bool { return e.key == key })
	}
}

// line takes a header or a key.
func (r *reader) line(line, comment string) {
	switch {
	case r.header(line):
	case r.section == nil:
		r.wrong("stands before the first [section]", "write the section that it belongs to above it")
	default:
		r.option(line, comment)
	}
}

// supervisorDialect is RawConfigParser(inline_comment_prefixes=(';','#'), strict=False).
var supervisorDialect = dialect{read: (*reader).supervisorLine, lower: true, lastWins: true}

func (r *reader) supervisorLine(raw string) {
	cut := inlineComment(raw)
	if trimmed := strings.TrimSpace(raw); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
		cut = 0
	}
	line, comment := raw, ""
	if cut >= 0 {
		line, comment = raw[:cut], raw[cut:]
	}
	value := strings.TrimSpace(line)
	if value == "" {
		r.blank(cut >= 0, comment)
		return
	}
	indent := len(line) - len(strings.TrimLeftFunc(line, unicode.IsSpace))
	if r.section != nil && r.entry >= 0 && indent > r.indent {
		r.more(value)
		return
	}
	r.indent = indent
	r.line(value, comment)
}

// blank takes a line that is empty but for a comment.
func (r *reader) blank(commented bool, comment string) {
	if commented {
		r.comment(comment)
		return
	}
	r.pending = nil // what was said above an empty line is not at what follows
	if r.section != nil && r.entry >= 0 {
		r.more("")
	}
}

// inlineComment finds where a ; or # behind a space begins a comment, as ConfigParser looks for it: the first of each, then the
// second of each, and so on, until one is found. -1: nowhere.
func inlineComment(line string) int {
	next := map[string]int{";": 0, "#": 0}
	for len(next) > 0 {
		found := -1
		for prefix, from := range next {
			i := strings.Index(line[from:], prefix)
			if i < 0 {
				delete(next, prefix)
				continue
			}
			i += from
			next[prefix] = i + 1
			if i == 0 || unicode.IsSpace(rune(line[i-1])) {
				if found < 0 || i < found {
					found = i
				}
			}
		}
		if found >= 0 {
			return found
		}
	}
	return -1
}

// circusDialect is circus' own StrictConfigParser.
var circusDialect = dialect{read: (*reader).circusLine}

func (r *reader) circusLine(raw string) {
	switch {
	case strings.TrimSpace(raw) == "":
		r.pending = nil
		return
	case raw[0] == '#' || raw[0] == ';':
		r.comment(raw)
		return
	case (raw[0] == 'r' || raw[0] == 'R') && strings.EqualFold(strings.Fields(raw)[0], "rem"):
		r.comment(raw[3:])
		return
	}
	if unicode.IsSpace(rune(raw[0])) && r.section != nil && r.entry >= 0 {
		r.more(strings.TrimSpace(raw))
		return
	}
	if strings.TrimSpace(raw)[0] != raw[0] {
		r.wrong("is indented, but continues nothing", "begin the line without a space")
		return
	}
	comment := ""
	if at := strings.IndexAny(raw, "=:"); at >= 0 && raw[0] != '[' {
		value := strings.TrimLeftFunc(raw[at+1:], unicode.IsSpace)
		if semi := strings.IndexByte(value, ';'); semi > 0 && unicode.IsSpace(rune(value[semi-1])) {
			raw, comment = raw[:len(raw)-len(value)+semi], value[semi:]
		}
	}
	r.line(raw, comment)
	if n := r.entry; n >= 0 && len(r.section.entries[n].lines) > 0 && r.section.entries[n].lines[0] == `""` {
		r.section.entries[n].lines[0] = ""
	}
}
