package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/internal/terminal"
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

// findConfig sets path to the configuration file that a command uses. If nobody has named the file, a line on the
// terminal says which file that is.
func findConfig(c *cobra.Command, path *string) (commandline.ConfigFile, error) {
	found, err := commandline.FindConfig(c, path)
	if _, bad := os.Stat(found.Path); err == nil && !found.Named && errors.Is(bad, fs.ErrNotExist) && needsFile(c) {
		return found, &exitError{code: exitConfig,
			err: fmt.Errorf("there is neither %s nor ./supervisord.toml: write one with "+
				"`supervisord init`, or name a configuration with -c", found.Path)}
	}
	if found.Note != "" && terminal.Is(os.Stderr) {
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

// fromFile returns the options of a daemon that runs a configuration file.
func fromFile(path string) daemon.Instance {
	path = daemon.AbsolutePath(path)
	return daemon.Instance{
		Config: path, Load: func() (*config.Config, error) { return config.Load(path) },
		Version: commandline.Version(), ExitCode: exitCode,
		Check: func(binary string) []string { return []string{binary, checkHandover, "-c", path} },
	}
}

func upgradeCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	return a.command(&cobra.Command{
		Use: "upgrade", Short: "replace a running supervisord by the binary at its path",
		Long: `upgrade does what USR2 does: a running supervisord checks the binary that is now at its path, and lets that
binary take over. upgrade waits until the new supervisord answers: same PID, no socket closed, no worker touched.
The check rejects a broken binary; if the binary fails later, supervisord rolls back to the old one. In both cases
upgrade says why, and exits with 1.`,
	}, func(ctx context.Context, _ []string) error {
		before, err := a.client.Status(ctx, "", false)
		if err != nil {
			return err
		}
		if err := a.client.Upgrade(ctx); err != nil {
			return err
		}
		now, err := a.client.AwaitImage(ctx, before)
		if err == nil {
			fmt.Printf("supervisord %s runs as PID %d\n", now.Version, now.PID)
		}
		return err
	})
}
