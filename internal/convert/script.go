package convert

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"example.org/supervisord/internal/getopt"
)

// commandLine is a command line and what its script does before.
type commandLine struct {
	words       []string // the first is the command
	at          []location
	environment []setting // variables
	dir         *setting  // where the script goes first
	ignored     []setting // commands of the script that have no meaning here
}

// parseShell parses what sh(1) would run. It reports a mistake of a setting, at its line in the text if that is a file.
func (d *draft) parseShell(s setting, text, remedy string) (*syntax.File, bool) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), "")
	if err == nil {
		return file, true
	}
	what, line := err.Error(), uint(0)
	if e, ok := errors.AsType[syntax.ParseError](err); ok {
		what, line = e.Text, e.Pos.Line()
	} else if e, ok := errors.AsType[syntax.LangError](err); ok {
		what, line = "not POSIX shell: "+e.Feature, e.Pos.Line()
	}
	if s.at.line == 0 {
		s.at.line = int(line)
	}
	d.wrong(s, what, remedy)
	return nil, false
}

// simpleCommand returns a statement's command if it is nothing but words, assignments and perhaps redirections.
func simpleCommand(s *syntax.Stmt) (*syntax.CallExpr, bool) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	return call, ok && !s.Negated && !s.Background && !s.Coprocess
}

// literalWord returns a word of a shell without its quotes, or false if the shell would expand it.
func literalWord(w *syntax.Word) (string, bool) {
	if w == nil {
		return "", true
	}
	return literalParts(w.Parts, false)
}

func literalParts(list []syntax.WordPart, quoted bool) (string, bool) {
	var b strings.Builder
	for i, p := range list {
		text, ok := "", false
		switch p := p.(type) {
		case *syntax.SglQuoted:
			text, ok = p.Value, !p.Dollar
		case *syntax.DblQuoted:
			if !p.Dollar {
				text, ok = literalParts(p.Parts, true)
			}
		case *syntax.Lit:
			if quoted || i > 0 || !strings.HasPrefix(p.Value, "~") {
				text, ok = unescape(p.Value, quoted)
			}
		}
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
}

// unescape removes the backslashes of a shell. Unquoted, patterns of file names and braces with alternatives are not literal.
func unescape(s string, quoted bool) (string, bool) {
	const escapes = "\\$`\"\n"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte(escapes, s[i+1]) >= 0):
			if i++; s[i] != '\n' {
				b.WriteByte(s[i])
			}
		case !quoted && (strings.IndexByte("*?[", s[i]) >= 0 || s[i] == '{' && strings.ContainsAny(s[i:], ",.")):
			return "", false
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), true
}

// commandLine finds the command line of the source: the arguments, or the one command in a file, which may be a shell script that
// sets variables and changes the directory first.
func (d *draft) commandLine() (c commandLine, ok bool) {
	if d.Args != nil {
		c.words = d.Args
		for i := range d.Args {
			c.at = append(c.at, location{file: fmt.Sprintf("argument %d", i+1)})
		}
		return c, true
	}
	here := setting{at: location{file: d.Name}}
	file, ok := d.parseShell(here, normal(d.Text), "fix the script, or write the command line after --")
	if !ok {
		return c, false
	}
	for _, s := range file.Stmts {
		if !d.statement(&c, s) {
			return c, false
		}
	}
	if c.words == nil {
		d.wrong(here, "contains no command line of "+string(d.Kind), "name the file that contains it, or write it after --")
	}
	return c, c.words != nil
}

// statement reads one command of a script.
func (d *draft) statement(c *commandLine, s *syntax.Stmt) bool {
	at := func(n syntax.Node) location { return location{d.Name, int(n.Pos().Line())} }
	shellOnly := func(n syntax.Node, what string) bool {
		d.wrong(setting{at: at(n)}, what, "let the shell run it, supervisord convert -- "+string(d.Kind)+" …, or write the result")
		return false
	}
	call, simple := simpleCommand(s)
	if !simple || len(s.Redirs) > 0 {
		return shellOnly(s, "only a shell can run this")
	}
	for _, a := range call.Assigns {
		value, ok := literalWord(a.Value)
		if !ok {
			return shellOnly(a, "only a shell can expand this variable")
		}
		c.assign(at(a), a.Name.Value, value)
	}
	var words []string
	var places []location
	for _, w := range call.Args {
		word, ok := literalWord(w)
		if !ok {
			return shellOnly(w, "only a shell can expand this word")
		}
		words, places = append(words, word), append(places, at(w))
	}
	return d.command(c, words, places)
}

