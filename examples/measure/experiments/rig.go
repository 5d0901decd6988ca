package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/proc"
)

// rig is what a run works with.
type rig struct {
	sizes
	programs string // the folder of the programs
	out      string // where the report goes
}

// subjects are the packages of the programs that run.
var subjects = []string{"cmd/supervisord", "examples/hello", "examples/grpc", "examples/json-vs-grpc",
	"examples/measure/naive"}

// build builds the programs into dir. This program is among them, as "experiments".
func build(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return errors.Join(os.Symlink(self, filepath.Join(dir, "experiments")),
		kit.Build(ctx, dir, subjects...))
}

// inherit makes this process the one that inherits orphaned processes, so that none is left behind.
func inherit() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become the subreaper: %w", err)
	}
	return nil
}

// killChildren kills the processes that are left, and reports them: there should be none.
func killChildren() error {
	var left []string
	for _, pid := range children() {
		command, _ := os.ReadFile(proc.Path(pid, "cmdline"))
		left = append(left, fmt.Sprintf("%d (%s)", pid, strings.ReplaceAll(string(command), "\x00", " ")))
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may have ended meanwhile
		unix.Wait4(pid, nil, 0, nil) //nolint:errcheck // likewise
	}
	if len(left) > 0 {
		return fmt.Errorf("processes were left behind and killed: %s", strings.Join(left, ", "))
	}
	return nil
}

// children lists the living children of this process.
func children() (living []int) {
	for _, pid := range proc.Children(os.Getpid()) {
		if stat, err := proc.ReadStat(pid); err == nil && !stat.Dead() {
			living = append(living, pid)
		}
	}
	return living
}

// command returns the command line of one of the programs.
func (r *rig) command(name string, args ...string) []string {
	return append([]string{filepath.Join(r.programs, name)}, args...)
}

// web is a program with one listener, at address or, if that is "", at a free one. HUPs come faster than a worker with
// keep-alive connections drains; with the default of max_draining most of them would wait and become one reload.
func web(listener, address, workers string, command ...string) kit.ProgramTable {
	return kit.ProgramTable{Command: command, Workers: workers, More: "reload = { max_draining = 100 }",
		Listen: []kit.ListenTable{{Name: listener, Address: address}}}
}

// Ways to hand a listener over.
const (
	shared  = `handover = "share"`
	steered = `handover = "steer"`
)

// supervise starts supervisord and waits until every program serves.
func (r *rig) supervise(ctx context.Context, programs ...kit.ProgramTable) (*kit.Subject, error) {
	return kit.Setup{Binary: r.command("supervisord")[0]}.Serve(ctx, programs...)
}

// serveAlone starts a worker, or a supervisor of another kind, and waits until it accepts connections.
func serveAlone(ctx context.Context, address string, command ...string) (*process.Child, error) {
	return kit.Alone(ctx, address, exec.Command(command[0], command[1:]...))
}
