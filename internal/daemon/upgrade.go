package daemon

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/record"
)

// CheckHandover checks in a new binary that it can take over from the supervisord that executed it, with the
// configuration as it is now.
func (i Instance) CheckHandover() error {
	if err := supervisor.Rehearse(record.CheckFD); err != nil {
		return err
	}
	_, err := i.Load()
	return err
}

// upgrader says how this daemon is executed again.
type upgrader struct {
	*daemon
	path string // of the binary, absolute
}

// newUpgrader remembers where the binary was found when it was started: /proc/self/exe leads to the old one.
func newUpgrader(d *daemon) supervisor.Upgrader {
	path := os.Args[0]
	if !strings.Contains(path, "/") {
		if found, err := exec.LookPath(path); err == nil {
			path = found
		}
	}
	return upgrader{d, AbsolutePath(path)}
}

// AbsolutePath makes a path absolute. It stays relative if the current directory is gone.
func AbsolutePath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func (u upgrader) Check() []string { return u.Instance.Check(u.path) }

func (u upgrader) Image() record.Image {
	return record.Image{Path: u.path, Args: os.Args, Keep: u.keep(), Caught: u.signals.Take, Exec: syscall.Exec}
}

// Finish answers the requests on the control socket and on the page.
func (u upgrader) Finish(ctx context.Context) {
	for _, g := range u.gates() {
		g.Finish(ctx)
	}
}

// Resume lets clients in again.
func (u upgrader) Resume() {
	for _, g := range u.gates() {
		g.Open()
	}
}

func (u upgrader) gates() (gates []*clients.Gate) {
	if g := u.control.gate(); g != nil {
		gates = append(gates, g)
	}
	if p := u.observer.Page; p != nil {
		gates = append(gates, p.Gate())
	}
	return gates
}

// keep lists the descriptors that only the daemon knows.
func (u upgrader) keep() map[string]int {
	kept := map[string]int{}
	if u.pid != nil {
		kept[pidFileFD] = u.pid.FD()
	}
	if fd := u.control.fd(); fd >= 0 {
		kept[controlFD] = fd
	}
	if fd := u.observer.FD(); fd >= 0 {
		kept[pageFD] = fd
	}
	if u.Face != nil {
		maps.Copy(kept, u.Face.Keep())
	}
	return kept
}

// orGoBack runs what a new image does before it takes over. If setUp fails or panics, the previous image, if there is
// one, takes over again: a failed upgrade must not end the service.
func (d *daemon) orGoBack(setUp func() error) (err error) {
	defer func() {
		if !record.CanGoBack(os.Environ()) {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			d.out.sync()
			err = fmt.Errorf("%w; and %w", err, record.GoBack(os.Environ(), err, d.signals.Take))
		}
	}()
	return setUp()
}
