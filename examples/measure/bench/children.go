package main

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var errBrokenOff = errors.New("broken off")

// children is every process that was started, so that none outlives a run that is broken off.
type children struct {
	mu     sync.Mutex
	all    []*os.Process
	broken chan struct{} // closed: nothing new is started
}

// start starts a command, unless the run was broken off.
func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isBroken() {
		return errBrokenOff
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.all = append(c.all, cmd.Process)
	return nil
}

// breakOff ends what runs; whoever waits for it then sees that it has ended.
func (c *children) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isBroken() {
		close(c.broken)
	}
	for _, p := range c.all {
		p.Signal(unix.SIGTERM) //nolint:errcheck // most have ended long ago
	}
}

func (c *children) isBroken() bool {
	select {
	case <-c.broken:
		return true
	default:
		return false
	}
}

// rest lets time pass in which there is nothing to do but to let the others run.
func (c *children) rest(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.broken:
		return errBrokenOff
	}
}
