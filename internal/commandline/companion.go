package commandline

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Mark is in each program of this project. FindProgram, scripts/install and scripts/uninstall look for Mark, because
// other projects have programs with the same names.
const Mark = "This file belongs to supervisord, the process supervisor for restarts without downtime."

// Supervisord is the name of the daemon and its command line.
const Supervisord = "supervisord"

// ProgramName returns the name that supervisord was installed under, for the help, the completion and the manual page.
func ProgramName(argv0 string) string {
	name := filepath.Base(argv0)
	if strings.Trim(name, ".-_") != name || strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", r)
	}) {
		return Supervisord
	}
	return name
}

// FindProgram finds another program of this project: beside this one, in ../lib/NAME, where NAME is the name of this
// one, and in PATH. A file of the same name without Mark is another project's and is left out.
func FindProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Dir(self)
	library := filepath.Join(filepath.Dir(beside), "lib", filepath.Base(self))
	for _, dir := range append([]string{beside, library}, filepath.SplitList(os.Getenv("PATH"))...) {
		if path := filepath.Join(dir, name); filepath.IsAbs(path) && isOurs(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is missing: it is neither in %s nor in %s nor in PATH: install the whole "+
		"package, or build the program with "+
		"CGO_ENABLED=0 go build -o %s/ ./cmd/%s in its source", name, beside, library, beside, name)
}

// isOurs reports whether path is an executable file with Mark in it.
func isOurs(path string) bool {
	if _, err := exec.LookPath(path); err != nil {
		return false
	}
	program, err := os.ReadFile(path)
	return err == nil && bytes.Contains(program, []byte(Mark))
}

// companionOf is an annotation of a command: the program of this project that runs the command.
const companionOf = "companion"

// companionLine returns how the program at path is told to be a command.
func companionLine(c *cobra.Command, path string) []string {
	if filepath.Base(path) == c.Name() {
		return []string{path}
	}
	return []string{os.Args[0], c.Name()}
}

// companionHelp returns what the program of a command prints about itself, or "".
func companionHelp(c *cobra.Command) string {
	path, err := FindProgram(c.Annotations[companionOf])
	if c.Annotations[companionOf] == "" || err != nil {
		return ""
	}
	help := exec.Command(path)
	help.Args = append(companionLine(c, path), "--help")
	text, err := help.Output()
	if err != nil {
		return ""
	}
	return string(text)
}

// Companion returns a command of supervisord that another program of this project has: supervisord executes that
// program in its place, as git does. If the program is named as the command, it is the command; else it gets the name
// of the command as its first argument, and the name of supervisord as argv[0].
func Companion(program, use, short string) *cobra.Command {
	run := func(c *cobra.Command, before string, args []string) error {
		path, err := FindProgram(program)
		if err != nil {
			return err
		}
		argv := companionLine(c, path)
		if before != "" {
			argv = slices.Insert(argv, 1, before)
		}
		return &os.PathError{Op: "execve", Path: path, Err: syscall.Exec(path, append(argv, args...), os.Environ())}
	}
	c := &cobra.Command{Use: use, Short: short, DisableFlagParsing: true,
		Annotations: map[string]string{companionOf: program},
		Long:        sentenceOf(short) + fmt.Sprintf("\n\nThe program %s does this: its --help lists the options.", program)}
	c.RunE = func(c *cobra.Command, args []string) error { return run(c, "", args) }
	c.ValidArgsFunction = func(c *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
		run(c, os.Args[1], append(args, part)) //nolint:errcheck // without the program there is nothing to complete
		return nil, cobra.ShellCompDirectiveDefault
	}
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if err := run(c, "", []string{"--help"}); err != nil {
			fmt.Fprintln(c.ErrOrStderr(), err)
		}
	})
	return c
}
