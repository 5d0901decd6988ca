package commandline

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// DocsCommand writes the documentation that is generated from the commands, for scripts/install. exitStatus is the name
// of the help topic with all exit codes.
func DocsCommand(exitStatus string) *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "write documentation", Hidden: true}
	docs.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "write the manual page into a directory",
		RunE: func(cmd *cobra.Command, args []string) error {
			var b strings.Builder
			writeManual(&b, cmd.Root(), exitStatus)
			return os.WriteFile(filepath.Join(args[0], cmd.Root().Name()+".1"), []byte(b.String()), 0o644)
		},
	})
	return docs
}

// manualWidth leaves room for the indentation of man(1) on a terminal with 80 columns.
const manualWidth = 72

// writeManual writes the manual page in man(7): the help of every command, as a terminal shows it.
func writeManual(w io.Writer, root *cobra.Command, exitStatus string) {
	name := roff(root.Name())
	fmt.Fprintf(w, ".\\\" %s\n", Mark)
	fmt.Fprintf(w, ".TH %s 1 \"\" \"supervisord\" \"User Commands\"\n", strings.ToUpper(name))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", name, roff(root.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR...]\n", name)
	section := func(head string, c *cobra.Command) {
		help := companionHelp(c)
		if help == "" {
			var b strings.Builder
			writeHelp(&b, c, manualWidth)
			help, _, _ = strings.Cut(b.String(), "\nGlobal flags:") // those of the whole program come first
		}
		fmt.Fprintf(w, "%s\n.nf\n%s\n.fi\n", head, roff(strings.TrimSpace(help)))
	}
	section(".SH DESCRIPTION", root)
	fmt.Fprintf(w, ".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			section(fmt.Sprintf(".SS \"%s\"", roff(strings.TrimPrefix(c.UseLine(), root.Name()+" "))), c)
		}
	}
	if topic, _, err := root.Find([]string{exitStatus}); err == nil {
		section(".SH EXIT STATUS", topic)
	}
	fmt.Fprintf(w, ".SH FILES\n.TP\n.I %s\n"+
		"the configuration, where neither \\fB\\-c\\fR nor the variable %s names another one\n.TP\n"+
		".I ./%s\nthe configuration, where none of these exists; refused if another ordinary user could have written it\n"+
		".TP\n.I /run/supervisord/control.sock\nthe control socket\n", Installed, configVariable, localConfig)
	fmt.Fprintf(w, ".SH SEE ALSO\n.BR %s.toml (5),\n.BR systemd.service (5),\n.BR sd_notify (3)\n", name)
}

// roff escapes text for man(7).
func roff(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		for _, r := range line {
			switch {
			case r == '\\':
				b.WriteString(`\e`)
			case r == '-':
				b.WriteString(`\-`)
			case r > '~': // some troffs read only ASCII
				fmt.Fprintf(&b, `\[u%04X]`, r)
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
