package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/daemon"
)

func runCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "run the configured programs in the foreground (the default)",
		RunE:  func(c *cobra.Command, _ []string) error { return run(c, path) },
	}
}

func run(c *cobra.Command, path *string) error {
	found, err := findConfig(c, path)
	if err != nil {
		return err
	}
	if !c.Flags().Changed("config") { // an upgrade, which executes os.Args again, must not find another one
		os.Args = append(os.Args, "-c", found.Path)
	}
	return daemon.Run(fromFile(found.Path))
}

// findConfig sets path to the configuration file that a command uses, and says which that is if it is not obvious.
func findConfig(c *cobra.Command, path *string) (commandline.ConfigFile, error) {
	found, err := commandline.FindConfig(c, path)
	if _, bad := os.Stat(found.Path); err == nil && !found.Named && errors.Is(bad, fs.ErrNotExist) && needsFile(c) {
		return found, &exitError{code: exitConfig,
			err: fmt.Errorf("there is neither %s nor ./supervisord.toml: write one with "+
				"`supervisord init`, or name a configuration with -c", found.Path)}
	}
	if found.Note != "" {
		daemon.Complain("supervisord: %s", found.Note)
	}
	return found, err
}

// needsFile reports whether a command reads the whole configuration: the others ask a supervisord, which may run
// without.
func needsFile(c *cobra.Command) bool {
	return !c.HasParent() || c.Name() == "run" || c.Name() == "check"
}

// checkHandover is the hidden command with which a running supervisord checks a new binary.
const checkHandover = "check-handover"

func checkHandoverCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use:    checkHandover,
		Short:  "check that this binary can take over from the supervisord that executed it",
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return fromFile(*path).CheckHandover() },
	}
}

// fromFile returns what a daemon needs that runs a configuration file.
func fromFile(path string) daemon.Options {
	path = daemon.AbsolutePath(path)
	return daemon.Options{
		Config: path, Load: func() (*config.Config,
			error) {
			return config.Load(path)
		}, Version: commandline.Version(), ExitCode: exitCode,
		Check: func(binary string) []string { return []string{binary, checkHandover, "-c", path} },
	}
}
