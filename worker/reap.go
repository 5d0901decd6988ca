package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/ready"
)

// reapAll reaps on every SIGCHLD. The kernel merges signals, so each signal means: reap until no zombie is left.
func (l *Launcher) reapAll() {
	defer close(l.strays)
	for range l.chld {
		l.reap()
	}
}

// wakeReaper makes the reaper look.
func (l *Launcher) wakeReaper() {
	select {
	case l.chld <- syscall.SIGCHLD:
	default:
	}
}

// watchChild wakes the reaper when the process ends. SIGCHLD alone is not enough: the kernel sends it to the thread
// that forked, and while that thread hangs (on a disk, for example), no other thread gets the signal. w.mu is held.
func (w *Worker) watchChild() {
	if w.process.pidfd < 0 {
		return
	}
	s, err := w.launcher.poll.Add(w.process.pidfd, epoll.ReadableOnce, w.locked(func() {
		if !w.process.ended {
			w.launcher.wakeReaper()
		}
	}))
	if err == nil { // otherwise there is still SIGCHLD
		w.process.exit = s
	}
}

// reap reaps until no child is a zombie. It releases the gate after each child, so that Freeze waits for one child at
// most.
func (l *Launcher) reap() {
	for collected := false; ; collected = true {
		l.gate.RLock()
		pid := zombie()
		if pid != 0 {
			l.collect(pid)
		} else if collected {
			l.groups.Sweep()
			l.lookForStrays()
		}
		l.gate.RUnlock()
		if pid == 0 {
			return
		}
	}
}

// lookForStrays wakes watchStrays. It does not wait.
func (l *Launcher) lookForStrays() {
	select {
	case l.strays <- struct{}{}:
	default:
	}
}

// collect reaps a child that has ended and passes its status to its worker. One that is expected is reaped under the
// lock that adopt holds, which finds it either as a child or with its status.
func (l *Launcher) collect(pid int) {
	l.mu.Lock()
	l.pids.Delete(pid)
	if w := l.children[pid]; w != nil {
		delete(l.children, pid)
		l.past[pid] = w
		l.mu.Unlock()
		w.collect(pid)
		return
	}
	status, ok := l.wait(pid)
	if _, expected := l.expected[pid]; ok && expected {
		l.expected[pid] = &status
	}
	l.mu.Unlock()
	l.resting.Range(func(w, _ any) bool {
		w.(*Worker).topEnded(pid, status)
		return true
	})
}

// zombie returns the PID of a child that has ended, or 0. It stays a zombie: the PID cannot be reused before wait.
func zombie() int {
	var si unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &si, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0
		}
		return siginfoPID(&si)
	}
}

// siginfoPID reads si_pid, which x/sys does not name: it follows three int fields and padding to 8 bytes.
func siginfoPID(si *unix.Siginfo) int { return int(*(*int32)(unsafe.Add(unsafe.Pointer(si), 16))) }

// wait reaps a zombie; from then on another process may get its PID. It returns false if the process was reaped
// already.
func (l *Launcher) wait(pid int) (status syscall.WaitStatus, ok bool) {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	for {
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err != syscall.EINTR {
			return status, got == pid
		}
	}
}

// How many orphans are examined at a time, and how long that may take for each.
const (
	strayLooks  = 16
	strayWithin = time.Second
)

// During execve(2) a process has no environment for a moment, and no event marks the end of that moment: so the
// environment is read this often, with this pause.
const (
	execLooks = 20
	execPause = 10 * time.Millisecond
)

// watchStrays kills strays whenever the reaper reports that there may be new ones. It has a goroutine of its own,
// because examining a process may take long.
func (l *Launcher) watchStrays() {
	for range l.strays {
		l.killStrays()
	}
}

// killStrays kills processes that left the process group (setsid(2)) of a worker that is gone: this process, as a
// subreaper, has inherited them. The NOTIFY_SOCKET in the environment of a process names its worker. killStrays leaves
// a process alone that has changed its environment or does not let it be read.
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

// orphans lists our children that are not workers: processes whose parent has ended. Nobody reaps meanwhile, so that
// the list has every one that was there before.
func (l *Launcher) orphans() []int {
	l.reaping.Lock()
	children := proc.OwnChildren()
	l.reaping.Unlock()
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

// pinned is a process identified by its pidfd, which pinned owns: the PID alone may belong to another process by now.
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

// killGroup kills the process group of one of our children if the child leads one. Nobody reaps the child meanwhile, so
// its PID stays its own.
func (l *Launcher) killGroup(p *pinned) {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	if group, err := unix.Getpgid(p.pid); proc.Exists(p.fd) && err == nil && group == p.pid {
		unix.Kill(-p.pid, unix.SIGKILL) //nolint:errcheck // it may have ended
	}
}
