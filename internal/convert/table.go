package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
)

// tableOrder is the order of a program's tables, as in config.toml.example.
var tableOrder = []string{"", "environment", "limits", "listen", "ready", "health", "reload", "stop", "restart", "log", "hooks"}

// table is a table of the configuration.
type table struct {
	document *document
	lines    []line
	index    map[line]int // of keys, and of comments by their text
}

// line is a comment (key "") or a key with its value in TOML.
type line struct{ key, text string }

// add adds a line, unless one is there at the same index.
func (t *table) add(at, l line) (i int, added bool) {
	i, there := t.index[at]
	if there {
		return i, false
	}
	if t.index == nil {
		t.index = map[line]int{}
	}
	t.lines = append(t.lines, l)
	t.document.lines++
	t.index[at] = len(t.lines) - 1
	return len(t.lines) - 1, true
}

// comment adds a comment, once. It reports whether it did.
func (t *table) comment(text string) bool {
	_, added := t.add(line{text: text}, line{text: text})
	return added
}

// set sets a key; a second value replaces the first.
func (t *table) set(key string, value any) {
	i, _ := t.add(line{key: key}, line{key: key})
	t.lines[i].text = inTOML(value)
}

// value returns the value of a key in TOML, "" if it is not set.
func (t *table) value(key string) string {
	if i, ok := t.index[line{key: key}]; ok {
		return t.lines[i].text
	}
	return ""
}

// listens reports whether the listener is on a network such as "udp" or "unix".
func (t *table) listens(network string) bool {
	return strings.HasPrefix(t.value("address"), `"`+network+":")
}

// empty reports whether the table has no keys.
func (t *table) empty() bool {
	return !slices.ContainsFunc(t.lines, func(l line) bool { return l.key != "" })
}

// raw is a value that is TOML already.
type raw string

func inTOML(value any) string {
	switch value := value.(type) {
	case string:
		return config.Quote(value)
	case []string:
		words := make([]string, len(value))
		for i, word := range value {
			words[i] = config.Quote(word)
		}
		return "[" + strings.Join(words, ", ") + "]"
	default:
		return fmt.Sprint(value)
	}
}

// write returns the configuration as TOML.
func (d *document) write() string {
	var b strings.Builder
	origin := d.Name
	if d.Args != nil {
		origin = "a command line of " + filepath.Base(d.Args[0])
	}
	fmt.Fprintf(&b, "# Converted from %s by `supervisord convert`. Review each \"no equivalent\", then run `supervisord check -c FILE`.\n", printable(origin))
	for _, text := range d.about {
		writeComment(&b, text)
	}
	d.head.carry(d.head.table(""))
	for _, l := range d.head.table("").lines {
		writeComment(&b, l.text)
	}
	if t := d.head.tables["supervisor"]; t != nil {
		b.WriteString("\n[supervisor]\n")
		t.write(&b)
	}
	for _, p := range d.programs {
		text := p.write()
		if p.off {
			text = commentedOut(text)
		}
		b.WriteString("\n" + text)
	}
	return b.String()
}

// write writes a program and its tables. The comments of a table without keys go to the program's own.
func (p *program) write() string {
	own := p.table("")
	for _, name := range tableOrder[1:] {
		if t := p.tables[name]; t != nil && t.empty() {
			own.lines = append(own.lines, t.lines...)
			delete(p.tables, name)
		}
	}
	p.carry(own)
	var b strings.Builder
	for _, text := range p.lead {
		writeComment(&b, text)
	}
	header := "program." + p.name
	if strings.Contains(p.name, ".") {
		header = "program." + config.Quote(p.name)
	}
	fmt.Fprintf(&b, "[%s]\n", header)
	own.write(&b)
	for _, name := range tableOrder[1:] {
		if name == "listen" {
			for _, t := range p.listen {
				fmt.Fprintf(&b, "\n[[%s.listen]]\n", header)
				t.write(&b)
			}
		}
		if t := p.tables[name]; t != nil {
			fmt.Fprintf(&b, "\n[%s.%s]\n", header, name)
			t.write(&b)
		}
	}
	return b.String()
}

// write writes the lines of a table, with the equals signs aligned.
func (t *table) write(b *strings.Builder) {
	width := 0
	for _, l := range t.lines {
		width = max(width, len(l.key))
	}
	for _, l := range t.lines {
		if l.key == "" {
			writeComment(b, l.text)
		} else {
			fmt.Fprintf(b, "%-*s = %s\n", min(width, 24), l.key, l.text)
		}
	}
}

// commentedOut puts a # before every line: "#key" is a setting that is off, "# text" stays a comment.
func commentedOut(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if !strings.HasPrefix(line, "#") && line != "" {
			b.WriteString("#")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// writeComment writes each line of a text as a comment.
func writeComment(b *strings.Builder, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight("# "+printable(line), " ") + "\n")
	}
}

// printable shows control characters, which a comment must not contain.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < ' ' && r != '\t' || r == 0x7f {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
