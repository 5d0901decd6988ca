package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/supervisord/internal/starter"
	"example.org/supervisord/supervisor"
)

// startServerName is the command, and the name under which the program is that command.
const startServerName = "start_server"

// tryFlag is the hidden flag with which a running start_server tries a new binary.
const tryFlag = "--check-handover"

// exitRefused is what the reference ends with when it dies of no error of the system's.
const exitRefused = 255

// asStartServer brings the words of a start_server command line into the form that every parser reads alike, and says who speaks.
func asStartServer(argv []string) (name string, args []string, err error) {
	args = argv[1:]
	if filepath.Base(argv[0]) == startServerName {
		args = append([]string{startServerName}, args...)
	}
	if len(args) == 0 || args[0] != startServerName {
		return programName(argv[0]), args, nil
	}
	command, rest := args[:1:1], args[1:]
	if len(rest) > 0 && rest[0] == tryFlag { // see startServer.check
		command, rest = args[:2:2], rest[1:]
	}
	words, err := starter.Args(rest)
	return startServerName, append(command, words...), err
}

// startServer is a master that was started by the command line of start_server.
type startServer struct {
	starter.Options
	log    *starter.Log // nil: what it was started with
	parent *os.File     // where the one in the foreground is told how the first worker started; nil: nobody waits
}

// startServerFlags are the flags that decide what is to be done, and what it needs.
type startServerFlags struct {
	options                             starter.Options
	daemonize, restart, stop, ver, test bool
	timeout                             string
}

func startServerCommand() *cobra.Command {
	f := &startServerFlags{}
	c := &cobra.Command{
		Use:   startServerName + " [OPTION]... [--] COMMAND [ARGUMENT]...",
		Short: "be start_server: one program, its sockets and its flags on the command line",
		Long: `start_server takes the command line of Server::Starter ` + starter.Version + `, and does with it what supervisord does with a configuration file.
A program installed under the name start_server is this command. docs/start_server.md says what it does otherwise than the reference.

Exit status: 0 stopped as asked; the number of the system's error (98: the address is in use) where there is one; 255 a wrong
combination of options; 1 a wrong option; with --daemonize 11 when the first worker failed (start_server goes on trying);
with --restart and --stop 14 when --timeout was over.`,
		Example: `  start_server --port=8080 --pid-file=web.pid --status-file=web.status -- ./web -v
  start_server --restart --pid-file=web.pid --status-file=web.status`,
		RunE: func(c *cobra.Command, args []string) error {
			f.options.Command = args
			return starterError(f.run(c.Flags()))
		},
	}
	for _, flag := range starter.Flags() {
		f.define(c.Flags(), flag)
	}
	c.DisableFlagsInUseLine = true
	c.Flags().StringP("config", "c", "", "") // there is no configuration file: see starter.Args
	c.Flags().MarkHidden("config")           //nolint:errcheck // it is defined
	c.Flags().BoolVar(&f.test, tryFlag[2:], false, "")
	c.Flags().MarkHidden(tryFlag[2:]) //nolint:errcheck // it is defined
	return c
}

// define defines a flag.
func (f *startServerFlags) define(set *pflag.FlagSet, flag starter.Flag) {
	o := &f.options
	texts := map[string]*string{
		"dir": &o.Dir, "signal-on-hup": &o.SignalOnHUP, "signal-on-term": &o.SignalOnTERM, "envdir": &o.EnvDir, "pid-file": &o.PIDFile,
		"status-file": &o.StatusFile, "log-file": &o.LogFile, "stop-timeout": &o.StopTimeout, "ready": &o.Ready, "timeout": &f.timeout,
	}
	lists := map[string]*[]string{"port": &o.Port, "path": &o.Path, "set": &o.Set}
	numbers := map[string]*int{
		"interval": &o.Interval, "backlog": &o.Backlog, "auto-restart-interval": &o.AutoRestart, "kill-old-delay": &o.KillOldDelay,
	}
	switches := map[string]*bool{
		"enable-auto-restart": &o.EnableAutoRestart, "daemonize": &f.daemonize, "restart": &f.restart, "stop": &f.stop, "version": &f.ver,
	}
	switch flag.Kind {
	case starter.Text:
		set.StringVar(texts[flag.Name], flag.Name, "", flag.Usage)
	case starter.List:
		set.StringArrayVar(lists[flag.Name], flag.Name, nil, flag.Usage)
	case starter.Number:
		set.IntVar(numbers[flag.Name], flag.Name, 0, flag.Usage)
	case starter.Switch:
		if flag.Name != "help" { // cobra's own
			set.BoolVar(switches[flag.Name], flag.Name, false, flag.Usage)
		}
	}
}

