package worker

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
)

// How many strays are looked at at a time, and how long one look may take.
const (
	strayLooks  = 16
	strayWithin = time.Second
)

// watchStrays kills strays whenever the reaper says that there may be new ones. It does not hold up the reaper: a look at a process may
// take long.
func (l *Launcher) watchStrays() {
	for range l.strays {
		l.killStrays()
	}
}

// killStrays kills what has left the process group of a worker that is gone (setsid(2)): as a subreaper this process has become
// its parent. Which worker it belonged to is known by the NOTIFY_SOCKET in its environment, which goes with the worker.
// A process that has changed its environment is left alone, and so is one that does not let it be read: nothing says whose it is.
func (l *Launcher) killStrays() {
	var looks sync.WaitGroup
	places := make(chan struct{}, strayLooks)
	for _, pid := range l.strangers() {
		places <- struct{}{}
		looks.Go(func() {
			l.killStray(pid)
			<-places
		})
	}
	looks.Wait()
}

// strangers lists our children that are no workers: processes whose parent has ended.
//
// The kernel gives orphans to the first thread of a subreaper, which in Go lives as long as the process. So one short list is
// enough; those of the other threads hold only what they forked themselves.
func (l *Launcher) strangers() []int {
	children := readChildren("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	l.mu.Lock()
	defer l.mu.Unlock()
	var strangers []int
	for _, pid := range children {
		_, expected := l.expected[pid]
		if l.children[pid] == nil && !expected {
			strangers = append(strangers, pid)
		}
	}
	return strangers
}

// killStray kills a process, its group and everything below it if it is a stray.
func (l *Launcher) killStray(pid int) {
	ctx, cancel := context.WithTimeout(l.life, strayWithin)
	defer cancel()
	foreign.Look(ctx, &l.looks, pid, func() any { //nolint:errcheck // it is left alone then
		p := pin(pid, os.Getpid())
		switch {
		case p == nil:
		case stray(pid):
			l.killGroup(p)
			p.kill()
		default:
			p.close()
		}
		return nil
	})
}

// stray reports whether the process was started by a worker that is gone.
func stray(pid int) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		path, found := strings.CutPrefix(string(kv), "NOTIFY_SOCKET=")
		if found && strings.HasPrefix(filepath.Base(filepath.Dir(path)), directoryPrefix) {
			_, err := os.Lstat(path)
			return errors.Is(err, fs.ErrNotExist)
		}
	}
	return false
}

// pinned is a process that is known by its pidfd: its number may be another one's by now.
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
	above, err := parentOf(pid)
	if err != nil || above != parent || !p.there() { // there: so the number was its own all the time
		p.close()
		return nil
	}
	return p
}

// there reports whether the process is there, if only as a zombie, so that its number means nobody else.
func (p *pinned) there() bool { return unix.PidfdSendSignal(p.fd, 0, nil, 0) == nil }

func (p *pinned) close() { unix.Close(p.fd) }

// kill kills the process and everything below it, and closes p.
func (p *pinned) kill() {
	defer p.close()
	var below []*pinned
	for _, pid := range childrenOf(strconv.Itoa(p.pid)) {
		if child := pin(pid, p.pid); child != nil {
			below = append(below, child)
		}
	}
	unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) //nolint:errcheck // it may have ended
	for _, child := range below {
		child.kill()
	}
}

// killGroup kills the process group of one of our children if it leads one. Nobody reaps it meanwhile, so that the number stays its own.
func (l *Launcher) killGroup(p *pinned) {
	l.taking.Lock()
	defer l.taking.Unlock()
	if group, err := unix.Getpgid(p.pid); p.there() && err == nil && group == p.pid {
		unix.Kill(-p.pid, unix.SIGKILL) //nolint:errcheck // it may have ended
	}
}

// childrenOf lists the children of a process, of all its threads (proc_pid_task(5); nothing on a kernel without the list).
func childrenOf(process string) []int {
	lists, _ := filepath.Glob("/proc/" + process + "/task/*/children")
	var pids []int
	for _, list := range lists {
		pids = append(pids, readChildren(list)...)
	}
	return pids
}

// readChildren reads one list of children; there is none where the thread is gone.
func readChildren(list string) (pids []int) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
