package convert

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/getopt"
)

// commandLine is a command line and what its script does before.
type commandLine struct {
	words       []string // the first is the command
	at          []source.Location
	environment []source.Setting // variables
	dir         *source.Setting  // where the script goes first
	ignored     []source.Setting // commands of the script that have no meaning here
}

// parseShell parses what sh(1) would run. It reports a mistake of a setting, at its line in the text if that is a file.
func (d *conversion) parseShell(s source.Setting, text, remedy string) (*syntax.File, bool) {
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
	if s.At.Line == 0 {
		s.At.Line = int(line)
	}
	d.Wrong(s, what, remedy)
	return nil, false
}

// commandLine finds the command line of the source: the arguments, or the one command in a file, which may be a shell
// script that sets variables and changes the directory first.
func (d *conversion) commandLine() (c commandLine, ok bool) {
	if d.Args != nil {
		c.words = d.Args
		for i := range d.Args {
			c.at = append(c.at, source.Location{File: fmt.Sprintf("argument %d", i+1)})
		}
		return c, true
	}
	here := source.Setting{At: source.Location{File: d.Name}}
	file, ok := d.parseShell(here, source.Normalize(d.Text), "fix the script, or write the command line after --")
	if !ok {
		return c, false
	}
	for _, s := range file.Stmts {
		if !d.statement(&c, s) {
			return c, false
		}
	}
	if c.words == nil {
		d.Wrong(here, "contains no command line of "+string(d.Kind), "name the file that contains it, or write it after --")
	}
	return c, c.words != nil
}

// statement reads one command of a script.
func (d *conversion) statement(c *commandLine, s *syntax.Stmt) bool {
	at := func(n syntax.Node) source.Location { return source.Location{File: d.Name, Line: int(n.Pos().Line())} }
	shellOnly := func(n syntax.Node, what string) bool {
		d.Wrong(source.Setting{At: at(n)}, what,
			"let the shell run it, supervisord convert -- "+string(d.Kind)+" …, or write the result")
		return false
	}
	call, simple := shell.SimpleCommand(s)
	if !simple || len(s.Redirs) > 0 {
		return shellOnly(s, "only a shell can run this")
	}
	for _, a := range call.Assigns {
		value, ok := shell.LiteralWord(a.Value)
		if !ok {
			return shellOnly(a, "only a shell can expand this variable")
		}
		c.assign(at(a), a.Name.Value, value)
	}
	var words []string
	var places []source.Location
	for _, w := range call.Args {
		word, ok := shell.LiteralWord(w)
		if !ok {
			return shellOnly(w, "only a shell can expand this word")
		}
		words, places = append(words, word), append(places, at(w))
	}
	return d.command(c, words, places)
}

func (c *commandLine) assign(at source.Location, name, value string) {
	c.environment = append(c.environment, source.Setting{At: at, Key: name, Value: value, Text: name + "=" + value})
}

// command reads the words of a command: the command line, or one that prepares for it.
func (d *conversion) command(c *commandLine, words []string, at []source.Location) bool {
	export := len(words) > 0 && words[0] == "export"
	for len(words) > 0 {
		name, value, assigns := strings.Cut(words[0], "=")
		if assigns && shell.Exportable(name) {
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
		quoted = append(quoted, shell.Quote(w))
	}
	text := strings.Join(quoted, " ")
	s := source.Setting{At: at[0], Key: words[0], Value: text, Text: text}
	switch {
	case slices.Contains([]string{"set", "umask", "ulimit"}, words[0]):
		c.ignored = append(c.ignored, s)
	case words[0] == "cd" && len(words) == 2:
		s.Value = words[1]
		c.dir = &s
	case kindOfCommand(words[0]) != d.Kind:
		d.Wrong(source.Setting{At: s.At}, fmt.Sprintf("%q is not a command line of %s", source.Shorten(text), d.Kind),
			"remove everything but the command line")
		return false
	case c.words != nil:
		d.Wrong(source.Setting{At: s.At}, "is a second command line; the first is at "+c.at[0].String(),
			"convert them one by one")
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
	rule        draft.Rule
}

// byOption returns the options and the rules of a table.
func byOption(table []optionRule) (getopt.Syntax, draft.Rules) {
	syntax, known := getopt.Syntax{}, draft.Rules{}
	for _, o := range table {
		syntax.Options = append(syntax.Options, getopt.Flag{Name: o.name, Short: o.short, Kind: o.kind})
		known[o.name] = o.rule
	}
	return syntax, known
}

// options reads the options of a command line. It returns the indices in c.words of the other words.
func (d *conversion) options(c commandLine, syntax getopt.Syntax) (given []source.Setting, rest []int, ok bool) {
	line, mistakes := syntax.Parse(c.words[1:])
	for _, m := range mistakes {
		d.Wrong(source.Setting{At: c.at[1+m.Word], Key: c.words[1+m.Word]}, m.What,
			"fix the option; those of the program itself follow its name, best after --")
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
func fromOption(c commandLine, g getopt.Given) source.Setting {
	s := source.Setting{At: c.at[1+g.Word], Key: g.Name, As: g.As, Value: g.Value, Text: g.String()}
	if g.Kind == getopt.Switch {
		s.Value = "true"
	}
	return s
}

// begin begins the program of a command line, whose command is at words[first].
func (d *conversion) begin(c commandLine, first int) *draft.Block {
	if first >= len(c.words) || c.words[first] == "" {
		d.Wrong(source.Setting{At: c.at[0]}, "has no command to run", "write the program after --")
		return nil
	}
	name := d.Program
	if name == "" {
		name = filepath.Base(c.words[first])
		if bare, _, ok := strings.Cut(name, "."); ok && bare != "" {
			name = bare
		}
	}
	p := d.NewProgram(source.Setting{At: c.at[first], Key: name, Text: name}, name)
	for _, s := range c.ignored {
		p.Lacks(s, "umask and limits are keys of [program.NAME.limits]; other shell settings have no effect")
	}
	return p
}
