package convert

import (
	"fmt"
	"path/filepath"
	"strings"
)

// commandLine is a command line with what its shell did before.
type commandLine struct {
	words       []word // the first is the command
	environment []item // variables that were set for it: key and value
	dir         *item  // where the script went first
	ignored     []item // lines without a meaning here
}

// commandLine finds the command line in the source: the arguments, or the one command in a file, which may be a shell script
// that sets variables and changes the directory first.
func (d *document) commandLine(s Source) (commandLine, bool) {
	if s.Args != nil {
		var c commandLine
		for i, arg := range s.Args {
			c.words = append(c.words, word{place{file: fmt.Sprintf("argument %d", i+1)}, plain(arg)})
		}
		return c, true
	}
	return d.script(s)
}

// script reads a file with a command line.
func (d *document) script(s Source) (commandLine, bool) {
	var t text
	line := 1
	for _, r := range normal(s.Text) {
		t = append(t, atom{r: r, line: line})
		if r == '\n' {
			line++
		}
	}
	words, err := split(t, true)
	if err != nil {
		d.wrong(item{at: place{file: s.Name}}, err.Error(), "close it")
		return commandLine{}, false
	}
	var c commandLine
	var one []word
	end := func() bool {
		ok := len(one) == 0 || d.scriptLine(&c, one)
		one = nil
		return ok
	}
	for _, w := range words {
		at := place{file: s.Name, line: d.lineOf(w, line)}
		switch {
		case len(w) == 1 && w[0].r == '\n' && !w[0].quoted:
			if !end() {
				return c, false
			}
		case !d.plainWord(at, w):
			return c, false
		default:
			one = append(one, word{at, w})
		}
	}
	if !end() {
		return c, false
	}
	if c.words == nil {
		d.wrong(item{at: place{file: s.Name}}, "has no command line of "+string(s.Kind), "name the file that has it, or write it behind --")
	}
	return c, c.words != nil
}

// lineOf is the line in which a word stands; an empty word has none of its own.
func (d *document) lineOf(w text, last int) int {
	if len(w) == 0 {
		return last
	}
	return w[0].line
}

// plainWord reports what a shell would replace or act on, which cannot be known here.
func (d *document) plainWord(at place, w text) bool {
	for i, a := range w {
		if a.quoted {
			continue
		}
		if strings.ContainsRune("$`|&;<>()*?[", a.r) || a.r == '~' && i == 0 {
			d.wrong(item{at: at}, fmt.Sprintf("has %q, which a shell acts on", a.r),
				"have the shell do it: supervisord convert -- "+string(d.Kind)+" …; or write what comes of it")
			return false
		}
	}
	return true
}

// scriptLine takes one line of a script.
func (d *document) scriptLine(c *commandLine, line []word) bool {
	first := line[0].String()
	export := first == "export"
	for len(line) > 0 {
		if word := line[0].String(); word == "exec" || word == "env" || word == "export" && export {
			line = line[1:]
			continue
		}
		name, value, ok := strings.Cut(line[0].String(), "=")
		if !ok || !exportable(name) {
			break
		}
		c.environment = append(c.environment, item{at: line[0].at, key: name, value: value, text: name + "=" + value})
		line = line[1:]
	}
	switch {
	case len(line) == 0 || export:
		return true
	}
	switch first = line[0].String(); {
	case first == "set", first == "umask", first == "ulimit":
		text := joined(line)
		c.ignored = append(c.ignored, item{at: line[0].at, key: first, value: text, text: text})
	case first == "cd" && len(line) == 2:
		c.dir = &item{at: line[0].at, key: "cd", value: line[1].String(), text: joined(line)}
	case commandKinds[filepath.Base(line[0].String())] != d.Kind:
		d.wrong(item{at: line[0].at}, fmt.Sprintf("%q is no command line of %s", shorten(joined(line)), d.Kind), "leave in the file only the command line itself")
		return false
	case c.words != nil:
		d.wrong(item{at: line[0].at}, "is a second command line; the first is at "+c.words[0].at.String(), "convert them one by one")
		return false
	default:
		c.words = line
	}
	return true
}

func joined(line []word) string {
	words := make([]string, len(line))
	for i, w := range line {
		words[i] = shellQuote(w.String())
	}
	return strings.Join(words, " ")
}

// begin makes the program of a command line: what it runs, and with what.
func (d *document) begin(c commandLine, rest []word) *program {
	if len(rest) == 0 || len(rest[0].value) == 0 {
		d.wrong(item{at: c.words[0].at}, "says nothing to run", "write the program behind --")
		return nil
	}
	name := d.Program
	if name == "" {
		name = filepath.Base(rest[0].String())
		if bare, _, ok := strings.Cut(name, "."); ok && bare != "" {
			name = bare
		}
	}
	p := d.program(item{at: rest[0].at, key: name, text: name}, name)
	for _, it := range c.ignored {
		p.lacks(it, "umask and limits are keys of [program.NAME.limits]; other settings of a shell mean nothing here")
	}
	return p
}

// argv writes the command of a command line.
func (p *program) argv(rest []word) {
	var run invocation
	for _, w := range rest {
		run.words = append(run.words, w.value)
	}
	p.set("", "command", run.argv())
}

// here writes where the program of a command line runs.
func (p *program) here(c commandLine, dir *item) {
	switch {
	case dir != nil && c.dir != nil && !filepath.IsAbs(dir.value):
		p.set("", "directory", p.doc.path(filepath.Join(c.dir.value, dir.value)))
	case dir != nil && dir.value != "":
		p.set("", "directory", p.doc.path(dir.value))
	case c.dir != nil && c.dir.value != "":
		p.set("", "directory", p.doc.path(c.dir.value))
	default:
		p.table("").comment(fmt.Sprintf("%s runs it where it was started itself, which is taken to be here.", p.doc.Kind))
		p.set("", "directory", p.doc.Dir)
	}
}
