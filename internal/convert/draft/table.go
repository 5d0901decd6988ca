package draft

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
)

// tableOrder is the order of a program's tables, as in docs/configuration.md.
var tableOrder = []string{"environment", "limits", "listen", "ready", "health", "reload", "drain", "stop", "restart",
	"log", "hooks", "compat"}

// Limit is the key of a soft limit, by its name in getrlimit(2).
func Limit(name string) string {
	if slices.Contains([]string{"core", "memlock", "nofile", "nproc", "stack"}, name) {
		return "limits." + name
	}
	return "limits.rlimits." + name
}

// TOMLTable is a table of the configuration.
type TOMLTable []line

// line is a comment (key "") or a key with its value in TOML.
type line struct{ key, text string }

// Comment adds a comment, once. It reports whether it did.
func (t *TOMLTable) Comment(text string) bool {
	if slices.Contains(*t, line{text: text}) {
		return false
	}
	*t = append(*t, line{text: text})
	return true
}

// Set sets a key; a second value replaces the first.
func (t *TOMLTable) Set(key string, value any) {
	for i := range *t {
		if (*t)[i].key == key {
			(*t)[i].text = inTOML(value)
			return
		}
	}
	*t = append(*t, line{key, inTOML(value)})
}

// Value returns the value of a key in TOML, "" if it is not set.
func (t *TOMLTable) Value(key string) string {
	for _, l := range *t {
		if l.key == key {
			return l.text
		}
	}
	return ""
}

// Raw is a value that is TOML already.
type Raw string

func inTOML(value any) string {
	switch value := value.(type) {
	case string:
		return document.Quote(value)
	case []string:
		words := make([]string, len(value))
		for i, word := range value {
			words[i] = document.Quote(word)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case []int:
		return strings.ReplaceAll(fmt.Sprint(value), " ", ", ")
	default:
		return fmt.Sprint(value)
	}
}

// write returns the configuration as TOML.
func (d *Draft) write() string {
	var b strings.Builder
	origin := d.Name
	if d.Args != nil {
		origin = "a command line of " + filepath.Base(d.Args[0])
	}
	fmt.Fprintf(&b, "# Converted from %s by `supervisord convert`. Review each \"no equivalent\", then run "+
		"`supervisord check -c FILE`.\n", printable(origin))
	for _, text := range d.about {
		writeComment(&b, text)
	}
	own := d.Head.Table("")
	d.Head.carry(own)
	own.write(&b)
	if t := d.Head.Tables["supervisor"]; t != nil {
		b.WriteString("\n[supervisor]\n")
		t.write(&b)
	}
	for _, p := range d.programs {
		b.WriteString("\n" + p.write())
	}
	return b.String()
}

// write writes a program and its tables, as comments if it is off. The comments of a table without keys go to the
// program's own.
func (p *Block) write() string {
	own := p.Table("")
	for _, name := range tableOrder {
		if t := p.Tables[name]; t != nil && p.Unset(name) {
			*own = append(*own, *t...)
			delete(p.Tables, name)
		}
	}
	p.carry(own)
	var b strings.Builder
	for _, text := range p.lead {
		writeComment(&b, text)
	}
	header := "program." + p.ProgramName
	if strings.Contains(p.ProgramName, ".") {
		header = "program." + document.Quote(p.ProgramName)
	}
	fmt.Fprintf(&b, "[%s]\n", header)
	own.write(&b)
	for _, name := range tableOrder {
		if t := p.Tables[name]; t != nil {
			fmt.Fprintf(&b, "\n[%s.%s]\n", header, name)
			t.write(&b)
		}
		for i := 0; name == "listen" && i < len(p.Listen); i++ {
			fmt.Fprintf(&b, "\n[[%s.listen]]\n", header)
			p.Listen[i].write(&b)
		}
	}
	if p.Off {
		return commentedOut(b.String())
	}
	return b.String()
}

// write writes the lines of a table, with the equals signs aligned.
func (t *TOMLTable) write(b *strings.Builder) {
	width := 0
	for _, l := range *t {
		width = max(width, len(l.key))
	}
	for _, l := range *t {
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
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && line != "\n" {
			b.WriteString("#")
		}
		b.WriteString(line)
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
