package starter

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/getopt"
)

// Version is the version of Server::Starter that this follows.
const Version = "0.35"

// programName is the name of the one program of a start_server.
const programName = "server"

// Arguments are a command line of start_server and what they are read against.
type Arguments struct {
	Given   []getopt.Given
	Command []string
	WorkDir string              // absolute; what relative paths start from
	Getenv  func(string) string // start_server's own environment
	Later   bool                // the configuration is for later: --envdir need not exist yet
}

// ErrNoCommand is returned by Load when there is no command.
var ErrNoCommand = errors.New("server program not specified")

// NewArguments parses the words of a command line that starts here and now: see Parse.
func NewArguments(words []string) (*Arguments, error) {
	line, err := Parse(words)
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	return &Arguments{Given: line.Given, Command: line.Command, WorkDir: dir, Getenv: os.Getenv}, err
}

// All returns every occurrence of an option.
func (o *Arguments) All(name string) []getopt.Given {
	var all []getopt.Given
	for _, g := range o.Given {
		if g.Name == name {
			all = append(all, g)
		}
	}
	return all
}

// last returns the occurrence of an option that counts, or one without a value.
func (o *Arguments) last(name string) getopt.Given {
	if all := o.All(name); len(all) > 0 {
		return all[len(all)-1]
	}
	return getopt.Given{Flag: getopt.Flag{Name: name}, As: "--" + name}
}

// Has reports whether an option was given.
func (o *Arguments) Has(name string) bool { return len(o.All(name)) > 0 }

// Get returns the value of an option, "" if it was not given.
func (o *Arguments) Get(name string) string { return o.last(name).Value }

// Duration reads an option whose value is a duration such as 30s; a number alone is in seconds.
func (o *Arguments) Duration(name, otherwise string) (time.Duration, error) {
	text := o.Get(name)
	if text == "" {
		text = otherwise
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, &OptionError{o.last(name), "invalid duration", "write a duration such as 30s or 5m", true}
	}
	return d, nil
}

// interval is --interval in seconds.
func (o *Arguments) interval() time.Duration {
	n, err := strconv.Atoi(o.Get("interval"))
	if err != nil {
		n = 1 // the default
	}
	return time.Duration(n) * time.Second
}

// OptionError is a mistake in the value of one option.
type OptionError struct {
	Option       getopt.Given
	What, Remedy string
	usage        bool
}

func (e *OptionError) Error() string {
	text := e.What
	if e.Option.Name != "" {
		text = e.Option.String() + ": " + e.What
	}
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	if e.usage {
		text += ": " + ErrUsage.Error()
	}
	return text
}

func (e *OptionError) Is(target error) bool { return e.usage && target == ErrUsage }

// Load translates the command line, with the environment and --envdir as they are now, and checks it as `supervisord
// check` checks a file. Mistakes in options are *OptionErrors, several joined by errors.Join.
func (o *Arguments) Load() (*config.Config, error) {
	if len(o.Command) == 0 {
		return nil, ErrNoCommand
	}
	t, err := o.Translate()
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(o.WorkDir, "the command line", []byte(t.text()))
	if refused, ok := errors.AsType[*document.Error](err); ok {
		return nil, t.explain(refused)
	}
	if err != nil {
		return nil, err
	}
	for i := range c.Warnings {
		c.Warnings[i] = t.blame(c.Warnings[i])
	}
	c.Programs[0].Command = slices.Clone(o.Command) // its words may be invalid UTF-8, and {fd:NAME} means nothing in them
	c.Supervisor.RuntimeDir = o.runtimeDir(c.Supervisor.RuntimeDir)
	return c, nil
}

