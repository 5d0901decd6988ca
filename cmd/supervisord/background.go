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

	"example.org/supervisord/internal/starter"
)

// backgroundVariable is in the environment of the process in the background.
const backgroundVariable = "SUPERVISORD_BACKGROUND"

// reportFD is where that process tells how its first worker started.
const reportFD = 3

// saidReady is what it says there when the worker is ready. Anything else is why it is not.
const saidReady = "ready"

// inBackground starts this program again, in a session of its own, and returns when its first worker is ready, or has failed.
// Then it goes on trying: whoever starts a machine must not have to do that.
func inBackground(o starter.Options) error {
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
	text := strings.TrimSpace(string(said))
	switch {
	case err != nil:
		return err
	case text == saidReady:
		return nil
	case text != "":
		return &exitError{exitWorker, fmt.Errorf("the first worker failed: %s; start_server (pid:%d) goes on trying, and --log-file=%s has more",
			text, c.Process.Pid, o.LogFile)}
	}
	c.Wait() //nolint:errcheck // its status is looked at
	code := c.ProcessState.ExitCode()
	if code <= 0 {
		code = exitRefused
	}
	return &exitError{code, errors.New("it did not start")}
}

// foreground is where to tell how the first worker started.
func foreground() *os.File {
	unix.CloseOnExec(reportFD)
	return os.NewFile(reportFD, "foreground")
}
