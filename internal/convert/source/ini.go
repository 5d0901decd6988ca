package source

import (
	"strings"
	"unicode"

	"example.org/supervisord/internal/config/document"
)

// systemd reads its units as systemd.syntax(7) says; supervisor reads its ini file by a dialect of Python's
// ConfigParser. The ini packages for Go (gopkg.in/ini.v1 among them) implement neither what begins a comment in it nor
// what continues a value, and give no line numbers; so this scanner follows the parsers line by line.

// dialect is how an ini file is read.
type dialect struct {
	read  func(r *iniScanner, raw string)
	lower bool // keys are case-insensitive
}

// Section is a section and its keys in order.
type Section struct {
	Setting
	Name    string
	Entries []*Item
}

// Item is a key and its value.
type Item struct {
	Setting
	Over *Location // of the equal key that counts instead; nil: this one counts
}

// INI is one or several files.
type INI struct {
	dialect
	Sections []*Section
	ByName   map[string]*Section
	Problems []document.Problem
}

func newINI(d dialect) *INI { return &INI{dialect: d, ByName: map[string]*Section{}} }

// Add adds a section, or its keys to the one of that name.
func (f *INI) Add(s *Section) *Section {
	if own := f.ByName[s.Name]; own != nil {
		own.Comments = append(own.Comments, s.Comments...)
		own.Entries = append(own.Entries, s.Entries...)
		return own
	}
	f.Sections, f.ByName[s.Name] = append(f.Sections, s), s
	return s
}

// Get returns the value of a key that counts.
func (s *Section) Get(key string) (Setting, bool) {
	for _, e := range s.Counting() {
		if e.Key == key {
			return e, true
		}
	}
	return Setting{}, false
}

// Counting returns the keys that count.
func (s *Section) Counting() (all []Setting) {
	if s != nil {
		for _, e := range s.Entries {
			if e.Over == nil {
				all = append(all, e.Setting)
			}
		}
	}
	return all
}

// Finish lets the last of equal keys count, and copies the keys of [DEFAULT] into every section that does not have
// them.
func (f *INI) Finish() {
	own := map[*Section]map[string]*Item{}
	for _, s := range f.Sections {
		own[s] = map[string]*Item{}
		for _, e := range s.Entries {
			if earlier := own[s][e.Key]; earlier != nil {
				earlier.Over = &e.At
			}
			own[s][e.Key] = e
		}
	}
	defaults := f.ByName["DEFAULT"]
	for _, s := range f.Sections {
		for i := 0; defaults != nil && s != defaults && i < len(defaults.Entries); i++ {
			if e := *defaults.Entries[i]; own[s][e.Key] == nil {
				s.Entries = append(s.Entries, &e)
			}
		}
	}
}

// iniScanner reads one file.
type iniScanner struct {
	file     *INI
	at       Location
	section  *Section
	entry    *Item // the last one; nil: nothing can continue it
	indent   int
	open     bool     // the last line ends in a backslash
	comments []string // until it is known what they belong to
}

// Parse reads a file.
func (f *INI) Parse(name, text string) {
	r := &iniScanner{file: f, at: Location{File: name}}
	for line := range strings.SplitSeq(strings.TrimSuffix(Normalize(text), "\n"), "\n") {
		r.at.Line++
		f.dialect.read(r, line)
	}
	for _, s := range f.Sections {
		for _, e := range s.Entries {
			e.Value = strings.TrimRight(e.Value, " \t\n")
		}
	}
}

// continues adds a line to the value before.
func (r *iniScanner) continues(line string) { r.entry.Value += "\n" + line }

// comment keeps a comment for the next key or section.
func (r *iniScanner) comment(text string) {
	if text = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(text), "#; ")); text != "" {
		r.comments = append(r.comments, text)
	}
}

// here returns a setting at this line, with the comments above it.
func (r *iniScanner) here(key, value, text string) Setting {
	s := Setting{At: r.at, Key: key, Value: value, Text: text, Comments: r.comments}
	r.comments = nil
	return s
}

func (r *iniScanner) wrong(what, remedy string) {
	r.file.Problems = append(r.file.Problems,
		document.Problem{File: r.at.File, Position: document.Position{Line: r.at.Line}, What: what, Remedy: remedy})
}

// line reads a section header or a key.
func (r *iniScanner) line(line, comment string) {
	if end := strings.LastIndexByte(line, ']'); line[0] == '[' && end >= 2 {
		name := line[1:end]
		r.entry = nil
		r.section = r.file.Add(&Section{Setting: r.here(name, "", "["+name+"]"), Name: name})
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
	r.entry = &Item{Setting: r.here(key, value, "")}
	r.section.Entries = append(r.section.Entries, r.entry)
}

// NewSupervisorINI reads as RawConfigParser(inline_comment_prefixes=(';','#'), strict=False) does.
func NewSupervisorINI() *INI {
	return newINI(dialect{read: (*iniScanner).supervisorLine, lower: true})
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

// inlineComment finds where a ; or # after a space begins a comment, as ConfigParser looks for it: the first of each,
// then the second of each, and so on. It returns -1 if there is none.
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

// NewUnit reads as systemd does. Which of equal keys count depends on the key.
func NewUnit() *INI { return newINI(dialect{read: (*iniScanner).unitLine}) }

func (r *iniScanner) unitLine(raw string) {
	line := strings.TrimSpace(raw)
	text, open := strings.CutSuffix(line, `\`)
	switch {
	case strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";"):
		r.comment(line) // also between a backslash and what it continues
	case r.open && r.entry != nil:
		r.entry.Value += " " + strings.TrimSpace(text) // also between quotes
		r.open = open
	case strings.TrimSpace(text) == "": // an empty line may end in a backslash, too
		r.comments = nil
	default:
		r.line(strings.TrimSpace(text), "")
		r.open = open
	}
}
