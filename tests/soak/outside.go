package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"example.org/supervisord/internal/lab/systemd"
)

// Where things are in the lab.
const (
	binary   = "/usr/local/bin/supervisord"
	driver   = "/srv/soak/soak"
	worker   = "/srv/soak/bin/worker"
	accounts = "/run/soak/accounts"
	settings = "/etc/supervisord"
	runtime  = "/run/supervisord"
	logs     = "/var/log/supervisord"
	unit     = "/etc/systemd/system/supervisord.service"
)

// errBroken says that a promise was broken. What is known of it has been printed.
var errBroken = errors.New("a promise was broken")

// outside builds everything, boots a lab, and runs the soak in it. Errors: a systemd.UnableError, errBroken.
func outside(ctx context.Context, o *flags, out io.Writer) (err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("not in the repository: %w", err)
	}
	repository := strings.TrimSpace(string(root))
	built, err := os.MkdirTemp("", "supervisord-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built) //nolint:errcheck // a temporary directory
	fmt.Fprintln(out, "soak: builds supervisord, the workers and itself")
	build := exec.CommandContext(ctx, "go", "build", "-o", built+"/", "./cmd/supervisord", "./tests/soak",
		"./tests/soak/worker")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build: %w\n%s", err, said)
	}
	lab, err := systemd.Boot(filepath.Join(repository, "tests/systemd/lab"), o.suite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	for from, to := range map[string]string{
		filepath.Join(built, "supervisord"): binary, filepath.Join(built, "soak"): driver, filepath.Join(built,
			"worker"): worker,
		filepath.Join(repository, "systemd/supervisord.service"): unit,
	} {
		if err := lab.Copy(from, to); err != nil {
			return err
		}
	}
	return drive(ctx, lab, o, out)
}

// drive runs the soak in the lab. The end of its standard input is its order to come to an end.
func drive(ctx context.Context, lab *systemd.Lab, o *flags, out io.Writer) error {
	command := lab.Command(context.WithoutCancel(ctx), append([]string{driver, roleInside}, o.arguments()...)...)
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process
	hold, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { hold.Close() })() //nolint:errcheck // it is over anyway
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%w (%w)", errBroken, err)
	}
	return nil
}
