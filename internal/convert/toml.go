package convert

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
)

// write is the configuration as TOML.
func (d *document) write() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by `supervisord convert` from %s. Look at every \"no equivalent\", then at `supervisord check -c FILE`.\n", d.origin())
	for _, text := range append(d.about, d.head...) {
		writeComment(&b, text)
	}
	if len(d.global.lines) > 0 {
		b.WriteString("\n[supervisor]\n")
		d.global.write(&b)
	}
	for _, p := range d.programs {
		b.WriteString("\n")
		text := p.write()
		if p.off {
			text = switchedOff(text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// origin is what the source is called.
func (d *document) origin() string {
	if d.Args != nil {
		return "a command line of " + printable(filepath.Base(d.Args[0]))
	}
	return printable(d.Name)
}

// write writes a program with its tables. Comments of a table without keys go to the program's own.
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
	for _, name := range tableOrder {
		switch {
		case name == "":
			fmt.Fprintf(&b, "[%s]\n", header)
			own.write(&b)
		case name == "listen":
			for _, t := range p.listen {
				fmt.Fprintf(&b, "\n[[%s.listen]]\n", header)
				t.write(&b)
			}
		case p.tables[name] != nil:
			fmt.Fprintf(&b, "\n[%s.%s]\n", header, name)
			p.tables[name].write(&b)
		}
	}
	return b.String()
}

// write writes the lines of a table, with the equals signs below each other.
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

// switchedOff is text with a # before every line: "#key" is a setting that is off, "# text" stays a remark.
func switchedOff(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if !strings.HasPrefix(line, "#") && line != "" {
			b.WriteString("#")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// writeComment writes a comment, on one line for each of its own.
func writeComment(b *strings.Builder, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight("# "+printable(line), " ") + "\n")
	}
}

// printable shows the control characters, which a comment must not have.
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

// inTOML is a value as TOML.
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
	case raw:
		return string(value)
	default:
		return fmt.Sprint(value)
	}
}

// raw is a value that is TOML already.
type raw string
