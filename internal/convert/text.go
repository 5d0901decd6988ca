package convert

import (
	"errors"
	"strings"
)

// atom is a character of a value, or something that only a shell or supervisord can put in.
type atom struct {
	r      rune   // a character; 0: one of the next two
	shell  string // such as $HOME or $(uname -n)
	fd     string // the name of a listener, whose descriptor is meant
	line   int    // where it stands
	quoted bool
}

// text is a value with such parts in it.
type text []atom

// plain is a text of characters.
func plain(s string) text {
	t := make(text, 0, len(s))
	for _, r := range s {
		t = append(t, atom{r: r})
	}
	return t
}

// placeholder is how supervisord itself puts in a descriptor. It cannot be escaped.
const placeholder = "{fd:"

// literal is the text as an argument that needs no shell; false: it needs one.
func (t text) literal() (string, bool) {
	var b strings.Builder
	for _, a := range t {
		switch {
		case a.shell != "":
			return "", false
		case a.fd == "":
			b.WriteRune(a.r)
		}
	}
	if strings.Contains(b.String(), placeholder) {
		return "", false
	}
	b.Reset()
	for _, a := range t {
		if a.fd != "" {
			b.WriteString(placeholder + a.fd + "}")
		} else {
			b.WriteRune(a.r)
		}
	}
	return b.String(), true
}

// String is the text with what a shell puts in as a shell would write it.
func (t text) String() string {
	var b strings.Builder
	for _, a := range t {
		switch {
		case a.shell != "":
			b.WriteString(a.shell)
		case a.fd != "":
			b.WriteString(placeholder + a.fd + "}")
		default:
			b.WriteRune(a.r)
		}
	}
	return b.String()
}

// dynamic reports whether there is more than characters in it.
func (t text) dynamic() bool {
	for _, a := range t {
		if a.r == 0 {
			return true
		}
	}
	return false
}

// quoted is the text with everything in it quoted, for where no fields are split.
func (t text) allQuoted() text {
	all := make(text, len(t))
	for i, a := range t {
		a.quoted = true
		all[i] = a
	}
	return all
}

// inShell is the text as one word for a shell (more, where something without quotes is put in that has spaces in it).
func (t text) inShell() string {
	var b, run strings.Builder
	flush := func() {
		if run.Len() > 0 {
			b.WriteString(shellQuote(run.String()))
			run.Reset()
		}
	}
	for _, a := range t {
		switch {
		case a.shell != "" && a.quoted:
			flush()
			b.WriteString(`"` + a.shell + `"`)
		case a.shell != "":
			flush()
			b.WriteString(a.shell)
		case a.fd != "":
			flush()
			b.WriteString(placeholder + a.fd + "}")
		default:
			run.WriteRune(a.r)
		}
	}
	flush()
	if b.Len() == 0 {
		return "''"
	}
	return b.String()
}

// shellQuote quotes a word for a shell, where it needs to be. What looks like a placeholder is torn apart.
func shellQuote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+="
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	s = strings.ReplaceAll(s, "'", `'\''`)
	return "'" + strings.ReplaceAll(s, placeholder, "{''fd:") + "'"
}

// errQuote is a quote or a backslash that is not closed.
var errQuote = errors.New("a quote is not closed")

// errEscape is a backslash at the end.
var errEscape = errors.New("a backslash stands at the end")

// lexer splits a text into words as a shell does, in two dialects.
type lexer struct {
	sh    bool // sh(1): a backslash joins lines, # begins a comment, operators are words; else Python's shlex.split
	words []text
	word  text
	begun bool
}

// split takes a text apart into words, as Python's shlex.split(…) does or as sh(1) does.
func split(t text, sh bool) ([]text, error) {
	l := &lexer{sh: sh}
	for i := 0; i < len(t); {
		n, err := l.next(t[i:])
		if err != nil {
			return nil, err
		}
		i += n
	}
	l.end()
	return l.words, nil
}

func (l *lexer) end() {
	if l.begun {
		l.words = append(l.words, l.word)
	}
	l.word, l.begun = nil, false
}

func (l *lexer) add(a atom, quoted bool) {
	a.quoted = quoted
	l.word, l.begun = append(l.word, a), true
}

// next takes what stands at the beginning of t and returns how many atoms that is.
func (l *lexer) next(t text) (int, error) {
	switch r := t[0].r; {
	case strings.ContainsRune(" \t\r\n", r) && r != 0:
		l.end()
		if l.sh && r == '\n' {
			l.words = append(l.words, text{t[0]})
		}
		return 1, nil
	case r == '\\':
		if len(t) < 2 {
			return 0, errEscape
		}
		if !l.sh || t[1].r != '\n' {
			l.add(t[1], true)
		}
		return 2, nil
	case r == '\'' || r == '"':
		return l.quote(t)
	case l.sh && r == '#' && !l.begun:
		n := 1
		for n < len(t) && t[n].r != '\n' {
			n++
		}
		return n, nil
	}
	l.add(t[0], false)
	return 1, nil
}

// quote takes a quoted part.
func (l *lexer) quote(t text) (int, error) {
	q := t[0].r
	escapes := `"\`
	if l.sh {
		escapes = "\"\\$`\n"
	}
	l.begun = true
	for i := 1; i < len(t); i++ {
		switch r := t[i].r; {
		case r == q:
			return i + 1, nil
		case r == '\\' && q == '"' && i+1 < len(t) && strings.ContainsRune(escapes, t[i+1].r) && t[i+1].r != 0:
			i++
			if t[i].r != '\n' {
				l.add(t[i], true)
			}
		default:
			l.add(t[i], !l.sh || q == '\'' || r != '$' && r != '`') // what a shell replaces in "…" too is not quoted
		}
	}
	return 0, errQuote
}

// invocation is how a program is started: words, or a script for a shell, and what a shell must do before.
type invocation struct {
	exports []export
	dir     text // where to go first, if only a shell can know it
	words   []text
	script  string // instead of words
	args    []text // of the script: $0, $1, …
}

// export is a variable with a value that only a shell can know.
type export struct {
	name  string
	value text
}

// argv is the command as it is written in the configuration.
func (v invocation) argv() []string {
	var argv []string
	shell := len(v.exports) > 0 || v.dir != nil || v.script != ""
	for _, w := range v.words {
		s, ok := w.literal()
		argv, shell = append(argv, s), shell || !ok
	}
	if !shell {
		return argv
	}
	argv = []string{"sh", "-c", v.line()}
	for i, a := range v.args {
		s, _ := a.literal()
		if i == 0 && s == "" {
			s = "sh"
		}
		argv = append(argv, s)
	}
	return argv
}

// line is what the shell does.
func (v invocation) line() string {
	var b strings.Builder
	if v.dir != nil {
		b.WriteString("cd " + v.dir.allQuoted().inShell() + " || exit; ")
	}
	for _, e := range v.exports {
		b.WriteString("export " + e.name + "=" + e.value.allQuoted().inShell() + "; ")
	}
	if v.script != "" {
		return b.String() + v.script
	}
	b.WriteString("exec")
	for _, w := range v.words {
		b.WriteString(" " + w.inShell())
	}
	return b.String()
}
