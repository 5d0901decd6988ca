package starter

import (
	"cmp"
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
)

// Version is the version of Server::Starter that this follows.
const Version = "0.35"

// program is the name of the one program that there is.
const program = "server"

// Options is a command line of start_server: the flags by their names, and what they are read against.
type Options struct {
	Port, Path        []string
	Dir               string
	Interval          int
	SignalOnHUP       string
	SignalOnTERM      string
	Backlog           int
	EnvDir            string
	EnableAutoRestart bool
	AutoRestart       int  // --auto-restart-interval
	AutoRestartGiven  bool // it was written, if only as 0
	KillOldDelay      int
	KillOldDelayGiven bool
	PIDFile           string
	StatusFile        string
	LogFile           string
	StopTimeout       string
	Ready             string
	Set               []string

	Command []string
	WorkDir string              // what paths are relative to
	Getenv  func(string) string // start_server's own environment
}

// The variables by which the reference is told what flags tell it too. Those of a flag win, those of envdir win over both.
const (
	envDir            = "ENVDIR"
	enableAutoRestart = "ENABLE_AUTO_RESTART"
	autoRestart       = "AUTO_RESTART_INTERVAL"
	killOldDelay      = "KILL_OLD_DELAY"
)

// ErrNoCommand is returned by Load when there is no command.
var ErrNoCommand = errors.New("server program not specified")

// Load makes a configuration of the command line, and of what the environment and envdir say now.
func (o *Options) Load() (*config.Config, error) {
	if len(o.Command) == 0 {
		return nil, ErrNoCommand
	}
	text, flags, err := o.toml()
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(o.WorkDir, "the command line", []byte(text))
	if refused, ok := errors.AsType[*config.Error](err); ok {
		return nil, explain(refused, flags)
	}
	if err != nil {
		return nil, err
	}
	c.Programs[0].Command = slices.Clone(o.Command) // its words need not be UTF-8, and nothing in them is filled in
	c.Supervisor.RuntimeDir = o.runtimeDir(c.Supervisor.RuntimeDir)
	return c, nil
}

// runtimeDir is a folder of this start_server's own, the same for the same command line: many may run on one machine, and the
// next one finds the workers of one that was killed.
func (o *Options) runtimeDir(parent string) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %q", o.abs(o.PIDFile), o.abs(o.StatusFile), o.Port, o.paths())
	name := fmt.Sprintf("start_server-%08x", h.Sum64()&0xffffffff)
	if len(parent)+1+len(name) > 70 { // the sockets in it would have no valid address
		parent = fmt.Sprintf("/tmp/supervisord-%d", os.Geteuid())
	}
	return filepath.Join(parent, name)
}

func (o *Options) paths() []string {
	var list []string
	for _, p := range o.Path {
		list = append(list, o.abs(p))
	}
	if o.PIDFile+o.StatusFile == "" {
		list = append(o.Command[:len(o.Command):len(o.Command)], o.WorkDir)
	}
	return list
}

// abs is a path as it is seen from elsewhere.
func (o *Options) abs(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(o.WorkDir, path)
}

// explain says what is wrong with the flags that a refused configuration was made from.
func explain(e *config.Error, flags map[string]string) error {
	var all []error
	for _, p := range e.Problems {
		key := strings.TrimPrefix(p.Key, "program."+program+".")
		flag := key
		for end := len(key); end > 0; end = max(strings.LastIndexAny(key[:end], ".["), 0) {
			if f, ok := flags[key[:end]]; ok {
				flag = f
				break
			}
		}
		all = append(all, fmt.Errorf("%s: %s: %s", cmp.Or(flag, "the command line"), p.What, p.Remedy))
	}
	return errors.Join(all...)
}

// tuning is what flags, environment and envdir together say.
type tuning struct {
	dir    string // envdir, if it is there
	delay  time.Duration
	every  time.Duration // 0: no restart by itself
	passed map[string]string
}

func (o *Options) tune() (tuning, error) {
	t := tuning{passed: o.passed()}
	vars := map[string]string{}
	for _, name := range []string{envDir, enableAutoRestart, autoRestart, killOldDelay} {
		if v := o.Getenv(name); v != "" {
			vars[name] = v
		}
	}
	maps.Copy(vars, t.passed)
	if dir := vars[envDir]; dir != "" {
		if stat, err := os.Stat(o.abs(dir)); err == nil && stat.IsDir() {
			t.dir = o.abs(dir)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return t, fmt.Errorf("envdir: %w", err)
		}
	}
	if t.dir != "" {
		read, err := config.ReadEnvironment(nil, t.dir, nil)
		if err != nil {
			return t, err
		}
		read.Apply(vars)
	}
	return t, t.read(vars)
}

// read takes numbers of seconds out of variables.
func (t *tuning) read(vars map[string]string) (err error) {
	number := func(name string, otherwise time.Duration) time.Duration {
		text := strings.TrimSpace(vars[name])
		if text == "" || err != nil {
			return otherwise
		}
		n, wrong := strconv.ParseFloat(text, 64)
		if wrong != nil || n < 0 || n > 8760*3600 {
			err = fmt.Errorf("%s=%s is no number of seconds", name, vars[name])
		}
		return time.Duration(n * float64(time.Second))
	}
	on := vars[enableAutoRestart] != "" && vars[enableAutoRestart] != "0"
	var pause time.Duration
	if on {
		if t.every = number(autoRestart, 360*time.Second); t.every == 0 {
			t.every = 360 * time.Second // as the reference: 0 is not said
		}
		pause = 5 * time.Second
	}
	t.delay = number(killOldDelay, pause)
	return err
}

// passed are the variables that flags set, for the workers too.
func (o *Options) passed() map[string]string {
	vars := map[string]string{}
	if o.EnvDir != "" {
		vars[envDir] = o.EnvDir
	}
	if o.EnableAutoRestart {
		vars[enableAutoRestart] = "1"
	}
	if o.AutoRestartGiven {
		vars[autoRestart] = strconv.Itoa(o.AutoRestart)
	}
	if o.KillOldDelayGiven {
		vars[killOldDelay] = strconv.Itoa(o.KillOldDelay)
	}
	return vars
}
