package config

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/supervisord/internal/config/document"
)

// Words are strings of a process: its arguments, its environment. They need not be UTF-8, and keep every byte in JSON,
// which has no other strings.
type Words []string

// Word is one of them, or a path.
type Word string

// coded begins the base64 of a word in JSON. No word has a NUL.
const coded = "\x00"

// MarshalText implements encoding.TextMarshaler.
func (w Word) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(w)) && !strings.HasPrefix(string(w), coded) {
		return []byte(w), nil
	}
	return []byte(coded + base64.StdEncoding.EncodeToString([]byte(w))), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Word) UnmarshalText(text []byte) error {
	code, is := strings.CutPrefix(string(text), coded)
	if !is {
		*w = Word(text)
		return nil
	}
	exact, err := base64.StdEncoding.DecodeString(code)
	*w = Word(exact)
	return err
}

// MarshalJSON implements json.Marshaler.
func (w Words) MarshalJSON() ([]byte, error) {
	var words []Word
	if w != nil {
		words = make([]Word, len(w))
	}
	for i, word := range w {
		words[i] = Word(word)
	}
	return json.Marshal(words)
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *Words) UnmarshalJSON(text []byte) error {
	var words []Word
	if err := json.Unmarshal(text, &words); err != nil || words == nil {
		return err
	}
	*w = make(Words, len(words))
	for i, word := range words {
		(*w)[i] = string(word)
	}
	return nil
}

// InRelease returns a word of a command, or the value of a variable, with what the directory of the program led to when
// a generation began in place of the directory itself: where the text, an item of its list ("a:b") or the value of its
// option ("--file=a") begins with it. left reports whether the text names the directory elsewhere, too, where the same
// may mean something else.
func (p *Program) InRelease(text, resolved string) (followed string, left bool) {
	if p.Directory == resolved {
		return text, false
	}
	var b strings.Builder
	for before := byte(':'); ; {
		at := strings.Index(text, p.Directory)
		if at < 0 {
			b.WriteString(text)
			return b.String(), left
		}
		if at > 0 {
			before = text[at-1]
		}
		rest := text[at+len(p.Directory):]
		whole := rest == "" || strings.ContainsRune("/:", rune(rest[0]))
		b.WriteString(text[:at])
		switch begins := before == ':' || before == '='; {
		case begins && whole:
			b.WriteString(resolved)
		default:
			left = left || whole || strings.ContainsRune(" \t\n;&|)\"',", rune(rest[0]))
			b.WriteString(p.Directory)
		}
		text, before = rest, p.Directory[len(p.Directory)-1]
	}
}

// warnMixed warns of words and values that name the directory, a link, where it does not follow the generation.
func warnMixed(v document.Value, p *Program) {
	resolved, err := filepath.EvalSymlinks(p.Directory)
	if err != nil {
		return
	}
	warn := func(v document.Value, text string) {
		if _, left := p.InRelease(text, resolved); left {
			v.Warn(fmt.Sprintf("names %s, a link, inside a text: a worker that replaces a crashed one finds there what the "+
				"link leads to by then", p.Directory),
				"write the path relative to the directory, where the worker is started, or as a word of its own")
		}
	}
	for _, word := range p.Command {
		warn(v.Child("command"), word)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		warn(v.Child("environment").Child(name), p.Environment[name])
	}
}
