package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/proc"
)

// rig is what a run works with.
type rig struct {
	sizes
	binaries
	out string // where the report goes
	dir string // everything else, removed at the end
}

// binaries are the paths of the programs.
type binaries struct {
	Self, Supervisord, Hello, GRPC, Both string
}

// newRig makes this process the one that inherits orphaned processes, so that none is left behind.
func newRig(size sizes, bin binaries, out string) (*rig, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot become the subreaper: %w", err)
	}
	dir, err := os.MkdirTemp("", "experiments")
	return &rig{size, bin, out, dir}, err
}

// build builds the programs into dir.
func build(ctx context.Context, dir string) (binaries, error) {
	self, err := os.Executable()
	if err != nil {
		return binaries{}, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	return binaries{self, at("supervisord"), at("hello"), at("grpc"), at("json-vs-grpc")},
		kit.Build(ctx, dir, "cmd/supervisord", "examples/hello", "examples/grpc", "examples/json-vs-grpc")
}

// close kills the processes that are left, and reports them: there should be none.
func (r *rig) close() error {
	var left []string
	for _, pid := range children() {
		command, _ := os.ReadFile(proc.Path(pid, "cmdline"))
		left = append(left, fmt.Sprintf("%d (%s)", pid, strings.ReplaceAll(string(command), "\x00", " ")))
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may have ended meanwhile
		unix.Wait4(pid, nil, 0, nil) //nolint:errcheck // likewise
	}
	err := os.RemoveAll(r.dir)
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("processes were left behind and killed: %s", strings.Join(left, ", ")))
	}
	return err
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

// web is a program with one listener. HUPs come faster than a worker with kept connections drains; with the default of max_draining
// most of them would wait and become one reload.
func web(listener, address, workers string, command ...string) kit.ProgramTable {
	return kit.ProgramTable{Command: command, Workers: workers, More: "stop = { max_draining = 100 }",
		Listen: []kit.ListenTable{{Name: listener, Address: address}}}
}

// serveAlone starts a worker, or a supervisor of another kind, and waits until it accepts connections.
func serveAlone(ctx context.Context, address string, command ...string) (*process.Child, error) {
	c, err := process.Start(exec.Command(command[0], command[1:]...), func(string) {}, nil)
	if err != nil {
		return nil, err
	}
	if err := kit.UntilAccepts(ctx, address); err != nil {
		c.Stop(5 * time.Second)
		return nil, err
	}
	return c, nil
}
