package commandline

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/terminal"
)

// help prints the help of a command, no wider than the terminal.
func help(c *cobra.Command, _ []string) { writeHelp(c.OutOrStdout(), c, terminal.Width(os.Stdout)) }

func writeHelp(out io.Writer, c *cobra.Command, width int) {
	about := c.Long
	if about == "" {
		about = sentenceOf(c.Short)
	}
	fmt.Fprintln(out, wrap(about, width))
	if c.Runnable() {
		fmt.Fprintf(out, "\nUsage:\n%s\n", wrap("  "+c.UseLine(), width))
		if c.HasAvailableSubCommands() {
			fmt.Fprintf(out, "  %s COMMAND [flags]\n", c.CommandPath())
		}
	}
	if c.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", c.Example)
	}
	writeCommands(out, c, width)
	if flags := c.LocalFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(out, "\nFlags:\n%s", flags.FlagUsagesWrapped(width))
	}
	if flags := c.InheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(out, "\nGlobal flags:\n%s", flags.FlagUsagesWrapped(width))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n%s\n", wrap(fmt.Sprintf("`%s COMMAND --help` explains a command.", c.CommandPath()), width))
	}
}

// sentenceOf makes a short text a sentence.
func sentenceOf(short string) string {
	if short == "" {
		return ""
	}
	return strings.ToUpper(short[:1]) + short[1:] + "."
}

// writeCommands lists the commands below a command, by group.
func writeCommands(out io.Writer, c *cobra.Command, width int) {
	widest := 0
	for _, sub := range c.Commands() {
		widest = max(widest, len(sub.Name()))
	}
	list := func(title, group string) {
		var b strings.Builder
		for _, sub := range c.Commands() {
			if sub.GroupID == group && (sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand()) {
				fmt.Fprintln(&b, wrap(fmt.Sprintf("  %-*s  %s", widest, sub.Name(), sub.Short), width))
			}
		}
		if b.Len() > 0 {
			fmt.Fprintf(out, "\n%s:\n%s", title, b.String())
		}
	}
	for _, g := range c.Groups() {
		list(g.Title, g.ID)
	}
	if len(c.Groups()) > 0 {
		list("Other commands", "")
	} else {
		list("Commands", "")
	}
}

// wrap fits text to a width. Lines that begin at the left margin form paragraphs, which are filled anew. An indented
// line stays a line of its own; what does not fit continues below its last column: " HUP read the configuration again".
func wrap(text string, width int) string {
	var lines, paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			lines = append(lines, fill(strings.Join(paragraph, " "), 0, width))
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case line == "":
			flush()
			lines = append(lines, "")
		case strings.HasPrefix(line, "  "):
			flush()
			lines = append(lines, fill(line, hanging(line), width))
		case strings.HasSuffix(line, ":") && len(paragraph) == 0:
			lines = append(lines, fill(line, 0, width)) // a heading
		default:
			paragraph = append(paragraph, line)
		}
	}
	flush()
	return strings.Join(lines, "\n")
}

// hanging returns the column where an indented line continues: that of its last column, which has two spaces before it.
func hanging(line string) int {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if gap := strings.LastIndex(line, "  "); gap > indent {
		return gap + 2
	}
	return indent
}

// fill breaks a line at spaces. Later lines begin at a column.
func fill(line string, column, width int) string {
	var b strings.Builder
	for len([]rune(line)) > width {
		at := strings.LastIndex(string([]rune(line)[:width+1]), " ")
		if at <= column || strings.TrimSpace(line[:at]) == "" {
			break // a word that is too long stays whole
		}
		b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
		line = strings.Repeat(" ", column) + strings.TrimLeft(line[at:], " ")
	}
	return b.String() + line
}
