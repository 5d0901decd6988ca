package convert

import (
	"slices"
	"strings"
	"unicode"

	"example.org/supervisord/internal/config/document"
)

// circus and supervisor read their ini files by two dialects of Python's ConfigParser, which differ in what begins a comment, what
// continues a value, and which of two equal keys counts. The ini packages for Go (gopkg.in/ini.v1 among them) implement neither,
// and give no line numbers; so this scanner follows the two parsers line by line.

// dialect is how an ini file is read.
type dialect struct {
	read     func(r *iniScanner, raw string)
	lower    bool // keys are case-insensitive
	lastWins bool // of two equal keys in a section the last counts, otherwise the first
}

// section is a section and its keys in order.
type section struct {
	setting
	name    string
	entries []*entry
}

// entry is a key and its value.
type entry struct {
	setting
	over *location // of the equal key that counts instead; nil: this one counts
}

// iniFile is one or several files.
type iniFile struct {
	dialect
	sections []*section
	byName   map[string]*section
	problems []document.Problem
}

func newINI(d dialect) *iniFile { return &iniFile{dialect: d, byName: map[string]*section{}} }

// add adds a section, or its keys to the one of that name.
func (f *iniFile) add(s *section) *section {
	if own := f.byName[s.name]; own != nil {
		own.comments = append(own.comments, s.comments...)
		own.entries = append(own.entries, s.entries...)
		return own
	}
	f.sections, f.byName[s.name] = append(f.sections, s), s
	return s
}

// get returns the value of a key that counts.
func (s *section) get(key string) (setting, bool) {
	for _, e := range s.counting() {
		if e.key == key {
			return e, true
		}
	}
	return setting{}, false
}

// counting returns the keys that count.
func (s *section) counting() (all []setting) {
	if s != nil {
		for _, e := range s.entries {
			if e.over == nil {
				all = append(all, e.setting)
			}
		}
	}
	return all
}

// finish determines which of equal keys count, and copies the keys of [DEFAULT] into every section that does not have them.
func (f *iniFile) finish() {
	own := map[*section]map[string]*entry{}
	for _, s := range f.sections {
		own[s] = map[string]*entry{}
		for _, e := range s.entries {
			switch first := own[s][e.key]; {
			case first == nil:
				own[s][e.key] = e
			case f.lastWins:
				first.over, own[s][e.key] = &e.at, e
			default:
				e.over = &first.at
			}
		}
	}
	defaults := f.byName["DEFAULT"]
	for _, s := range f.sections {
		for i := 0; defaults != nil && s != defaults && i < len(defaults.entries); i++ {
			if e := *defaults.entries[i]; own[s][e.key] == nil {
				s.entries = append(s.entries, &e)
			}
		}
	}
}

// iniScanner reads one file.
type iniScanner struct {
	file     *iniFile
	at       location
	section  *section
	entry    *entry // the last one; nil: nothing can continue it
	indent   int
	comments []string // until it is known what they belong to
}

// read reads a file.
func (f *iniFile) read(name, text string) {
	r := &iniScanner{file: f, at: location{file: name}}
	for line := range strings.SplitSeq(strings.TrimSuffix(normal(text), "\n"), "\n") {
		r.at.line++
		f.dialect.read(r, line)
	}
	for _, s := range f.sections {
		for _, e := range s.entries {
			e.value = strings.TrimRight(e.value, " \t\n")
		}
	}
}

// continues adds a line to the value before.
func (r *iniScanner) continues(line string) { r.entry.value += "\n" + line }

// comment keeps a comment for the next key or section.
func (r *iniScanner) comment(text string) {
	if text = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(text), "#; ")); text != "" {
		r.comments = append(r.comments, text)
	}
}

// here returns a setting at this line, with the comments above it.
func (r *iniScanner) here(key, value, text string) setting {
	s := setting{at: r.at, key: key, value: value, text: text, comments: r.comments}
	r.comments = nil
	return s
}

func (r *iniScanner) wrong(what, remedy string) {
	r.file.problems = append(r.file.problems, document.Problem{File: r.at.file, Line: r.at.line, What: what, Remedy: remedy})
}

