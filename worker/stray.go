package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/ready"
)

// How many orphans are examined at a time, and how long that may take for each.
const (
	strayLooks  = 16
	strayWithin = time.Second
)

// A process has no environment for a moment in execve(2). It is looked at so often, with such a pause: nothing says when it has one.
const (
	execLooks = 20
	execPause = 10 * time.Millisecond
)

// watchStrays kills strays whenever the reaper says that there may be new ones. The reaper does not do this itself, because
// examining a process may take long.
func (l *Launcher) watchStrays() {
	for range l.strays {
		l.killStrays()
	}
}

// killStrays kills processes that left the process group of a worker (setsid(2)) which is gone by now: this process has inherited them as a
// subreaper. The NOTIFY_SOCKET in its environment, which ends with the worker, says whose a process was. A process that has changed its
// environment, or does not let it be read, is left alone.
func (l *Launcher) killStrays() {
	var looks sync.WaitGroup
	slots := make(chan struct{}, strayLooks)
	for _, pid := range l.orphans() {
		slots <- struct{}{}
		looks.Go(func() {
			l.killStray(pid)
			<-slots
		})
	}
	looks.Wait()
}

// orphans lists our children that are not workers: processes whose parent has ended.
func (l *Launcher) orphans() []int {
	children := proc.OwnChildren()
	l.mu.Lock()
	defer l.mu.Unlock()
	var orphans []int
	for _, pid := range children {
		_, expected := l.expected[pid]
		if l.children[pid] == nil && !expected {
			orphans = append(orphans, pid)
		}
	}
	return orphans
}

// killStray kills a process, its group and everything below it if it is a stray.
func (l *Launcher) killStray(pid int) {
	ctx, cancel := context.WithTimeout(l.life, strayWithin)
	defer cancel()
	foreign.Look(ctx, &l.looks, pid, func() any { //nolint:errcheck // then it is left alone
		p := pin(pid, os.Getpid())
		switch {
		case p == nil:
		case stray(ctx, pid):
			l.killGroup(p)
			p.kill()
		default:
			p.close()
		}
		return nil
	})
}

// stray reports whether the process was started by a worker that is gone.
func stray(ctx context.Context, pid int) bool {
	path := notifySocket(ctx, pid)
	if !ready.IsNotifyPath(path) {
		return false
	}
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// notifySocket returns the NOTIFY_SOCKET in the environment of a process; "": it has none, or none that can be read.
func notifySocket(ctx context.Context, pid int) string {
	environ, err := proc.Environ(pid)
	for range execLooks {
		if len(environ) > 0 || err != nil {
			break
		}
		select {
		case <-time.After(execPause):
		case <-ctx.Done():
		}
		environ, err = proc.Environ(pid)
	}
	return environ["NOTIFY_SOCKET"]
}

// pinned is a process identified by its pidfd: its PID may belong to another process by now.
type pinned struct {
	pid int
	fd  int
}

// pin returns nil if the process is not, or no longer, a child of parent.
func pin(pid, parent int) *pinned {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	p := &pinned{pid, fd}
	stat, err := proc.ReadStat(pid)
	if err != nil || stat.Parent != parent || !proc.Exists(fd) { // it exists: so the PID was its own all the time
		p.close()
		return nil
	}
	return p
}

func (p *pinned) close() { unix.Close(p.fd) }

// kill kills the process and everything below it, and closes p.
func (p *pinned) kill() {
	defer p.close()
	var below []*pinned
	for _, pid := range proc.Children(p.pid) {
		if child := pin(pid, p.pid); child != nil {
			below = append(below, child)
		}
	}
	unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) //nolint:errcheck // it may have ended
	for _, child := range below {
		child.kill()
	}
}

// killGroup kills the process group of one of our children if it leads one. The child is not reaped meanwhile, so that its PID stays its own.
func (l *Launcher) killGroup(p *pinned) {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	if group, err := unix.Getpgid(p.pid); proc.Exists(p.fd) && err == nil && group == p.pid {
		unix.Kill(-p.pid, unix.SIGKILL) //nolint:errcheck // it may have ended
	}
}
