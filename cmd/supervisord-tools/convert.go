package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/convert"
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/convert/unit"
	"example.org/supervisord/worker/bind"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	from, name, output, stage string
	force                     bool
}

const convertLong = `convert reads a command line of start_server, the ini file of Python's supervisor, a Procfile, a
unit of systemd, an ecosystem file of pm2, or a file of Docker Compose, and prints the equivalent configuration of
supervisord. A setting without an equivalent becomes a comment with its position, its key, and what to do instead:
search for "no equivalent". Commands stay as they are: a program opens its port as always, and convert writes a listener
for that port. FILE may be - for stdin. convert recognizes the kind of FILE by its name and content, unless --from names
it. A malformed source is an error with file and line. What to do next is said on stderr.`

const convertExample = `  supervisord convert /etc/supervisor/supervisord.conf
  supervisord convert -o config.toml Procfile && supervisord check -c config.toml
  supervisord convert /etc/systemd/system/web.service
  node -p 'JSON.stringify(require("./ecosystem.config.js"))' >ecosystem.json
  supervisord convert --env production ecosystem.json
  supervisord convert -- start_server --port 8080 --interval 5 -- ./app -v
  supervisord convert -- foreman start -f Procfile -m web=2`

func convertCommand() *cobra.Command {
	var f convertFlags
	c := &cobra.Command{
		Use:     "convert FILE | convert -- COMMAND",
		Short:   "convert another supervisor's configuration",
		Long:    convertLong,
		Example: convertExample,
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := c.Flags()
	flags.StringVar(&f.from, "from", "", "the kind of FILE: `KIND` is "+strings.Join(kinds(), ", "))
	flags.StringVar(&f.stage, "env", "", "the `NAME` of the env_NAME of pm2 that holds, such as production")
	flags.StringVar(&f.name, "name", "", "the name for the program of a command line")
	flags.StringVarP(&f.output, "output", "o", "", "write this `file` atomically; fail if it exists")
	flags.BoolVar(&f.force, "force", false, "let --output replace a file")
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return kinds(), cobra.ShellCompDirectiveNoFileComp
	}
	c.RegisterFlagCompletionFunc("from", complete) //nolint:errcheck // the flag is defined
	return c
}

func (f convertFlags) run(cmd *cobra.Command, args []string) error {
	s, w, err := f.source(cmd.InOrStdin(), args, cmd.ArgsLenAtDash())
	if err != nil {
		return err
	}
	r, err := convert.Convert(s, w)
	if err != nil {
		return err
	}
	if err := f.deliver(cmd.OutOrStdout(), r, s.Name); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "supervisord:", converted(r))
	for i, step := range r.Next {
		fmt.Fprintf(cmd.ErrOrStderr(), "%4d. %s\n", i+1, strings.ReplaceAll(step, "FILE", cmp.Or(f.output, "FILE")))
	}
	return nil
}

func kinds() []string {
	var names []string
	for _, k := range convert.Kinds() {
		names = append(names, string(k))
	}
	return names
}

// source returns what to convert: the words after --, or a file. dash is the index of --, or -1.
func (f convertFlags) source(stdin io.Reader, args []string, dash int) (source.Input, source.World, error) {
	s, w := source.Input{Kind: source.SourceKind(f.from), Program: f.name, Stage: f.stage}, world()
	if f.from != "" && !slices.Contains(kinds(), f.from) {
		return s, w, commandline.Usagef("--from %q is unknown: use one of %v", f.from, kinds())
	}
	var err error
	if w.Dir, err = os.Getwd(); err != nil {
		return s, w, err
	}
	switch {
	case dash == 0 && len(args) > 0:
		s.Args = args
	case dash >= 0 || len(args) != 1:
		err = notOneFile(args)
	case args[0] == "-":
		s.Name = "stdin"
		s.Text, err = readAll(stdin)
	default:
		s.Name = args[0]
		s.Text, err = readSource(s.Name)
		if template := unit.Template(s.Name); errors.Is(err, fs.ErrNotExist) && template != "" {
			s.Text, err = readSource(template)
		}
		w.Dir = filepath.Dir(draft.JoinPath(w.Dir, s.Name))
	}
	return s, w, err
}

// notOneFile is the error of words that name no command line, and not one file.
func notOneFile(args []string) error {
	const commandLine = "write the command line after --: supervisord convert -- start_server --port 8080 -- ./app"
	switch i := slices.IndexFunc(args, isService); {
	case len(args) == 0:
		return commandline.Usagef("name a FILE (- is stdin), or " + commandLine)
	case len(args) > 1 && slices.ContainsFunc(args, isUnit):
		return commandline.Usagef(
			"name one unit: the drop-ins and the .socket beside a .service are read with it: supervisord convert %s",
			args[max(0, i)])
	}
	return commandline.Usagef("name one FILE, or " + commandLine)
}

func isUnit(path string) bool    { return isService(path) || filepath.Ext(path) == ".socket" }
func isService(path string) bool { return filepath.Ext(path) == ".service" }

// world returns this machine. Without a name it is localhost.
func world() source.World {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return source.World{Host: host, Ordinary: !bind.Privileged(), Getenv: os.LookupEnv, Glob: filepath.Glob,
		Read: readSource}
}

// readSource reads a file or a pipe, but no more than convert accepts.
func readSource(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return readAll(file)
}

func readAll(r io.Reader) (string, error) {
	const limit = source.MaxText + 1 // package convert reports the excess
	data, err := io.ReadAll(io.LimitReader(r, limit))
	return string(data), err
}

// deliver prints the configuration, or writes the file.
func (f convertFlags) deliver(out io.Writer, r convert.Result, source string) error {
	if f.output == "" {
		_, err := io.WriteString(out, r.Text)
		return err
	}
	mode := fs.FileMode(0o644)
	if stat, err := os.Stat(source); err == nil && stat.Mode().IsRegular() {
		mode = stat.Mode().Perm() &^ 0o111 // the result may contain the secrets of the source
	}
	err := writeWhole(f.output, r.Text, mode, f.force)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: choose another name, or replace it with --force", f.output)
	}
	return err
}

// writeWhole writes a file atomically: if it fails, an existing file stays. Without force it fails with fs.ErrExist if
// there is one.
func writeWhole(path, text string, mode fs.FileMode, force bool) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	file, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer os.Remove(next) //nolint:errcheck // a rename has moved it
	_, err = io.WriteString(file, text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if force {
		return os.Rename(next, path)
	}
	return os.Link(next, path) // which, unlike rename, does not replace
}

// converted summarizes a conversion.
func converted(r convert.Result) string {
	text := fmt.Sprintf("converted %s from %s", count(r.Programs+r.Off, "program"), r.Kind)
	if r.Off > 0 {
		text += fmt.Sprintf(", %d of them commented out", r.Off)
	}
	if r.Lacking > 0 {
		text += fmt.Sprintf("; %s without an equivalent: search for \"no equivalent\"", count(r.Lacking, "setting"))
	}
	if r.Programs == 0 {
		text += "; `supervisord check` rejects it until at least one program runs"
	}
	return text
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