// runtimeDir returns a directory for this start_server alone, the same for the same command line: many may run on one
// machine, and the next one has to find the workers of one that was killed.
func (o *Arguments) runtimeDir(parent string) string {
	values := func(name string) []string {
		var list []string
		for _, g := range o.All(name) {
			list = append(list, g.Value)
		}
		return list
	}
	paths := values("path")
	for i := range paths {
		paths[i] = o.abs(paths[i])
	}
	pidFile, statusFile := o.Get("pid-file"), o.Get("status-file")
	if pidFile+statusFile == "" {
		paths = append(slices.Clone(o.Command), o.WorkDir)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %q", o.abs(pidFile), o.abs(statusFile), values("port"), paths)
	name := fmt.Sprintf("start_server-%08x", h.Sum64()&0xffffffff)
	if len(parent)+1+len(name) > 70 { // the paths of the sockets in it would be too long
		parent = fmt.Sprintf("/tmp/supervisord-%d", os.Geteuid())
	}
	return filepath.Join(parent, name)
}

// abs returns a path of the command line as an absolute one; "" stays.
func (o *Arguments) abs(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(o.WorkDir, path)
}

// The variables that mean the same as an option. An option wins over the environment, and --envdir over both.
const (
	envDir            = "ENVDIR"
	enableAutoRestart = "ENABLE_AUTO_RESTART"
	autoRestart       = "AUTO_RESTART_INTERVAL"
	killOldDelay      = "KILL_OLD_DELAY"
)

// tuning is what options, environment and envdir together specify.
type tuning struct {
	dir    string // envdir, if it exists
	delay  time.Duration
	every  time.Duration     // 0: no automatic restart
	passed map[string]string // variables that options set, for the workers too
}

func (o *Arguments) tune() (tuning, error) {
	t := tuning{passed: map[string]string{}}
	for variable, flag := range map[string]string{envDir: "envdir", autoRestart: "auto-restart-interval",
		killOldDelay: "kill-old-delay"} {
		if o.Has(flag) {
			t.passed[variable] = o.Get(flag)
		}
	}
	if o.Has("enable-auto-restart") {
		t.passed[enableAutoRestart] = "1"
	}
	vars := map[string]string{}
	for _, name := range []string{envDir, enableAutoRestart, autoRestart, killOldDelay} {
		if v := o.Getenv(name); v != "" {
			vars[name] = v
		}
	}
	maps.Copy(vars, t.passed)
	if err := t.readDir(o.abs(vars[envDir]), vars, o.Later); err != nil {
		return t, err
	}
	return t, t.read(vars)
}

// readDir adds the variables of envdir. The reference ignores a directory that does not exist.
func (t *tuning) readDir(dir string, vars map[string]string, later bool) error {
	stat, err := os.Stat(dir)
	switch {
	case dir == "":
		return nil
	case errors.Is(err, fs.ErrNotExist) && later:
		t.dir = dir
		return nil
	case errors.Is(err, fs.ErrNotExist), err == nil && !stat.IsDir():
		return nil
	case err != nil:
		return fmt.Errorf("envdir: %w", err)
	}
	t.dir = dir
	read, err := environment.Read([]string{dir})
	if err == nil {
		read.Apply(vars)
	}
	return err
}

// read reads the delays, which are in seconds.
func (t *tuning) read(vars map[string]string) (err error) {
	number := func(name string, otherwise time.Duration) time.Duration {
		text := strings.TrimSpace(vars[name])
		if text == "" || err != nil {
			return otherwise
		}
		n, wrong := strconv.ParseFloat(text, 64)
		if wrong != nil || n < 0 || n > 8760*3600 {
			err = fmt.Errorf("%s=%s: must be a number of seconds, at most a year", name, vars[name])
		}
		return time.Duration(n * float64(time.Second))
	}
	var pause time.Duration
	if on := vars[enableAutoRestart]; on != "" && on != "0" {
		if t.every = number(autoRestart, 360*time.Second); t.every == 0 {
			t.every = 360 * time.Second // the reference takes 0 as not given
		}
		pause = 5 * time.Second
	}
	t.delay = number(killOldDelay, pause)
	return err
}
