// Command supervisord runs programs and replaces their workers without losing a connection.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/internal/foreign"
)

func main() {
	os.Exit(foreign.LeaveMain(func() int { return execute(os.Args) }))
}

// execute runs the command line and returns the exit code. Every error is printed once, here.
func execute(argv []string) int {
	name, args := commandline.ProgramName(argv[0]), argv[1:]
	root := rootCommand(name)
	root.SetArgs(args)
	begun := false // an error before is a mistake in the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	ran, err := root.ExecuteC()
	if said, is := errors.AsType[*exitError](err); is && said.err == nil {
		return said.code
	}
	if _, is := errors.AsType[*commandline.UsageError](err); err != nil && !begun && !is { // one of cobra's own
		err = commandline.Usagef("%v", err)
	}
	code := exitCode(err)
	if err != nil && wantsReport(ran, args) {
		printReport(failureReport(ran.Name(), err), err, code) //nolint:errcheck // the error itself follows
	}
	if _, is := err.(*document.Error); is { // each line begins with its file, for editors
		daemon.Complain("%v", err)
	} else if err != nil {
		daemon.Complain("%s: %v", name, err)
	}
	return code
}

func rootCommand(name string) *cobra.Command {
	var path string
	var version bool
	root := &cobra.Command{
		Use:         name,
		Annotations: map[string]string{"mark": commandline.Mark},
		Short:       "run programs and replace their workers without losing a connection",
		Long: `supervisord holds the listening sockets of programs and hands them to their workers.
On HUP it starts new workers, waits until they are ready, and only then stops the old ones.

Signals to a running supervisord:
  HUP         read the configuration again and replace the workers of every program
  TERM, INT   stop every program by its stop plan, then exit; a second one, 250 ms later or more, means stop now
  QUIT        stop now
  USR1        reopen the log files
  TTIN, TTOU  one worker more or fewer, if there is only one program
  USR2        upgrade supervisord itself to the binary at its path; workers and sockets stay
  RTMIN+1     exit at once and leave the workers to the next supervisord`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			if version {
				return commandline.PrintVersion(false)
			}
			return run(c, &path)
		},
	}
	root.Flags().BoolVarP(&version, "version", "V", false, "print the version")
	commandline.ConfigFlag(root, &path)
	addCommands(root, &path)
	return root
}

func addCommands(root *cobra.Command, path *string) {
	cobra.EnableCommandSorting = false // help lists them in the order below
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			command := c(path)
			command.GroupID = g.title
			root.AddCommand(command)
		}
	}
	root.AddCommand(commandline.VersionCommand(), exitStatusHelp(), commandline.DocsCommand(exitStatusTopic),
		checkHandoverCommand(path))
	commandline.Prepare(root)
}

// groups are the commands, as the help lists them.
var groups = []struct {
	title    string
	commands []func(path *string) *cobra.Command
}{
	{"Run", []func(*string) *cobra.Command{
		tool("demo", "show, in fifteen seconds, what a deploy costs with supervisord and without"),
		tool("init", "write a first configuration, by what is in a directory"),
		runCommand, checkCommand,
		tool("prove", "put load on a program, reload it again and again, and report what was lost and why"),
	}},
	{"Deploy", []func(*string) *cobra.Command{reloadCommand, promoteCommand, abortCommand, rollbackCommand,
		startCommand, stopCommand, restartCommand, scaleCommand, pauseCommand, resumeCommand, signalCommand, killCommand,
		upgradeCommand}},
	{"Observe", []func(*string) *cobra.Command{statusCommand, eventsCommand, logsCommand, logLevelCommand}},
	{"Migrate", []func(*string) *cobra.Command{
		tool("convert", "convert another supervisor's configuration"),
		companion("start_server", "start_server", "drop-in replacement for Perl's start_server"),
	}},
}

// tool is a command of supervisord-tools.
func tool(name, short string) func(*string) *cobra.Command {
	return companion("supervisord-tools", name, short)
}

func companion(program, name, short string) func(*string) *cobra.Command {
	return func(*string) *cobra.Command { return commandline.Companion(program, name, short) }
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
