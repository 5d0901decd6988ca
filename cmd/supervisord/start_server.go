package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
)

func startServerCommand() *cobra.Command {
	var o starter.Options
	var try bool
	c := &cobra.Command{
		Use:   starter.Name + " [OPTION]... [--] COMMAND [ARGUMENT]...",
		Short: "drop-in replacement for Perl's start_server",
		Long: `start_server takes the command line of Server::Starter ` + starter.Version + ` and runs it as supervisord runs a configuration file.
The same binary installed under the name start_server is this command. docs/start_server.md lists the differences.

Exit status: 0 stopped as asked; the system's error number where there is one (98: the address is in use); 255 an invalid
combination of options; 1 an invalid option; with --daemonize 11 if the first worker failed (start_server keeps retrying);
with --restart and --stop 14 if --timeout expired.`,
		Example: `  start_server --port=8080 --pid-file=web.pid --status-file=web.status -- ./web -v
  start_server --restart --pid-file=web.pid --status-file=web.status`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.Command = args
			if err := runStartServer(&o, try); err != nil {
				return &exitError{starter.ExitCode(err, exitTimeout, exitWorker), err}
			}
			return nil
		},
	}
	for _, flag := range starter.Flags() {
		if flag.Name == "help" { // cobra's own
			continue
		}
		f := c.Flags().VarPF(startServerFlag{&o, flag}, flag.Name, "", flag.Usage)
		if flag.Kind == getopt.Switch {
			f.NoOptDefVal = "true"
		}
	}
	c.DisableFlagsInUseLine = true
	c.Flags().StringP("config", "c", "", "") // there is no configuration file
	c.Flags().MarkHidden("config")           //nolint:errcheck // it is defined
	c.Flags().BoolVar(&try, starter.TryFlag[2:], false, "")
	c.Flags().MarkHidden(starter.TryFlag[2:]) //nolint:errcheck // it is defined
	return c
}

// startServerFlag is a flag of cobra's that sets an option of start_server.
type startServerFlag struct {
	options *starter.Options
	option  getopt.Option
}

func (f startServerFlag) Set(value string) error {
	f.options.Set(f.option, value)
	return nil
}

func (f startServerFlag) String() string { return "" }

func (f startServerFlag) Type() string {
	if f.option.Kind == getopt.Switch {
		return "bool"
	}
	return "string"
}

// runStartServer does what the options ask for.
func runStartServer(o *starter.Options, try bool) (err error) {
	if o.WorkDir, err = os.Getwd(); err != nil {
		return err
	}
	o.Getenv = os.Getenv
	options := daemon.Options{
		Load: o.Load, Version: version(), ExitCode: func(err error) int { return starter.ExitCode(err, exitTimeout, exitWorker) },
		Check: func(binary string) []string { return starter.CheckCommand(binary, os.Args) },
	}
	switch {
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
