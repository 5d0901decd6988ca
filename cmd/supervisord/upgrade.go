package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/supervisor"
)

// checkHandover is the hidden command with which a running supervisord tries a new binary.
const checkHandover = "check-handover"

func checkHandoverCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use:    checkHandover,
		Short:  fmt.Sprintf("check that this binary can go on with the state at descriptor %d", supervisor.CheckFD),
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := supervisor.Rehearse(supervisor.CheckFD); err != nil {
				return err
			}
			_, err := config.Load(*path)
			return err
		},
	}
}

// pidFileFD is the name under which the locked pid file is handed over.
const pidFileFD = "pidfile"

// upgrader says how this daemon is executed again.
type upgrader struct {
	path string // of the binary, absolute
	d    *master
}

// upgrader remembers where the binary was found when it was started: /proc/self/exe would lead to the old one.
func (d *master) upgrader() supervisor.Upgrader {
	path := os.Args[0]
	if !strings.Contains(path, "/") {
		if found, err := exec.LookPath(path); err == nil {
			path = found
		}
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return upgrader{path, d}
}

func (u upgrader) Check() []string {
	if u.d.starter != nil {
		return u.d.starter.check(u.path)
	}
	return []string{u.path, checkHandover, "-c", u.d.path}
}

func (u upgrader) Args() (string, []string) { return u.path, os.Args }

func (u upgrader) Keep() map[string]int {
	kept := map[string]int{}
	if u.d.pid.PIDFile != nil {
		kept[pidFileFD] = u.d.pid.FD()
	}
	if u.d.control != nil {
		kept[controlFD] = u.d.control.FD()
	}
	if fd := u.d.observer.FD(); fd >= 0 {
		kept[pageFD] = fd
	}
	maps.Copy(kept, u.d.starter.keep())
	return kept
}

// orGoBack runs what a new image does before it can go on. If that fails or panics, the image before this one, if there is one,
// gets its place back: an upgrade that stumbles must not end the service. sync writes what the log still holds.
func orGoBack(setUp func() error, sync func()) (err error) {
	defer func() {
		if !supervisor.CanGoBack(os.Environ()) {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			sync()
			err = fmt.Errorf("%w; and %w", err, supervisor.GoBack(os.Environ(), err))
		}
	}()
	return setUp()
}

// service is systemd, as the supervisor sees it.
type service struct{ *systemd.Notify }

func (service) WatchdogInterval() time.Duration {
	return systemd.WatchdogInterval(os.Getenv, os.Getpid())
}

// serviceManager is nil where nobody listens.
func serviceManager(n *systemd.Notify) supervisor.Systemd {
	if !n.Enabled() {
		return nil
	}
	return service{n}
}