func (f *startServerFlags) run(set *pflag.FlagSet) error {
	o := &f.options
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	o.WorkDir, o.Getenv = dir, os.Getenv
	o.AutoRestartGiven, o.KillOldDelayGiven = set.Changed("auto-restart-interval"), set.Changed("kill-old-delay")
	if !set.Changed("interval") {
		o.Interval = 1
	}
	if o.StopTimeout != "" {
		if o.StopTimeout, err = withUnit("stop-timeout", o.StopTimeout); err != nil {
			return err
		}
	}
	switch {
	case f.ver:
		fmt.Println(starter.Version)
		return nil
	case f.restart:
		return f.restartServer()
	case f.stop:
		return f.stopServer()
	case f.test:
		return f.check()
	case f.daemonize && o.LogFile == "":
		return errors.New("--log-file option must be specified together with --daemonize")
	case len(o.Command) == 0:
		return starter.ErrNoCommand
	}
	if f.daemonize && os.Getenv(backgroundVariable) == "" && !supervisor.CanGoBack(os.Environ()) {
		return inBackground(*o)
	}
	return serveAsStartServer(*o)
}

// withUnit reads a duration; a number alone is of seconds.
func withUnit(flag, text string) (string, error) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return (time.Duration(n) * time.Second).String(), nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < 0 {
		return "", fmt.Errorf("value %q invalid for option %s: write such as 30s or 5m: %w", text, flag, starter.ErrUsage)
	}
	return text, nil
}

// scriptTimeout is how long --restart and --stop wait.
const scriptTimeout = "5m"

