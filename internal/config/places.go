package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds on what a file may hold. The parser builds the full name of every key, so that without them a file of one megabyte
// could ask for gigabytes of memory or an endless stack.
const (
	maxDepth  = 32     // nested arrays and inline tables
	maxPath   = 512    // bytes in the full name of a key
	maxValues = 50_000 // keys and array elements
)

// place is where a key, table or array element stands.
type place struct {
	line  int
	octal bool // the value is written 0o…
}

// places holds the place of everything in a file by its full name, in the form of Problem.Key.
type places map[string]place

// at returns the place of path, or of the nearest table around it that is written down.
func (p places) at(path string) place {
	for path != "" {
		if found, ok := p[path]; ok {
			return found
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return place{}
}

// child is the full name of a key in the table path.
func child(path, name string) string {
	if !bare(name) {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// element is the full name of an element of the array path.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// bare reports whether a key needs no quotes.
func bare(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// scan walks over TOML text and notes where things stand, which the parser does not tell. It takes any text: for what is
// no TOML the places are of no use, but it always ends.
type scan struct {
	text  string
	pos   int
	line  int
	found places
	last  map[string]int // of each array of tables ([[x]]) the index of the last element
	err   error          // a bound was exceeded
}

// findPlaces returns the places in text, or an error and its line if the text exceeds a bound.
func findPlaces(text string) (places, int, error) {
	s := &scan{text: strings.TrimPrefix(text, "\ufeff"), line: 1, found: places{}, last: map[string]int{}}
	table := ""
	for s.blank(); s.more(); s.blank() {
		if s.text[s.pos] == '[' {
			table = s.header()
		} else {
			s.pair(table, 0)
		}
	}
	return s.found, s.line, s.err
}

func (s *scan) more() bool { return s.err == nil && s.pos < len(s.text) }

// next is the next byte; 0 at the end.
func (s *scan) next() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// skip goes over n bytes, less at the end, and counts the lines.
func (s *scan) skip(n int) {
	end := min(s.pos+n, len(s.text))
	s.line += strings.Count(s.text[s.pos:end], "\n")
	s.pos = end
}

// skipTo goes to the next byte out of stops, or to the end.
func (s *scan) skipTo(stops string) {
	n := strings.IndexAny(s.text[s.pos:], stops)
	if n < 0 {
		n = len(s.text)
	}
	s.skip(n)
}

// space goes over spaces within a line.
func (s *scan) space() {
	rest := s.text[s.pos:]
	s.skip(len(rest) - len(strings.TrimLeft(rest, " \t\r")))
}

// blank goes over spaces, line ends and comments.
func (s *scan) blank() {
	for s.space(); s.next() == '\n' || s.next() == '#'; s.space() {
		if s.next() == '#' {
			s.skipTo("\n")
		} else {
			s.skip(1)
		}
	}
}

// note keeps the place of path. A table that is only implied by the name of another one gives way to its own header.
func (s *scan) note(path string, implied bool) {
	switch {
	case s.err != nil:
	case len(path) > maxPath:
		s.err = fmt.Errorf("a key has more than %d bytes", maxPath)
	case len(s.found) >= maxValues:
		s.err = fmt.Errorf("more than %d keys and values", maxValues)
	default:
		if _, ok := s.found[path]; !ok || !implied {
			s.found[path] = place{line: s.line}
		}
	}
}

// header goes over a [table] or [[array of tables]] and returns its full name.
func (s *scan) header() string {
	array := strings.HasPrefix(s.text[s.pos:], "[[")
	s.skip(1)
	if array {
		s.skip(1)
	}
	parts := s.key()
	path := ""
	for i, part := range parts {
		path = child(path, part)
		isLast := i == len(parts)-1
		s.note(path, array || !isLast)
		if n, ok := s.last[path]; ok && !isLast {
			path = element(path, n)
		}
	}
	if array {
		path = s.addElement(path)
	}
	s.skipTo("]\n#")
	for s.next() == ']' {
		s.skip(1)
	}
	return path
}

func (s *scan) addElement(array string) string {
	n, ok := s.last[array]
	if ok {
		n++
	}
	s.last[array] = n
	path := element(array, n)
	s.note(path, false)
	return path
}

// pair goes over one key = value in the table path.
func (s *scan) pair(path string, depth int) {
	before := s.pos
	parts := s.key()
	for i, part := range parts {
		path = child(path, part)
		s.note(path, i < len(parts)-1)
		if s.err != nil {
			return
		}
	}
	if s.next() != '=' {
		s.skipTo("\n")
		if s.pos == before {
			s.skip(1)
		}
		return
	}
	s.skip(1)
	s.space()
	s.value(path, depth)
}

// key goes over a dotted key and the spaces after it, and returns its parts.
func (s *scan) key() []string {
	var parts []string
	for len(parts) <= maxPath {
		s.space()
		start := s.pos
		if c := s.next(); c == '"' || c == '\'' {
			s.quoted()
			parts = append(parts, unquote(s.text[start:s.pos]))
		} else {
			s.skipTo(" \t\r\n.=[]{}\"'#,")
			parts = append(parts, s.text[start:s.pos])
		}
		s.space()
		if s.next() != '.' {
			break
		}
		s.skip(1)
	}
	return parts
}

// unquote returns what a quoted key stands for.
func unquote(quoted string) string {
	if text, ok := strings.CutPrefix(quoted, "'"); ok {
		return strings.TrimSuffix(text, "'")
	}
	text, err := strconv.Unquote(strings.ReplaceAll(quoted, `\e`, `\x1b`))
	if err != nil {
		return quoted
	}
	return text
}

// value goes over a value and notes what is inside.
func (s *scan) value(path string, depth int) {
	if depth > maxDepth {
		s.err = errors.New("nested too deeply")
		return
	}
	switch s.next() {
	case '"', '\'':
		s.quoted()
	case '[':
		s.array(path, depth)
	case '{':
		s.inline(path, depth)
	default:
		if found, ok := s.found[path]; ok && strings.HasPrefix(s.text[s.pos:], "0o") {
			found.octal = true
			s.found[path] = found
		}
		s.skipTo(",]}#\n")
	}
}

func (s *scan) array(path string, depth int) {
	s.skip(1)
	n := 0
	for s.blank(); s.more(); s.blank() {
		switch s.next() {
		case ']':
			s.skip(1)
			return
		case ',', '}':
			s.skip(1)
		default:
			item := element(path, n)
			s.note(item, false)
			s.value(item, depth+1)
			n++
		}
	}
}

func (s *scan) inline(path string, depth int) {
	s.skip(1)
	for s.blank(); s.more(); s.blank() {
		switch s.next() {
		case '}':
			s.skip(1)
			return
		case ',':
			s.skip(1)
		default:
			s.pair(path, depth+1)
		}
	}
}

// quoted goes over a string of any of the four kinds.
func (s *scan) quoted() {
	quote := s.text[s.pos : s.pos+1]
	long := strings.Repeat(quote, 3)
	if strings.HasPrefix(s.text[s.pos:], long) {
		s.skip(3)
		s.until(long)
		for range 2 { // """ may be preceded by two quotes that belong to the text
			if s.next() == quote[0] {
				s.skip(1)
			}
		}
		return
	}
	s.skip(1)
	s.until(quote)
}

// until goes behind the closing quotes. A string on one line that is not closed ends with the line.
func (s *scan) until(closing string) {
	for s.pos < len(s.text) {
		switch {
		case strings.HasPrefix(s.text[s.pos:], closing):
			s.skip(len(closing))
			return
		case s.next() == '\n' && len(closing) == 1:
			return
		case s.next() == '\\' && closing[0] == '"':
			s.skip(2)
		default:
			s.skip(1)
		}
	}
}