func (c *commandLine) assign(at location, name, value string) {
	c.environment = append(c.environment, setting{at: at, key: name, value: value, text: name + "=" + value})
}

// command reads the words of a command: the command line, or one that prepares for it.
func (d *draft) command(c *commandLine, words []string, at []location) bool {
	export := len(words) > 0 && words[0] == "export"
	for len(words) > 0 {
		name, value, assigns := strings.Cut(words[0], "=")
		if assigns && exportable(name) {
			c.assign(at[0], name, value)
		} else if !slices.Contains([]string{"exec", "env", "export"}, words[0]) {
			break
		}
		words, at = words[1:], at[1:]
	}
	if len(words) == 0 || export {
		return true
	}
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, shellQuote(w))
	}
	text := strings.Join(quoted, " ")
	s := setting{at: at[0], key: words[0], value: text, text: text}
	switch {
	case slices.Contains([]string{"set", "umask", "ulimit"}, words[0]):
		c.ignored = append(c.ignored, s)
	case words[0] == "cd" && len(words) == 2:
		s.value = words[1]
		c.dir = &s
	case kindOfCommand(words[0]) != d.Kind:
		d.wrong(setting{at: s.at}, fmt.Sprintf("%q is not a command line of %s", shorten(text), d.Kind), "remove everything but the command line")
		return false
	case c.words != nil:
		d.wrong(setting{at: s.at}, "is a second command line; the first is at "+c.at[0].String(), "convert them one by one")
		return false
	default:
		c.words, c.at = words, at
	}
	return true
}

// optionRule is an option of a command and what becomes of it.
type optionRule struct {
	name, short string
	kind        getopt.Argument
	rule        rule
}

// byOption returns the options and the rules of a table.
func byOption(table []optionRule) (getopt.Syntax, rules) {
	syntax, known := getopt.Syntax{}, rules{}
	for _, o := range table {
		syntax.Options = append(syntax.Options, getopt.Flag{Name: o.name, Short: o.short, Kind: o.kind})
		known[o.name] = o.rule
	}
	return syntax, known
}

// options reads the options of a command line. It returns the indices in c.words of the other words.
func (d *draft) options(c commandLine, syntax getopt.Syntax) (given []setting, rest []int, ok bool) {
	line, mistakes := syntax.Parse(c.words[1:])
	for _, m := range mistakes {
		d.wrong(setting{at: c.at[1+m.Word], key: c.words[1+m.Word]}, m.What, "fix the option; those of the program itself follow its name, best after --")
	}
	for _, g := range line.Given {
		given = append(given, fromOption(c, g))
	}
	for _, i := range line.Rest {
		rest = append(rest, i+1)
	}
	return given, rest, len(mistakes) == 0
}

// fromOption makes a setting of an option.
func fromOption(c commandLine, g getopt.Given) setting {
	s := setting{at: c.at[1+g.Word], key: g.Name, as: g.As, value: g.Value, text: g.String()}
	if g.Kind == getopt.Switch {
		s.value = "true"
	}
	return s
}

// begin begins the program of a command line, whose command is at words[first].
func (d *draft) begin(c commandLine, first int) *program {
	if first >= len(c.words) || c.words[first] == "" {
		d.wrong(setting{at: c.at[0]}, "has no command to run", "write the program after --")
		return nil
	}
	name := d.Program
	if name == "" {
		name = filepath.Base(c.words[first])
		if bare, _, ok := strings.Cut(name, "."); ok && bare != "" {
			name = bare
		}
	}
	p := d.newProgram(setting{at: c.at[first], key: name, text: name}, name)
	for _, s := range c.ignored {
		p.lacks(s, "umask and limits are keys of [program.NAME.limits]; other shell settings have no effect")
	}
	return p
}