// within is a context that ends with --timeout.
func (f *startServerFlags) within() (context.Context, context.CancelFunc, error) {
	if f.timeout == "" {
		f.timeout = scriptTimeout
	}
	text, err := withUnit("timeout", f.timeout)
	if err != nil {
		return nil, nil, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		return ctx, cancel, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	return ctx, cancel, nil
}

func (f *startServerFlags) restartServer() error {
	if f.options.PIDFile == "" || f.options.StatusFile == "" {
		return errors.New("--restart option requires --pid-file and --status-file to be set as well")
	}
	ctx, cancel, err := f.within()
	if err != nil {
		return err
	}
	defer cancel()
	return starter.Restart(ctx, f.options.PIDFile, f.options.StatusFile)
}

func (f *startServerFlags) stopServer() error {
	if f.options.PIDFile == "" {
		return errors.New("--stop option requires --pid-file to be set as well")
	}
	ctx, cancel, err := f.within()
	if err != nil {
		return err
	}
	defer cancel()
	return starter.Stop(ctx, f.options.PIDFile, func(pid int) {
		fmt.Fprintf(os.Stderr, "stop_server (pid:%d) stopping now (pid:%d)...\n", os.Getpid(), pid)
	})
}

// check is what checkHandoverCommand does, for this command line.
func (f *startServerFlags) check() error {
	if err := supervisor.Rehearse(supervisor.CheckFD); err != nil {
		return err
	}
	_, err := f.options.Load()
	return err
}

// starterError gives an error the exit code that the reference ends with.
func starterError(err error) error {
	var errno syscall.Errno
	_, has := errors.AsType[*exitError](err)
	switch {
	case err == nil || has:
		return err
	case errors.Is(err, starter.ErrUsage), errors.Is(err, supervisor.ErrRunning):
		return &exitError{exitFailure, err}
	case errors.Is(err, starter.ErrLate):
		return &exitError{exitTimeout, err}
	case errors.As(err, &errno) && errno > 0 && errno < exitRefused:
		return &exitError{int(errno), err}
	}
	return &exitError{exitRefused, err}
}

// serveAsStartServer is the daemon.
func serveAsStartServer(o starter.Options) error {
	s := &startServer{Options: o}
	d := &master{starter: s, load: o.Load}
	if err := s.open(); err != nil {
		return err
	}
	err := d.run()
	s.log.Close()
	if d.settings.RuntimeDir != "" {
		os.Remove(d.settings.RuntimeDir) //nolint:errcheck // where something is left in it, it stays
	}
	return err
}

// open opens what the reference opens before the sockets.
func (s *startServer) open() (err error) {
	if supervisor.CanGoBack(os.Environ()) || s.LogFile == "" {
		return nil // it is there already: see bound
	}
	out := os.Stderr
	if os.Getenv(backgroundVariable) != "" {
		s.parent, out = foreground(), nil
	}
	s.log, err = starter.OpenLog(s.LogFile, out)
	return err
}

// bound is called when every socket is there, and before the first worker: from now on the log is where it shall be.
func (s *startServer) bound(d *master) error {
	if s == nil {
		return nil
	}
	for _, p := range d.config.Programs {
		for _, l := range p.Listen {
			if l.FD.Fixed {
				d.lines.Placed(l.FD.Number)
			}
		}
	}
	if s.log == nil {
		return nil
	}
	d.sync() // what was said so far is for whoever has started it
	if err := s.log.Redirect(); err != nil {
		return err
	}
	return s.log.Watch(d.log)
}

// restored is bound for one that goes on where another one ended.
func (s *startServer) restored(d *master) error {
	if s == nil {
		return nil
	}
	d.lines.Resume(d.supervisor.Status())
	if s.log != nil { // systemd has started this one after the death of the one before
		d.sync()
		if err := s.log.Redirect(); err != nil {
			return err
		}
		return s.log.Watch(d.log)
	}
	s.log = starter.InheritLog(s.LogFile, d.handover.Extra(starter.LogPipe), d.handover.Extra(starter.LogProcess))
	return s.log.Watch(d.log)
}

// see tells the one in the foreground how the first worker started.
func (s *startServer) see(r supervisor.Report) {
	if s == nil || s.parent == nil {
		return
	}
	switch r.Kind {
	case supervisor.WorkerReady:
		fmt.Fprintln(s.parent, saidReady) //nolint:errcheck // it may have gone
	case supervisor.TrialFailed:
		fmt.Fprintln(s.parent, r.Reason) //nolint:errcheck // likewise
	default:
		return
	}
	s.parent.Close()
	s.parent = nil
}

// twice is how soon after the first a second TERM is taken for the same one: scripts that signal the process and its group, as
// timeout(1) does, worked with the reference, where a second one means nothing.
func (s *startServer) twice() time.Duration {
	if s == nil {
		return 0
	}
	return time.Second
}

// check is the command that tries a new binary: see upgrader.Check.
func (s *startServer) check(binary string) []string {
	words, err := starter.Args(startServerWords(os.Args))
	if err != nil { // impossible: it runs with them
		words = nil
	}
	command := []string{binary}
	if filepath.Base(binary) != startServerName {
		command = append(command, startServerName)
	}
	return append(append(command, tryFlag), words...)
}

// startServerWords are the words behind the name of the command.
func startServerWords(argv []string) []string {
	if filepath.Base(argv[0]) == startServerName {
		return argv[1:]
	}
	return argv[2:]
}

func (s *startServer) keep() map[string]int {
	if s == nil {
		return nil
	}
	return s.log.Keep()
}