// line reads a section header or a key.
func (r *iniScanner) line(line, comment string) {
	if end := strings.LastIndexByte(line, ']'); line[0] == '[' && end >= 2 {
		name := line[1:end]
		r.entry = nil
		r.section = r.file.add(&section{setting: r.here(name, "", "["+name+"]"), name: name})
		return
	}
	at := strings.IndexAny(line, "=:")
	switch key := strings.TrimRightFunc(line[:max(at, 0)], unicode.IsSpace); {
	case r.section == nil:
		r.wrong("comes before the first [section]", "move it below the section that it belongs to")
	case key == "":
		r.entry = nil
		r.wrong("is neither [section] nor key = value", "fix or remove the line")
	default:
		r.comment(comment)
		r.key(key, strings.TrimSpace(line[at+1:]))
	}
}

// key adds a key to the section.
func (r *iniScanner) key(key, value string) {
	if r.file.lower {
		key = strings.ToLower(key)
	}
	r.entry = &entry{setting: r.here(key, value, "")}
	r.section.entries = append(r.section.entries, r.entry)
	if !r.file.lastWins { // a line that continues a key that does not count belongs to the one that does
		r.entry = r.section.entries[slices.IndexFunc(r.section.entries, func(e *entry) bool { return e.key == key })]
	}
}

// supervisorDialect is RawConfigParser(inline_comment_prefixes=(';','#'), strict=False).
func supervisorDialect() dialect {
	return dialect{read: (*iniScanner).supervisorLine, lower: true, lastWins: true}
}

func (r *iniScanner) supervisorLine(raw string) {
	line, comment := raw, ""
	if trimmed := strings.TrimSpace(raw); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
		line, comment = "", raw
	} else if at := inlineComment(raw); at >= 0 {
		line, comment = raw[:at], raw[at:]
	}
	value := strings.TrimSpace(line)
	indent := len(line) - len(strings.TrimLeftFunc(line, unicode.IsSpace))
	switch {
	case value == "" && comment != "":
		r.comment(comment)
	case value == "":
		r.comments = nil // a comment above an empty line does not belong to what follows
		if r.entry != nil {
			r.continues("")
		}
	case r.entry != nil && indent > r.indent:
		r.continues(value)
	default:
		r.indent = indent
		r.line(value, comment)
	}
}

// inlineComment finds where a ; or # after a space begins a comment, as ConfigParser looks for it: the first of each, then the
// second of each, and so on. It returns -1 if there is none.
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
			if (i == 0 || unicode.IsSpace(rune(line[i-1]))) && (found < 0 || i < found) {
				found = i
			}
		}
		if found >= 0 {
			return found
		}
	}
	return -1
}

// circusDialect is circus' own StrictConfigParser.
func circusDialect() dialect { return dialect{read: (*iniScanner).circusLine} }

func (r *iniScanner) circusLine(raw string) {
	fields := strings.Fields(raw)
	switch {
	case len(fields) == 0:
		r.comments = nil
	case raw[0] == '#' || raw[0] == ';':
		r.comment(raw)
	case strings.EqualFold(fields[0], "rem") && !unicode.IsSpace(rune(raw[0])):
		r.comment(raw[3:])
	case unicode.IsSpace(rune(raw[0])) && r.entry != nil:
		r.continues(strings.TrimSpace(raw))
	case !strings.HasPrefix(raw, fields[0]):
		r.wrong("is indented but continues no value", "remove the indentation")
	default:
		r.circusKey(raw)
	}
}

// circusKey reads a header or a key. A ; after a space begins a comment.
func (r *iniScanner) circusKey(raw string) {
	comment := ""
	if at := strings.IndexAny(raw, "=:"); at >= 0 && raw[0] != '[' {
		value := strings.TrimLeftFunc(raw[at+1:], unicode.IsSpace)
		if semi := strings.IndexByte(value, ';'); semi > 0 && unicode.IsSpace(rune(value[semi-1])) {
			raw, comment = raw[:len(raw)-len(value)+semi], value[semi:]
		}
	}
	r.line(raw, comment)
	if r.entry != nil && r.entry.value == `""` {
		r.entry.value = ""
	}
}

// whole comments a section that has no equivalent.
func (d *draft) whole(s *section, instead string) {
	d.head.pending = append(d.head.pending, s.comments...)
	d.head.lacks(s.setting, instead)
	for _, e := range s.entries {
		d.head.note("", e.setting, "belongs to ["+s.name+"]")
	}
}
