// Package commandline adds to cobra: messages for mistakes, the help, the manual page, the version, and where the
// configuration and the other programs of this project are.
package commandline

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/supervisord/internal/config/document"
)

// UsageError is a mistake in the command line: what is wrong, and what to write instead.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Prepare gives a tree of commands this package's help and words for mistakes. How many arguments a command takes
// follows from its Use line, and which flags it needs, unless it has Args or parses its flags itself: "scale PROGRAM
// N", "events [PROGRAM]", "reload [PROGRAM...]", "kill PROGRAM --generation N".
func Prepare(root *cobra.Command) {
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(help)
	root.SetUsageFunc(func(c *cobra.Command) error {
		help(c, nil)
		return nil
	})
	if root.Args == nil {
		root.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(c, args[0])
		}
	}
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short, c.Long = "write the completion script for a shell", ""
		}
		prepareArguments(c)
	}
}

func prepareArguments(c *cobra.Command) {
	if c.Args == nil && !c.DisableFlagParsing {
		c.Args = countArguments
	}
	for _, sub := range c.Commands() {
		prepareArguments(sub)
	}
}

func unknownCommand(c *cobra.Command, word string) error {
	if near, ok := document.Nearest(word, commandNames(c.Root())); ok {
		return Usagef("%q is not a command: did you mean %s?", word, near)
	}
	if hint := fileHint(word); hint != "" {
		return Usagef("%q is not a command: %s", word, hint)
	}
	return Usagef("%q is not a command: see `%s --help`", word, c.Root().Name())
}

func commandNames(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// fileHint returns what to write where a file was given as an argument.
func fileHint(word string) string {
	if info, err := os.Stat(word); err == nil && info.Mode().IsRegular() {
		return "write -c " + word + " to name the configuration"
	}
	return ""
}

// countArguments compares the arguments with the Use line of the command.
func countArguments(c *cobra.Command, args []string) error {
	words, needed, endless := wanted(c.Use)
	switch {
	case len(args) < len(needed):
		return Usagef("%s is missing: write `%s`", needed[len(args)], line(c))
	case len(args) <= len(words) || endless:
		return requiredFlags(c)
	}
	word := args[len(words)]
	if hint := fileHint(word); hint != "" && c.Flags().Lookup("config") != nil && len(words) == 0 {
		return Usagef("%q is one argument too many: %s", word, hint)
	}
	return Usagef("%q is one argument too many: write `%s`", word, line(c))
}

// Behind returns the names of the arguments in the Use line of a command that follow the first.
func Behind(c *cobra.Command) []string {
	words, _, _ := wanted(c.Use)
	return words[1:]
}

// wanted returns the names of the arguments in a Use line, and of those that are not optional; endless: the last may be
// repeated.
func wanted(use string) (words, needed []string, endless bool) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "-") {
			break // a flag that is required
		}
		inner, isOptional := strings.CutPrefix(word, "[")
		name, repeated := strings.CutSuffix(strings.TrimSuffix(inner, "]"), "...")
		if !isOptional {
			needed = append(needed, name)
		}
		words, endless = append(words, name), endless || repeated
	}
	return words, needed, endless
}

// requiredFlags says which flag of the Use line is missing, or which flags exclude each other. Cobra's own list of
// required flags would hide all others from the completion.
func requiredFlags(c *cobra.Command) error {
	for word := range strings.FieldsSeq(c.Use) {
		if name, is := strings.CutPrefix(word, "--"); is && !c.Flags().Changed(name) {
			return Usagef("%s is missing: write `%s`", word, line(c))
		}
	}
	return exclusive(c)
}

// exclusive says which of the flags that were given exclude each other. Cobra knows that they do, and notes it at each;
// its own sentence is for programmers.
func exclusive(c *cobra.Command) error {
	if c.ValidateFlagGroups() == nil {
		return nil
	}
	var given []string
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Annotations["cobra_annotation_mutually_exclusive"] != nil {
			given = append(given, "--"+f.Name)
		}
	})
	return Usagef("%s exclude each other: remove one", strings.Join(given, " and "))
}

// line returns how the command is written.
func line(c *cobra.Command) string { return strings.TrimSuffix(c.UseLine(), " [flags]") }

// flagError puts a mistake with a flag into our own words.
func flagError(c *cobra.Command, err error) error {
	if rest := c.Flags().Args(); c == c.Root() && len(rest) > 0 {
		return unknownCommand(c, rest[0]) // the flags are those of an unknown command
	}
	see := fmt.Sprintf("see `%s --help`", c.CommandPath())
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(c, e, see)
	}
	return Usagef("%s: %s", strings.TrimSuffix(err.Error(), "\n"), see)
}

func unknownFlag(c *cobra.Command, e *pflag.NotExistError, see string) error {
	name := "--" + e.GetSpecifiedName()
	if e.GetSpecifiedShortnames() != "" {
		return Usagef("unknown flag -%s: %s", e.GetSpecifiedName(), see)
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near, ok := document.Nearest(e.GetSpecifiedName(), known); ok {
		return Usagef("unknown flag %s: did you mean --%s?", name, near)
	}
	return Usagef("unknown flag %s: %s", name, see)
}
