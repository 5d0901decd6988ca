package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/scaffold"
	"example.org/supervisord/worker/bind"
)

// initFlags are the flags of init.
type initFlags struct{ output, name string }

func initCommand() *cobra.Command {
	var f initFlags
	c := &cobra.Command{
		Use:   "init [DIRECTORY] [-- COMMAND…]",
		Short: "write a first configuration, by what is in a directory",
		Long: `init looks for a program in DIRECTORY, the current one by default (manage.py, a Flask or FastAPI
application, Gemfile, config.ru, package.json, pom.xml, build.gradle, Cargo.toml, go.mod, Caddyfile, Dockerfile, or an
executable file), and for the port that it opens (in the command, the code, .env, package.json, Dockerfile, puma.rb,
application.properties, Caddyfile, …), and writes a configuration that runs it. The command stays as it is. init asks
nothing and replaces no file.`,
		Example: `  supervisord init && supervisord check && supervisord
  supervisord init -- npm start
  supervisord init /srv/web/current -o /etc/supervisord/conf.d/web.toml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash > 1 || dash < 0 && len(args) > 1 {
				return commandline.Usagef("init reads one DIRECTORY: write the command after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, command := ".", []string(nil)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args, command = args[:dash], args[dash:]
			}
			if len(args) > 0 {
				dir = args[0]
			}
			return f.run(cmd, dir, command)
		},
	}
	c.Flags().StringVarP(&f.output, "output", "o", "",
		"the `file` to write, or - for stdout (default supervisord.toml in DIRECTORY)")
	c.Flags().StringVar(&f.name, "name", "", "the name of the program")
	return c
}

func (f initFlags) run(cmd *cobra.Command, dir string, command []string) error {
	found, err := scaffold.Find(dir)
	if len(command) > 0 {
		found, err = scaffold.Named(dir, command), nil
	}
	if err != nil {
		return err
	}
	found.Name = cmp.Or(f.name, found.Name)
	output := cmp.Or(f.output, filepath.Join(dir, "supervisord.toml"))
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	where := dir // relative paths begin at the folder of the configuration
	if folder, err := filepath.Abs(filepath.Dir(output)); err == nil && folder == dir && output != "-" {
		where = ""
	}
	text, todo := found.Configuration(where, !bind.Privileged())
	if _, err := config.Parse(dir, output, []byte(text)); err != nil {
		return err
	}
	if output == "-" {
		fmt.Print(text)
		return nil
	}
	if err := writeWhole(output, text, 0o644, false); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: remove it, or name another file with -o", output)
	} else if err != nil {
		return err
	}
	fmt.Printf("wrote %s: program %s runs %s\n\nNext:\n", output, found.Name, strings.Join(found.Command, " "))
	printSteps(todo, whichConfig(cmd, output))
	return nil
}

// printSteps prints what to do next; which names the configuration to a command.
func printSteps(todo []string, which string) {
	todo = append(todo,
		"supervisord check"+which+"\n     reports mistakes",
		"supervisord run"+which+"\n     runs it, until Ctrl-C",
		"supervisord reload"+which+"\n     deploys, from another terminal; supervisord prove"+which+" shows what that costs")
	for i, step := range todo {
		fmt.Printf("  %d. %s\n", i+1, step)
	}
}

// whichConfig returns how a command names the configuration file: " -c FILE", or "" if it finds the file by itself.
func whichConfig(c *cobra.Command, file string) string {
	var path string
	found, err := commandline.FindConfig(c, &path)
	if abs, bad := filepath.Abs(file); err == nil && bad == nil && found.Path == abs {
		return ""
	}
	return " -c " + file
}
