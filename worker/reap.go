package worker

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reapAll reaps on every SIGCHLD. Signals merge, so each one means: look until there is nothing more.
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

// watchChild wakes the reaper when the process ends. SIGCHLD alone is not enough: the kernel gives it to the thread that forked, and while
// that thread is stuck, as on a disk that hangs, no other one gets it. w.mu is held.
func (w *Worker) watchChild() {
	if w.process.pidfd < 0 {
		return
	}
	s, err := w.launcher.poll.Add(w.process.pidfd, true, w.locked(func() {
		if !w.process.ended {
			w.launcher.wakeReaper()
		}
	}))
	if err == nil { // otherwise there is still SIGCHLD
		w.process.exit = s
	}
}

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

func (l *Launcher) lookForStrays() {
	select {
	case l.strays <- struct{}{}:
	default:
	}
}

// collect reaps a child that has ended and passes on its status.
func (l *Launcher) collect(pid int) {
	l.mu.Lock()
	w := l.children[pid]
	delete(l.children, pid)
	if w != nil {
		l.past[pid] = w
	}
	l.pids.Delete(pid)
	_, expected := l.expected[pid]
	l.mu.Unlock()
	if w != nil {
		w.collect(pid)
		return
	}
	l.reaping.Lock()
	status, ok := wait(pid)
	l.reaping.Unlock()
	l.resting.Range(func(w, _ any) bool {
		w.(*Worker).topEnded(pid, status)
		return true
	})
	switch {
	case !ok:
	case expected:
		l.mu.Lock()
		l.expected[pid] = &status
		l.mu.Unlock()
	case l.orphan != nil:
		l.orphan(pid, status)
	}
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

func wait(pid int) (status syscall.WaitStatus, ok bool) {
	for {
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err != syscall.EINTR {
			return status, got == pid
		}
	}
}
