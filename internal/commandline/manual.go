package commandline

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/supervisord/internal/pattern"
)

// writeManual writes the manual page in man(7). exitStatus is the name of the help topic with all exit codes.
func writeManual(w io.Writer, root *cobra.Command, exitStatus string) {
	name := roff(root.Name())
	fmt.Fprintf(w, ".\\\" %s\n", Mark)
	fmt.Fprintf(w, ".TH %s 1 \"\" \"supervisord\" \"User Commands\"\n", strings.ToUpper(name))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", name, roff(root.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR...]\n", name)
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s", paragraphs(root.Long))
	fmt.Fprintf(w, ".SH OPTIONS\nThese apply to every command.\n")
	writeFlags(w, root.PersistentFlags())
	fmt.Fprintf(w, ".PP\nThese apply without a command.\n")
	writeFlags(w, root.LocalNonPersistentFlags())
	fmt.Fprintf(w, ".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			writeCommand(w, c)
		}
	}
	if topic, _, err := root.Find([]string{exitStatus}); err == nil {
		fmt.Fprintf(w, ".SH EXIT STATUS\n%s", paragraphs(topic.Long))
	}
	fmt.Fprintf(w, ".SH FILES\n.TP\n.I /etc/supervisord/config.toml\n"+
		"the configuration, where neither \\fB\\-c\\fR nor the variable SUPERVISORD_CONFIG names another one\n.TP\n"+
		".I ./supervisord.toml\n"+
		"the configuration, where none of these exists; refused if another ordinary user could have written it\n.TP\n"+
		".I /run/supervisord/control.sock\nthe control socket\n")
	fmt.Fprintf(w, ".SH SEE ALSO\n.BR %s.toml (5),\n.BR systemd.service (5),\n.BR sd_notify (3)\n", name)
}

func writeCommand(w io.Writer, c *cobra.Command) {
	long := c.Long
	if long == "" {
		long = sentenceOf(c.Short)
	}
	fmt.Fprintf(w, ".SS \"%s\"\n%s", roff(strings.TrimPrefix(c.UseLine(), c.Root().Name()+" ")), paragraphs(long))
	if c.Annotations[companionOf] != "" {
		fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(companionHelp(c))))
		return
	}
	if c.Example != "" {
		fmt.Fprintf(w, ".PP\nExamples:\n%s", paragraphs(c.Example))
	}
	writeFlags(w, c.LocalNonPersistentFlags())
}

func writeFlags(w io.Writer, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := `\fB\-\-` + roff(f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB\-` + f.Shorthand + `\fR, ` + name
		}
		if kind != "" {
			name += ` \fI` + roff(kind) + `\fR`
		}
		fmt.Fprintf(w, ".TP\n%s\n%s\n", name, roff(usage))
	})
}

// indented matches a block of lines that stay as they are.
var indented = pattern.Lazy(`(?m)^(  .*\n?)+`)

// paragraphs returns text in man(7), with its paragraphs, and with its indented lines unchanged.
func paragraphs(text string) string {
	text = strings.TrimRight(text, "\n ")
	var b strings.Builder
	last := 0
	plain := func(part string) {
		for i, p := range strings.Split(strings.Trim(part, "\n"), "\n\n") {
			if p != "" && (i > 0 || last > 0) {
				b.WriteString(".PP\n")
			}
			if p != "" {
				b.WriteString(roff(p) + "\n")
			}
		}
	}
	for _, at := range indented().FindAllStringIndex(text, -1) {
		plain(text[last:at[0]])
		b.WriteString(".PP\n.nf\n" + roff(strings.TrimRight(text[at[0]:at[1]], "\n")) + "\n.fi\n")
		last = at[1]
	}
	plain(text[last:])
	return b.String()
}

// beyondASCII matches what some troffs cannot read.
var beyondASCII = pattern.Lazy(`[^\x00-\x7f]`)

// roff escapes text for man(7).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return beyondASCII().ReplaceAllStringFunc(strings.Join(lines, "\n"), func(c string) string {
		return fmt.Sprintf(`\[u%04X]`, []rune(c)[0])
	})
}
