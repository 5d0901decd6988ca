package document

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// The TOML decoder keeps positions to itself: its MetaData has the keys in order but no lines, its errors have only the
// line of the error, and all elements of an array of tables share one entry. Besides, it builds the full name of every
// key, so that a file of one megabyte could cost gigabytes of memory or an endless stack. Hence this scanner, which
// runs before it, notes where everything is, and refuses what exceeds these bounds.
const (
	maxDepth  = 32     // nested arrays and inline tables
	maxPath   = 512    // bytes in the full name of a key
	maxValues = 50_000 // keys and array elements
)

// Position is a place in a file. Lines and columns count from 1; a column is in bytes.
type Position struct {
	Line, Column int
	octal        bool // the value there is written 0o…
}

// Positions are those of everything in a file by its full name, in the form of Problem.Key. They keep nothing of the
// text.
type Positions map[string]Position

// Of returns the position of a key by its full name, or of the nearest table around it that is written; zero: of none.
func (p Positions) Of(key string) Position {
	for key != "" {
		if at, ok := p[key]; ok {
			return at
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return Position{}
}

// Key is the full name of a key in the table path.
func Key(path, name string) string {
	if !Bare(name) {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// element is the full name of an element of the array path.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Bare reports whether a key needs no quotes.
func Bare(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// keyScanner reads TOML token by token. It takes any text and always ends; for text that is not TOML the positions are
// useless.
type keyScanner struct {
	rest    string   // from the current token on
	token   string   // a mark, such as a bracket, a string with its quotes, or a word; "": the end
	at      Position // of the token
	found   Positions
	lengths map[string]int // of the arrays of tables
	err     error          // a bound was exceeded
}

// tokens match the token with which a text begins. A string in triple quotes may end with two quotes of its own; one
// that is not closed ends with the text, and any other string with its line.
var tokens = pattern.Lazy(`^(?:` +
	`"""(?s:\\.?|[^\\])*?(?:"{3,5}|$)|'''(?s:.)*?(?:'{3,5}|$)|` +
	`"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|[\n.=,\[\]{}]|[^\n.=,\[\]{} \t\r"'#]*)`)

// findPositions returns the positions in text, or an error and its position if text exceeds a bound.
func findPositions(text string) (Positions, Position, error) {
	s := &keyScanner{rest: strings.TrimPrefix(text, "\ufeff"), at: Position{Line: 1, Column: 1}, found: Positions{},
		lengths: map[string]int{}}
	table := ""
	for s.next(); s.more(); {
		switch s.token {
		case "\n":
			s.next()
		case "[":
			table = s.header()
		default:
			s.pair(table, 0)
		}
	}
	return s.found, s.at, s.err
}

func (s *keyScanner) more() bool { return s.err == nil && s.token != "" }

func (s *keyScanner) skip(n int) {
	s.at.Line += strings.Count(s.rest[:n], "\n")
	if end := strings.LastIndexByte(s.rest[:n], '\n'); end >= 0 {
		s.at.Column = n - end
	} else {
		s.at.Column += n
	}
	s.rest = s.rest[n:]
}

// next goes to the next token.
func (s *keyScanner) next() {
	s.skip(len(s.token))
	s.skip(len(s.rest) - len(strings.TrimLeft(s.rest, " \t\r")))
	if strings.HasPrefix(s.rest, "#") {
		line, _, _ := strings.Cut(s.rest, "\n")
		s.skip(len(line))
	}
	s.token = tokens().FindString(s.rest)
}

// note keeps the position of path. A table that is only implied by the name of another one gives way to its own header.
func (s *keyScanner) note(path string, at Position, implied bool) {
	_, known := s.found[path]
	switch {
	case s.err != nil:
	case len(path) > maxPath:
		s.err = fmt.Errorf("a key has more than %d bytes", maxPath)
	case len(s.found) >= maxValues:
		s.err = fmt.Errorf("more than %d keys and values", maxValues)
	case !known || !implied:
		s.found[strings.Clone(path)] = at
	}
}

// header reads a [table] or [[array of tables]] and returns its full name.
func (s *keyScanner) header() string {
	at := s.at
	s.next()
	array := s.token == "["
	if array {
		s.next()
	}
	path := s.key("", at, array)
	if array {
		n := s.lengths[path]
		s.lengths[path]++
		path = element(path, n)
		s.note(path, at, false)
	}
	for s.token == "]" {
		s.next()
	}
	return path
}

// pair reads one key = value in the table path.
func (s *keyScanner) pair(path string, depth int) {
	path = s.key(path, s.at, false)
	if s.token == "=" {
		s.next()
		s.value(path, depth)
		return
	}
	for s.more() && s.token != "\n" { // not TOML
		s.next()
	}
}

// key reads a dotted key in the table path, notes the position of each part, and returns its full name.
func (s *keyScanner) key(path string, at Position, implied bool) string {
	for {
		path = Key(path, unquote(s.token))
		s.next()
		dotted := s.token == "."
		if s.note(path, at, implied || dotted); !dotted || s.err != nil {
			return path
		}
		if n := s.lengths[path]; n > 0 {
			path = element(path, n-1)
		}
		s.next()
	}
}

// unquote returns what a part of a key stands for.
func unquote(part string) string {
	if text, ok := strings.CutPrefix(part, "'"); ok {
		return strings.TrimSuffix(text, "'")
	}
	text, err := strconv.Unquote(strings.ReplaceAll(part, `\e`, `\x1b`))
	if err != nil {
		return part
	}
	return text
}

// value reads a value and notes what is inside.
func (s *keyScanner) value(path string, depth int) {
	opening := s.token
	switch {
	case depth > maxDepth:
		s.err = errors.New("nested too deeply")
	case opening == "[" || opening == "{":
		s.next()
		s.inside(path, depth+1, opening == "[")
	default:
		if found, ok := s.found[path]; ok && strings.HasPrefix(s.token, "0o") {
			found.octal = true
			s.found[path] = found
		}
		for s.more() && !strings.ContainsAny(s.token[:1], ",]}\n") {
			s.next()
		}
	}
}

// inside reads the elements of an array, or the pairs of an inline table.
func (s *keyScanner) inside(path string, depth int, array bool) {
	for n := 0; s.more(); {
		switch {
		case s.token == "]" && array, s.token == "}" && !array:
			s.next()
			return
		case s.token == "\n", s.token == ",", s.token == "}":
			s.next()
		case array:
			item := element(path, n)
			s.note(item, s.at, false)
			s.value(item, depth)
			n++
		default:
			s.pair(path, depth)
		}
	}
}
