package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// startServerName is the name of the command, and the program name under which supervisord is that command.
const startServerName = "start_server"

// tryFlag is the hidden flag with which a running start_server checks a new binary.
const tryFlag = "--check-handover"

// exitRefused is the reference's exit code for a fatal error that has no errno.
const exitRefused = 255

// asStartServer rewrites a start_server command line in the form that cobra reads, and returns the name for error messages.
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
	log    *starter.Log // nil: stderr, as it was at the start
	parent *os.File     // where the process in the foreground is told how the first worker started; nil: none waits
}

func startServerCommand() *cobra.Command {
	var o starter.Options
	var try bool
	c := &cobra.Command{
		Use:   startServerName + " [OPTION]... [--] COMMAND [ARGUMENT]...",
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
			return starterError(runStartServer(&o, try))
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
	c.Flags().BoolVar(&try, tryFlag[2:], false, "")
	c.Flags().MarkHidden(tryFlag[2:]) //nolint:errcheck // it is defined
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
	switch {
	case o.Has("version"):
		fmt.Println(starter.Version)
		return nil
	case o.Has("restart"):
		return restartStartServer(o)
	case o.Has("stop"):
		return stopStartServer(o)
	case try:
		return checkStartServer(o)
	case o.Has("daemonize") && o.Get("log-file") == "":
		return errors.New("--log-file option must be specified together with --daemonize")
	case len(o.Command) == 0:
		return starter.ErrNoCommand
	}
	if o.Has("daemonize") && os.Getenv(backgroundVariable) == "" && !supervisor.CanGoBack(os.Environ()) {
		return inBackground(o.Get("log-file"))
	}
	return serveAsStartServer(*o)
}

// within returns a context that ends with --timeout.
func within(o *starter.Options) (context.Context, context.CancelFunc, error) {
	d, err := o.Duration("timeout", "5m")
	if err != nil || d == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		return ctx, cancel, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	return ctx, cancel, nil
}

func restartStartServer(o *starter.Options) error {
	if o.Get("pid-file") == "" || o.Get("status-file") == "" {
		return errors.New("--restart option requires --pid-file and --status-file to be set as well")
	}
	ctx, cancel, err := within(o)
	defer cancel()
	if err != nil {
		return err
	}
	return starter.Restart(ctx, o.Get("pid-file"), o.Get("status-file"))
}

func stopStartServer(o *starter.Options) error {
	if o.Get("pid-file") == "" {
		return errors.New("--stop option requires --pid-file to be set as well")
	}
	ctx, cancel, err := within(o)
	defer cancel()
	if err != nil {
		return err
	}
	return starter.Stop(ctx, o.Get("pid-file"), func(pid int) {
		fmt.Fprintf(os.Stderr, "stop_server (pid:%d) stopping now (pid:%d)...\n", os.Getpid(), pid)
	})
}

// checkStartServer does what checkHandoverCommand does, for this command line.
func checkStartServer(o *starter.Options) error {
	if err := supervisor.Rehearse(supervisor.CheckFD); err != nil {
		return err
	}
	_, err := o.Load()
	return err
}

// starterError gives an error the exit code of the reference.
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

// serveAsStartServer runs the daemon.
func serveAsStartServer(o starter.Options) error {
	s := &startServer{Options: o}
	d := &master{starter: s, load: o.Load}
	if err := s.open(); err != nil {
		return err
	}
	err := d.run()
	s.log.Close()
	if d.settings.RuntimeDir != "" {
		os.Remove(d.settings.RuntimeDir) //nolint:errcheck // it stays if it is not empty
	}
	return err
}

// open opens the log, as the reference does before it binds the sockets.
func (s *startServer) open() (err error) {
	if supervisor.CanGoBack(os.Environ()) || s.Get("log-file") == "" {
		return nil // restored takes it over
	}
	out := os.Stderr
	if os.Getenv(backgroundVariable) != "" {
		s.parent, out = foreground(), nil
	}
	s.log, err = starter.OpenLog(s.Get("log-file"), out)
	return err
}

// bound is called once every socket is bound, before the first worker starts: it redirects the log.
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
	return s.redirect(d)
}

// redirect sends the log to --log-file. What was logged so far went to the terminal.
func (s *startServer) redirect(d *master) error {
	d.sync()
	if err := s.log.Redirect(); err != nil {
		return err
	}
	return s.log.Watch(d.log)
}

// restored is called instead of bound when this process takes over from an earlier one.
func (s *startServer) restored(d *master) error {
	if s == nil {
		return nil
	}
	d.lines.Resume(d.supervisor.Status())
	if s.log != nil { // the earlier process died, and systemd started this one
		return s.redirect(d)
	}
	s.log = starter.InheritLog(s.Get("log-file"), d.handover.Extra(starter.LogPipe), d.handover.Extra(starter.LogProcess))
	return s.log.Watch(d.log)
}

// see tells the process in the foreground how the first worker started.
func (s *startServer) see(r program.Report) {
	if s == nil || s.parent == nil {
		return
	}
	switch r.Kind {
	case program.WorkerReady:
		fmt.Fprintln(s.parent, saidReady) //nolint:errcheck // the process may have exited
	case program.TrialFailed:
		fmt.Fprintln(s.parent, r.Reason) //nolint:errcheck // likewise
	default:
		return
	}
	s.parent.Close()
	s.parent = nil
}

// twice returns the time in which a second TERM counts as a duplicate of the first. The reference ignores a second TERM, so scripts
// may signal both the process and its group, as timeout(1) does.
func (s *startServer) twice() time.Duration {
	if s == nil {
		return 0
	}
	return time.Second
}

// check returns the command that checks a new binary: see upgrader.Check.
func (s *startServer) check(binary string) []string {
	words, err := starter.Args(startServerWords(os.Args))
	if err != nil { // impossible: this process parsed the same words
		words = nil
	}
	command := []string{binary}
	if filepath.Base(binary) != startServerName {
		command = append(command, startServerName)
	}
	return append(append(command, tryFlag), words...)
}

// startServerWords returns the words after the name of the command.
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
