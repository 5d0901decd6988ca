// Command start_server is a drop-in replacement for the start_server of Perl's Server::Starter, over the daemon of
// supervisord.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
)

func main() { os.Exit(foreign.LeaveMain(execute)) }

func execute() int {
	err := command().Execute()
	if err != nil {
		daemon.Complain("start_server: %v", err)
	}
	return exitCode(err)
}

// tryFlag is the hidden first word with which a running start_server checks a new binary.
const tryFlag = "--check-handover"

func command() *cobra.Command {
	c := &cobra.Command{
		Use:         "start_server [OPTION]... [--] COMMAND [ARGUMENT]...",
		Short:       "drop-in replacement for Perl's start_server",
		Annotations: map[string]string{"mark": commandline.Mark},
		Long: `start_server takes the command line of Server::Starter ` + starter.Version +
			` and runs it as supervisord runs a
configuration file. docs/start_server.md lists the differences.

Exit status: 0 stopped as asked; the system's error number where there is one (98: the address is in use); 255 an
invalid combination of options; 1 an invalid option; with --daemonize 11 if the first worker failed (start_server keeps
retrying); with --restart and --stop 14 if --timeout expired.`,
		Example: `  start_server --port=8080 --pid-file=web.pid --status-file=web.status -- ./web -v
  start_server --restart --pid-file=web.pid --status-file=web.status`,
		DisableFlagParsing: true, DisableFlagsInUseLine: true, // Getopt::Long allows more than cobra: see starter.Parse
		ValidArgsFunction: completeHandover,
		Args:              cobra.ArbitraryArgs,
		RunE:              run,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	for _, o := range starter.Flags() { // for the help, the manual page and the completion
		if o.Kind == getopt.Switch {
			c.Flags().Bool(o.Name, false, o.Usage)
		} else {
			c.Flags().String(o.Name, "", o.Usage)
		}
	}
	commandline.Prepare(c)
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

// run does what a command line asks for.
func run(c *cobra.Command, words []string) error {
	try := len(words) > 0 && words[0] == tryFlag
	if try {
		words = words[1:]
	}
	o, err := starter.NewArguments(words)
	if err != nil {
		return err
	}
	options := daemon.Instance{
		// as the reference
		Load: o.Load, Version: commandline.Version(), ExitCode: exitCode, DuplicateStopWindow: time.Second,
		Check: func(binary string) []string { return append([]string{binary, tryFlag}, words...) },
	}
	switch {
	case o.Has("help"):
		return c.Help()
	case o.Has("version"):
		fmt.Println(starter.Version)
		return nil
	case o.Has("restart"):
		return restart(o)
	case o.Has("stop"):
		return stop(o, func(pid int) {
			fmt.Fprintf(os.Stderr, "stop_server (pid:%d) stopping now (pid:%d)...\n", os.Getpid(), pid)
		})
	case try:
		return options.CheckHandover()
	}
	shown, err := begin(o)
	if err != nil || shown == nil {
		return err
	}
	defer shown.close()
	options.Face = shown
	defer removeRuntimeDir(o)
	return daemon.Run(options)
}

// removeRuntimeDir removes the directory that belongs to this start_server alone. It stays if it is not empty.
func removeRuntimeDir(o *starter.Arguments) {
	if c, err := o.Load(); err == nil {
		os.Remove(c.Supervisor.RuntimeDir) //nolint:errcheck // the next start uses it
	}
}

// backgroundVariable marks the environment of the process in the background.
const backgroundVariable = "SUPERVISORD_BACKGROUND"

// reportFD is the descriptor on which that process reports how its first worker started.
const reportFD = 3

// saidReady is its report that the worker is ready. Any other report is the reason why the worker failed.
const saidReady = "ready"

// errFirstWorker is wrapped by the error of --daemonize when the first worker failed.
var errFirstWorker = errors.New("the first worker failed")

// exited is the error of --daemonize when the process in the background exited before its first worker started.
type exited struct{ Code int }

func (*exited) Error() string {
	return "start_server exited before its first worker started: the lines above say why"
}

// inBackground starts this program again in its own session and returns when the first worker is ready or has failed.
// After a failure the process in the background keeps retrying, so that a machine that boots recovers without help.
func inBackground(logFile string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	c := exec.Command("/proc/self/exe")
	c.Args, c.Env = os.Args, append(os.Environ(), backgroundVariable+"=yes")
	c.Stdout, c.Stderr, c.ExtraFiles = os.Stdout, os.Stderr, []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	w.Close()
	if err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(r, 1<<16))
	switch text := strings.TrimSpace(string(said)); {
	case err != nil || text == saidReady:
		return err
	case text != "":
		return fmt.Errorf("%w: %s; start_server (pid:%d) keeps retrying: see --log-file=%s", errFirstWorker, text,
			c.Process.Pid, logFile)
	}
	c.Wait() //nolint:errcheck // its exit code is checked next
	if code := c.ProcessState.ExitCode(); code > 0 {
		return &exited{code}
	}
	return &exited{exitFatal}
}

// foreground returns the pipe to the process in the foreground.
func foreground() *os.File {
	unix.CloseOnExec(reportFD)
	return os.NewFile(reportFD, "foreground")
}
