// Package shell reads and writes what a shell reads: words, scripts and values that only a shell knows.
package shell

import (
	"errors"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/environment"
)

// The kinds of parts. A value is a string, or a string with parts that only a shell or supervisord can fill in when the
// program starts. A part stands between two NULs, which no source has: its kind, then what the shell or supervisord is
// given.
const (
	Unquoted   = 'u' // for a shell, which splits it into words: u${HOME}
	Quoted     = 'q' // for a shell, within quotes: q${HOME}
	Descriptor = 'f' // the descriptor of a listener: fNAME
)

// Part returns a value with one part.
func Part(kind byte, text string) string { return "\x00" + string(kind) + text + "\x00" }

// Parts splits a value: elements with an even index are characters, the others are parts without their NULs.
func Parts(value string) []string { return strings.Split(value, "\x00") }

// Dynamic reports whether a value has parts.
func Dynamic(value string) bool { return strings.Contains(value, "\x00") }

// Exportable reports whether a shell can set a variable of this name.
func Exportable(name string) bool { return environment.CheckName(name) == nil }

// Placeholder is how supervisord's own configuration writes a part for a descriptor. It cannot be escaped.
const Placeholder = "{fd:"

// literal returns a value as a word of a command without a shell, or false if it needs a shell.
func literal(value string) (string, bool) {
	for i, p := range Parts(value) {
		if i%2 == 0 && strings.Contains(p, Placeholder) || i%2 == 1 && p[0] != Descriptor {
			return "", false
		}
	}
	return Show(value), true
}

// Show returns a value with its parts as a shell or the configuration would write them.
func Show(value string) string {
	list := Parts(value)
	for i := 1; i < len(list); i += 2 {
		if list[i][0] == Descriptor {
			list[i] = Placeholder + list[i][1:] + "}"
		} else {
			list[i] = list[i][1:]
		}
	}
	return strings.Join(list, "")
}

// inShell returns a value as a word for a shell. With whole, no part of it is split into words.
func inShell(value string, whole bool) string {
	list := Parts(value)
	for i, p := range list {
		switch {
		case i%2 == 0 && p != "":
			list[i] = Quote(p)
		case i%2 == 0:
		case p[0] == Descriptor:
			list[i] = Placeholder + p[1:] + "}"
		case p[0] == Quoted || whole:
			list[i] = `"` + p[1:] + `"`
		default:
			list[i] = p[1:]
		}
	}
	if value == "" {
		return "''"
	}
	return strings.Join(list, "")
}

// Quote quotes a word for a shell if needed. It tears apart what would look like a placeholder.
func Quote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+="
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	s = strings.ReplaceAll(s, "'", `'\''`)
	return "'" + strings.ReplaceAll(s, Placeholder, "{''fd:") + "'"
}

// The errors of Split.
var (
	errQuote  = errors.New("a quote is not closed")
	errEscape = errors.New("a backslash is the last character")
)

// Split splits a value into words as Python's shlex.split does: not as a shell does, in that $, ` and operators mean
// nothing and "\" escapes only itself and quotes within double quotes. mvdan.cc/sh reads what a shell would read: see
// LiteralWord.
func Split(value string) ([]string, error) {
	var s splitter
	for i := 0; i < len(value); i++ {
		c := value[i]
		last := i+1 == len(value)
		switch {
		case c == 0:
			end := i + 1 + strings.IndexByte(value[i+1:], 0)
			s.part(value[i+1 : end])
			i = end
		case s.quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			s.end()
		case s.quote == 0 && (c == '"' || c == '\''):
			s.quote, s.begun = c, true
		case c == s.quote:
			s.quote = 0
		case c == '\\' && s.quote == 0 && last:
			return nil, errEscape
		case c == '\\' && (s.quote == 0 || s.quote == '"' && !last && strings.IndexByte(`"\`, value[i+1]) >= 0) &&
			value[i+1] != 0:
			i++
			s.add(value[i])
		default:
			s.add(c)
		}
	}
	if s.quote != 0 {
		return nil, errQuote
	}
	s.end()
	return s.words, nil
}

// splitter gathers the words of a value.
type splitter struct {
	words []string
	word  strings.Builder
	begun bool // there is a word, even if it is empty
	quote byte // the open quote; 0: none
}

// add adds a character to the word.
func (s *splitter) add(c byte) {
	s.word.WriteByte(c)
	s.begun = true
}

// part adds a part to the word. In quotes a shell must not split it.
func (s *splitter) part(p string) {
	if s.quote != 0 && p[0] == Unquoted {
		p = string(Quoted) + p[1:]
	}
	s.word.WriteString("\x00" + p + "\x00")
	s.begun = true
}

// end ends the word.
func (s *splitter) end() {
	if s.begun {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.begun = false
}

// Invocation is how a program is started: words, or a script for a shell, and what a shell has to do before.
type Invocation struct {
	exports []environment.Variable // whose values only a shell knows
	Dir     string                 // the directory, if only a shell knows it
	Words   []string
	Script  string   // instead of words
	Args    []string // of the script: $0, $1, …
}

// Export adds a variable; a later one of the same name wins.
func (v *Invocation) Export(name, value string) {
	v.exports = slices.DeleteFunc(v.exports, func(e environment.Variable) bool { return e.Name == name })
	v.exports = append(v.exports, environment.Variable{Name: name, Value: value})
}

// Argv returns the command for the configuration.
func (v Invocation) Argv() []string {
	argv, shell := []string{}, len(v.exports) > 0 || v.Dir != "" || v.Script != ""
	for _, w := range v.Words {
		s, ok := literal(w)
		argv, shell = append(argv, s), shell || !ok
	}
	if !shell {
		return argv
	}
	argv = []string{"sh", "-c", v.shellLine()}
	for i, a := range v.Args {
		if i == 0 && a == "" {
			a = "sh"
		}
		argv = append(argv, Show(a))
	}
	return argv
}

// shellLine returns what the shell runs.
func (v Invocation) shellLine() string {
	var b strings.Builder
	if v.Dir != "" {
		b.WriteString("cd " + inShell(v.Dir, true) + " || exit; ")
	}
	for _, e := range v.exports {
		b.WriteString("export " + e.Name + "=" + inShell(e.Value, true) + "; ")
	}
	if v.Script != "" {
		return b.String() + v.Script
	}
	return b.String() + "exec " + Line(v.Words)
}

// Line returns words as a shell reads them.
func Line(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = inShell(w, false)
	}
	return strings.Join(quoted, " ")
}
