// Package getopt reads the options of a command line in the spellings of Perl's Getopt::Long and of GNU getopt_long(3),
// which start_server and foreman accept: names may be abbreviated, values follow "=" or stand in the next word, short
// options may be bundled, and for Getopt::Long one dash is enough and case does not matter. pflag has neither
// abbreviations nor long names with one dash, and does not say which word an option came from, which the comments and
// errors of `supervisord convert` need.
package getopt

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Argument is what an option takes.
type Argument int

// The kinds of options.
const (
	Text   Argument = iota
	List            // text, any number of times
	Number          // a whole number of 32 bits
	Switch          // nothing
)

// Flag is one option of a command.
type Flag struct {
	Name  string // without the dashes
	Short string // one letter; "": it has none
	Kind  Argument
	Usage string // for the help; what the option takes is in backquotes
	Extra bool   // supervisord adds it: it makes no abbreviation ambiguous
}

// Syntax is how a command takes its options.
type Syntax struct {
	Options  []Flag
	OneDash  bool // -name means --name, and case does not matter
	Anywhere bool // options may follow other words
}

// Given is an option on a command line.
type Given struct {
	Flag
	Word  int    // the index of its word
	As    string // with dashes, as it was written but not abbreviated: "--port", "-b"
	Value string // "" for a Switch
}

// String is the option as a user would write it.
func (g Given) String() string {
	switch {
	case g.Kind == Switch:
		return g.As
	case strings.HasPrefix(g.As, "--"):
		return g.As + "=" + g.Value
	}
	return g.As + " " + g.Value
}

// Parsed is a command line with its options taken out.
type Parsed struct {
	Given  []Given
	Rest   []int // indices of the words that are not options
	Dashes bool  // "--" stood before Rest, or within it
}

// Mistake is one mistake on a command line.
type Mistake struct {
	Word int // the index of the word
	What string
}

func (e *Mistake) Error() string { return e.What }

// Parse reads the options of words, which begin after the name of the command, and returns every mistake that it finds.
func (s Syntax) Parse(words []string) (Parsed, []*Mistake) {
	p := parser{Syntax: s, words: words}
	for p.at < len(words) {
		switch w := words[p.at]; {
		case w == "--":
			p.line.Dashes = true
			p.at++
			p.rest(len(words))
		case len(w) < 2 || w[0] != '-':
			if s.Anywhere {
				p.rest(p.at + 1)
			} else {
				p.rest(len(words))
			}
		case w[1] == '-' || s.OneDash:
			p.long(w)
		default:
			p.short(w)
		}
	}
	return p.line, p.errors
}

// parser is one call of Parse.
type parser struct {
	Syntax
	words  []string
	at     int
	line   Parsed
	errors []*Mistake
}

func (p *parser) rest(end int) {
	for ; p.at < end; p.at++ {
		p.line.Rest = append(p.line.Rest, p.at)
	}
}

func (p *parser) wrong(format string, args ...any) {
	p.errors = append(p.errors, &Mistake{p.at, fmt.Sprintf(format, args...)})
}

// long reads --name, --name=value or --name value.
func (p *parser) long(word string) {
	name, value, inWord := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
	if p.OneDash {
		name = strings.ToLower(name)
	}
	switch found := p.find(name); len(found) {
	case 0:
		p.wrong("unknown option: %s", name)
	case 1:
		p.value(Given{Flag: found[0], Word: p.at, As: "--" + found[0].Name, Value: value}, inWord)
	default:
		names := make([]string, len(found))
		for i, o := range found {
			names[i] = o.Name
		}
		p.wrong("option %s is ambiguous (%s)", name, strings.Join(names, ", "))
	}
	p.at++
}

// find returns the options that a name, perhaps abbreviated, can mean.
func (s Syntax) find(name string) []Flag {
	if i := slices.IndexFunc(s.Options, func(o Flag) bool { return o.Name == name }); i >= 0 {
		return s.Options[i : i+1]
	}
	var found, extra []Flag
	for _, o := range s.Options {
		switch {
		case name == "" || !strings.HasPrefix(o.Name, name):
		case o.Extra:
			extra = append(extra, o)
		default:
			found = append(found, o)
		}
	}
	if found == nil {
		return extra
	}
	return found
}

// short reads -x, -xVALUE, -x VALUE, or several switches in one word.
func (p *parser) short(word string) {
	for i, r := range word[1:] {
		n := slices.IndexFunc(p.Options, func(o Flag) bool { return o.Short == string(r) })
		if n < 0 {
			p.wrong("unknown option: %c", r)
			break
		}
		g := Given{Flag: p.Options[n], Word: p.at, As: "-" + string(r)}
		if g.Kind != Switch {
			g.Value = word[1+i+len(string(r)):]
			p.value(g, g.Value != "")
			break
		}
		p.value(g, false)
	}
	p.at++
}

// value completes an option with its value, which is in its word or is the next one.
func (p *parser) value(g Given, inWord bool) {
	switch {
	case g.Kind == Switch && inWord:
		p.wrong("option %s does not take an argument", g.Name)
		return
	case g.Kind == Switch:
		p.line.Given = append(p.line.Given, g)
		return
	case !inWord && p.at+1 < len(p.words):
		p.at++
		g.Value = p.words[p.at]
	}
	if g.Value == "" {
		p.wrong("option %s requires an argument", g.Name)
		return
	}
	if _, err := strconv.ParseInt(g.Value, 10, 32); g.Kind == Number && err != nil {
		p.wrong("value %q invalid for option %s (number expected)", g.Value, g.Name)
		return
	}
	p.line.Given = append(p.line.Given, g)
}
