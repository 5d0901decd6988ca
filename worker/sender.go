package worker

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// maySpeak reports whether a process may speak for the worker: it is the worker, or was started by the worker, whatever its user is by now.
// A process of unknown origin, because it or the process that started it has ended, is believed if its user is the worker's, root or the
// supervisor's own: a shell script's systemd-notify usually has ended, and so has what started a daemon that forks twice. The name of the
// socket is secret to all other users; a process of the same user could trace the worker.
//
// Do not call maySpeak on the poller nor with a lock: reading /proc/PID/stat can make the reader the last user of another process's
// memory, and releasing that may take long.
func (w *Worker) maySpeak(sender *unix.Ucred) bool {
	if sender == nil {
		return false
	}
	owner, known := w.starter(int(sender.Pid))
	return owner == w || !known && w.hasUser(sender.Uid)
}

// hasUser reports whether a user is root, the supervisor's own, the one that the worker was started as, or the one that it has become.
func (w *Worker) hasUser(uid uint32) bool {
	if uid == 0 || uid == uint32(os.Geteuid()) || w.spec.Credential != nil && uid == w.spec.Credential.UID {
		return true
	}
	var now unix.Stat_t
	return unix.Stat(proc.Path(w.process.pid, ""), &now) == nil && now.Uid == uid
}

// starter follows the parents of a process, and looks at their sessions, up to a worker. Without a worker, known says that the process comes
// from none: its first ancestor is not this process, which inherits the orphans of w, unless another supervisor has started w.
func (w *Worker) starter(pid int) (owner *Worker, known bool) {
	for self := os.Getpid(); pid != self; {
		if found := w.launcher.Owner([]int{pid}); found != nil {
			return found, true
		}
		if pid <= 1 {
			return nil, w.process.child
		}
		stat, err := proc.ReadStat(pid)
		if err != nil {
			return nil, false
		}
		if found := w.launcher.Owner([]int{stat.Session}); found != nil {
			return found, true
		}
		pid = stat.Parent
	}
	return nil, false
}

// rememberFor is how long a process that has ended counts as a worker: a signal that it sent may be looked at later.
const rememberFor = time.Second

// Owner returns the worker that one of these processes is, or was until a moment ago; nil: none is one.
func (l *Launcher) Owner(pids []int) *Worker {
	for _, pid := range pids {
		if w, known := l.pids.Load(pid); known {
			return w.(*Worker)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pid := range pids {
		if w := l.past[pid]; w != nil {
			return w
		}
	}
	return nil
}

// Serves reports whether the worker has listening sockets.
func (w *Worker) Serves() bool { return len(w.spec.Sockets) > 0 }
