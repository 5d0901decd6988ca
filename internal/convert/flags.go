package convert

import (
	"fmt"
	"slices"
	"strings"
)

// flag is an option of a command line.
type flag struct {
	long   string
	short  string // one letter, or ""
	valued bool   // it takes a value
}

// flags are the options of a command and how they are written.
type flags struct {
	known    []flag
	oneDash  bool // -port is --port, in letters of any size (Perl's Getopt::Long)
	anywhere bool // options may follow other words
}

// word is a word of a command line and where it stands.
type word struct {
	at    place
	value text
}

func (w word) String() string { return w.value.String() }

// given is an option that was given.
type given struct {
	item
	flag flag
}

// parse takes the options off a command line. What is left is what is to be run.
func (f flags) parse(d *document, words []word) (options []given, rest []word, ok bool) {
	before := len(d.problems)
	for len(words) > 0 {
		s := words[0].String()
		switch {
		case s == "--":
			return options, append(rest, words[1:]...), len(d.problems) == before
		case len(s) < 2 || s[0] != '-':
			if !f.anywhere {
				return options, words, len(d.problems) == before
			}
			rest, words = append(rest, words[0]), words[1:]
		case strings.HasPrefix(s, "--") || f.oneDash:
			words = f.long(d, words, &options)
		default:
			words = f.short(d, words, &options)
		}
	}
	return options, rest, len(d.problems) == before
}

// find finds an option by its name or by the beginning of it that no other has.
func (f flags) find(name string) []flag {
	var found []flag
	for _, k := range f.known {
		if k.long == name {
			return []flag{k}
		}
		if k.long != "" && strings.HasPrefix(k.long, name) {
			found = append(found, k)
		}
	}
	return found
}

// long takes --name, --name=value or --name value.
func (f flags) long(d *document, words []word, options *[]given) []word {
	at, s := words[0].at, words[0].String()
	name, value, valued := strings.Cut(strings.TrimLeft(s, "-"), "=")
	if f.oneDash {
		name = strings.ToLower(name)
	}
	found := f.find(name)
	if len(found) != 1 {
		what := "is no option of " + string(d.Kind)
		if len(found) > 1 {
			what = fmt.Sprintf("may mean --%s or --%s", found[0].long, found[1].long)
		}
		d.wrong(item{at: at, key: s}, what, f.remedy())
		return words[1:]
	}
	return f.value(d, given{item{at: at, key: "--" + found[0].long, value: value}, found[0]}, valued, words[1:], options)
}

func (f flags) remedy() string {
	return "remove it; the options of the program itself stand behind its name, and best behind --"
}

// short takes -x, -xvalue, -x value, or several options without values in one word.
func (f flags) short(d *document, words []word, options *[]given) []word {
	at, s := words[0].at, words[0].String()
	for i, r := range s[1:] {
		n := slices.IndexFunc(f.known, func(k flag) bool { return k.short == string(r) })
		if n < 0 {
			d.wrong(item{at: at, key: "-" + string(r)}, "is no option of "+string(d.Kind), f.remedy())
			return words[1:]
		}
		rest := s[1+i+len(string(r)):]
		if g := (given{item{at: at, key: "-" + string(r), value: rest}, f.known[n]}); g.flag.valued {
			return f.value(d, g, rest != "", words[1:], options)
		} else {
			g.value = ""
			f.value(d, g, false, nil, options)
		}
	}
	return words[1:]
}

// value gives an option its value, from the next word if need be.
func (f flags) value(d *document, g given, valued bool, words []word, options *[]given) []word {
	switch {
	case !g.flag.valued && valued:
		d.wrong(g.item, "takes no value", "remove =…")
	case g.flag.valued && !valued && len(words) == 0:
		d.wrong(g.item, "needs a value", "write it behind the option")
	case g.flag.valued && !valued:
		g.value, words = words[0].String(), words[1:]
	}
	g.text = strings.TrimSpace(g.key + " " + g.value)
	*options = append(*options, g)
	return words
}
