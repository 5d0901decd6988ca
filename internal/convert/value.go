package convert

import (
	"errors"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/environment"
)

// A value is a string, or a string with parts that only a shell or supervisord can fill in when the program starts. Such a part
// stands between two NULs, which no source has: a letter, then what the shell or supervisord is given.
const (
	shellPart  = 'u' // for a shell, which splits it into words: u${HOME}
	quotedPart = 'q' // for a shell, within quotes: q${HOME}
	fdPart     = 'f' // the descriptor of a listener: fNAME
)

// part returns a value with one part.
func part(kind byte, text string) string { return "\x00" + string(kind) + text + "\x00" }

// parts splits a value: elements with an even index are characters, the others are parts without their NULs.
func parts(value string) []string { return strings.Split(value, "\x00") }

// dynamic reports whether a value has parts.
func dynamic(value string) bool { return strings.Contains(value, "\x00") }

// exportable reports whether a shell can set a variable of this name.
func exportable(name string) bool { return environment.CheckName(name, nil) == nil }

// placeholder is how supervisord's own configuration writes a part for a descriptor. It cannot be escaped.
const placeholder = "{fd:"

// literal returns a value as a word of a command without a shell, or false if it needs a shell.
func literal(value string) (string, bool) {
	for i, p := range parts(value) {
		if i%2 == 0 && strings.Contains(p, placeholder) || i%2 == 1 && p[0] != fdPart {
			return "", false
		}
	}
	return show(value), true
}

// show returns a value with its parts as a shell or the configuration would write them.
func show(value string) string {
	list := parts(value)
	for i := 1; i < len(list); i += 2 {
		if list[i][0] == fdPart {
			list[i] = placeholder + list[i][1:] + "}"
		} else {
			list[i] = list[i][1:]
		}
	}
	return strings.Join(list, "")
}

// inShell returns a value as a word for a shell. With whole, no part of it is split into words.
func inShell(value string, whole bool) string {
	list := parts(value)
	for i, p := range list {
		switch {
		case i%2 == 0 && p != "":
			list[i] = shellQuote(p)
		case i%2 == 0:
		case p[0] == fdPart:
			list[i] = placeholder + p[1:] + "}"
		case p[0] == quotedPart || whole:
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

// shellQuote quotes a word for a shell if needed. It tears apart what would look like a placeholder.
func shellQuote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+="
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	s = strings.ReplaceAll(s, "'", `'\''`)
	return "'" + strings.ReplaceAll(s, placeholder, "{''fd:") + "'"
}

// The errors of splitWords.
var (
	errQuote  = errors.New("a quote is not closed")
	errEscape = errors.New("a backslash is the last character")
)

// splitWords splits a value into words as Python's shlex.split does: not as a shell does, in that $, ` and operators mean nothing
// and "\" escapes only itself and quotes within double quotes. mvdan.cc/sh reads what a shell would read: see script.go.
func splitWords(value string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quote := false, byte(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		last := i+1 == len(value)
		switch {
		case c == 0:
			n := i + 1 + strings.IndexByte(value[i+1:], 0)
			p := value[i+1 : n]
			if quote != 0 && p[0] == shellPart {
				p = string(quotedPart) + p[1:]
			}
			word.WriteString("\x00" + p + "\x00")
			i, begun = n, true
		case quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			end()
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case c == quote:
			quote = 0
		case c == '\\' && quote == 0 && last:
			return nil, errEscape
		case c == '\\' && (quote == 0 || quote == '"' && !last && strings.IndexByte(`"\`, value[i+1]) >= 0) && value[i+1] != 0:
			i++
			word.WriteByte(value[i])
			begun = true
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errQuote
	}
	end()
	return words, nil
}

// invocation is how a program is started: words, or a script for a shell, and what a shell has to do before.
type invocation struct {
	exports []variable // whose values only a shell knows
	dir     string     // the directory, if only a shell knows it
	words   []string
	script  string   // instead of words
	args    []string // of the script: $0, $1, …
}

// variable is an environment variable.
type variable struct{ name, value string }

// export adds a variable; a later one of the same name wins.
func (v *invocation) export(name, value string) {
	v.exports = slices.DeleteFunc(v.exports, func(e variable) bool { return e.name == name })
	v.exports = append(v.exports, variable{name, value})
}

// argv returns the command for the configuration.
func (v invocation) argv() []string {
	argv, shell := []string{}, len(v.exports) > 0 || v.dir != "" || v.script != ""
	for _, w := range v.words {
		s, ok := literal(w)
		argv, shell = append(argv, s), shell || !ok
	}
	if !shell {
		return argv
	}
	argv = []string{"sh", "-c", v.shellLine()}
	for i, a := range v.args {
		if i == 0 && a == "" {
			a = "sh"
		}
		argv = append(argv, show(a))
	}
	return argv
}

// shellLine returns what the shell runs.
func (v invocation) shellLine() string {
	var b strings.Builder
	if v.dir != "" {
		b.WriteString("cd " + inShell(v.dir, true) + " || exit; ")
	}
	for _, e := range v.exports {
		b.WriteString("export " + e.name + "=" + inShell(e.value, true) + "; ")
	}
	if v.script != "" {
		return b.String() + v.script
	}
	b.WriteString("exec")
	for _, w := range v.words {
		b.WriteString(" " + inShell(w, false))
	}
	return b.String()
}
