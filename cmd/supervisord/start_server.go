package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
)

// startServer is the name of the command, and the program name under which supervisord is that command.
const startServer = "start_server"

// tryFlag is the hidden first word with which a running start_server checks a new binary.
const tryFlag = "--" + checkHandover

func startServerCommand(*string) *cobra.Command {
	c := &cobra.Command{
		Use:   startServer + " [OPTION]... [--] COMMAND [ARGUMENT]...",
		Short: "drop-in replacement for Perl's start_server",
		Long: `start_server takes the command line of Server::Starter ` + starter.Version + ` and runs it as supervisord runs a configuration file.
The same binary installed under the name start_server is this command. docs/start_server.md lists the differences.

Exit status: 0 stopped as asked; the system's error number where there is one (98: the address is in use); 255 an invalid
combination of options; 1 an invalid option; with --daemonize 11 if the first worker failed (start_server keeps retrying);
with --restart and --stop 14 if --timeout expired.`,
		Example: `  start_server --port=8080 --pid-file=web.pid --status-file=web.status -- ./web -v
  start_server --restart --pid-file=web.pid --status-file=web.status`,
		DisableFlagParsing: true, DisableFlagsInUseLine: true, // Getopt::Long allows more than cobra: see starter.Parse
		ValidArgsFunction: completeHandover,
		RunE: func(c *cobra.Command, words []string) error {
			if err := runStartServer(c, words); err != nil {
				return &exitError{code: starter.ExitCode(err), err: err}
			}
			return nil
		},
	}
	for _, o := range starter.Flags() { // for the help, the manual page and the completion
		if o.Kind == getopt.Switch {
			c.Flags().Bool(o.Name, false, o.Usage)
		} else {
			c.Flags().String(o.Name, "", o.Usage)
		}
	}
	c.Flags().StringP("config", "c", "", "") // there is no configuration file
	c.Flags().MarkHidden("config")           //nolint:errcheck // it is defined
	return c
}

// completeHandover completes the value of --handover; everything else is a file, or a flag, which cobra completes.
func completeHandover(_ *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	const flag = "--handover"
	ways := []string{"share", "steer"}
	switch {
	case strings.HasPrefix(part, flag+"="):
		return []string{flag + "=" + ways[0], flag + "=" + ways[1]}, cobra.ShellCompDirectiveNoFileComp
	case len(args) > 0 && args[len(args)-1] == flag:
		return ways, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// runStartServer does what a command line asks for.
func runStartServer(c *cobra.Command, words []string) error {
	try := len(words) > 0 && words[0] == tryFlag
	if try {
		words = words[1:]
	}
	o, err := starter.NewOptions(words)
	if err != nil {
		return err
	}
	options := daemon.Options{Load: o.Load, Version: version(), ExitCode: starter.ExitCode, Check: func(binary string) []string {
		command := []string{binary, startServer, tryFlag}
		if filepath.Base(binary) == startServer {
			command = []string{binary, tryFlag}
		}
		return append(command, words...)
	}}
	switch {
	case o.Has("help"):
		return c.Help()
	case o.Has("version"):
		fmt.Println(starter.Version)
		return nil
	case o.Has("restart"):
		return o.Restart()
	case o.Has("stop"):
		return o.Stop(func(pid int) {
			fmt.Fprintf(os.Stderr, "stop_server (pid:%d) stopping now (pid:%d)...\n", os.Getpid(), pid)
		})
	case try:
		return options.CheckHandover()
	}
	if options.Session, err = o.Begin(); err != nil || options.Session == nil {
		return err
	}
	defer options.Session.Close()
	return daemon.Run(options)
}
