package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

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

// inBackground starts this program again in its own session and returns when the first worker is ready or has failed. After a
// failure the process in the background keeps retrying, so that a machine that boots recovers without help.
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
		return fmt.Errorf("%w: %s; start_server (pid:%d) keeps retrying: see --log-file=%s", errFirstWorker, text, c.Process.Pid, logFile)
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
