// Command supervisord-tools has the commands of supervisord that a running supervisord does not need: convert, prove,
// demo and init. `supervisord convert` executes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/control"
)

// toolsName is the name of this program. Under any other name supervisord has executed it, and that is the name of
// supervisord.
const toolsName = "supervisord-tools"

func main() { os.Exit(execute()) }

// execute runs the command line and returns the exit code, which is one of supervisord's. Every error is printed once,
// here.
func execute() int {
	root := rootCommand(commandline.ProgramName(os.Args[0]))
	begun := false // false when an error comes: it is one of the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	err := root.Execute()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed): // it has been printed
	case isRefused(err): // each line begins with its file, for editors
		fmt.Fprintln(os.Stderr, err)
	case errors.Is(err, context.Canceled): // by a signal
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", root.Name())
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	}
	if !begun {
		return exitUsage
	}
	return exitCode(err)
}

func rootCommand(name string) *cobra.Command {
	var path string
	root := &cobra.Command{
		Use:         name,
		Annotations: map[string]string{"mark": commandline.Mark},
		Short:       "convert, prove, demo and init of supervisord",
		Long: toolsName + ` has the commands of supervisord that a running supervisord does not need: they read foreign
formats, put load on programs, and write first configurations. supervisord executes it for them.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	commandline.ConfigFlag(root, &path)
	root.AddCommand(demoCommand(), initCommand(), proveCommand(&path), convertCommand())
	root.AddCommand(commandline.VersionCommand(), demoWorkerCommand())
	commandline.Prepare(root)
	return root
}

// supervisord returns the path of the supervisord that executed this program, or of the one beside it.
func supervisord() (string, error) {
	if filepath.Base(os.Args[0]) != toolsName {
		if path, err := exec.LookPath(os.Args[0]); err == nil {
			return filepath.Abs(path)
		}
	}
	return commandline.FindProgram(commandline.Supervisord)
}

// The exit codes, of those that supervisord has.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitUnavailable = 69
	exitPermission  = 77
	exitConfig      = 78
	exitInterrupted = 130
)

// errFailed is the error of a command that has said what failed.
var errFailed = errors.New("failed")

// isRefused reports whether an error is that of a configuration.
func isRefused(err error) bool {
	_, is := errors.AsType[*document.Error](err)
	return is
}

func exitCode(err error) int {
	_, usage := errors.AsType[*commandline.UsageError](err)
	switch {
	case usage:
		return exitUsage
	case isRefused(err):
		return exitConfig
	case errors.Is(err, control.ErrForbidden):
		return exitPermission
	case errors.Is(err, control.ErrNotThere), errors.Is(err, control.ErrStranger), errors.Is(err,
		control.ErrBroken), errors.Is(err, errControlOff):
		return exitUnavailable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailure
}
