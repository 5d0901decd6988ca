package worker

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// maySpeak reports whether a process may speak for the worker. Its user must be the worker's, root or the supervisor's own, and it must be
// the worker or have been started by the worker. The second rule keeps workers of one user apart as far as that is possible: they could
// trace each other. A process of unknown origin, because it or the process that started it has ended, is believed: a shell script's
// systemd-notify usually has ended, and so has what started a daemon that forks twice.
//
// Do not call maySpeak on the poller nor with a lock: reading /proc/PID/stat can make the reader the last user of another process's
// memory, and releasing that may take long.
func (w *Worker) maySpeak(sender *unix.Ucred) bool {
	if sender == nil {
		return false
	}
	known := sender.Uid == 0 || sender.Uid == uint32(os.Geteuid()) || w.spec.Credential != nil && sender.Uid == w.spec.Credential.UID
	return known && (int(sender.Pid) == w.process.pid || w.mayHaveStarted(int(sender.Pid)))
}

// mayHaveStarted follows the parents of a process up to a worker, to this process, which inherits orphans, or to the first process. The
// orphans of a worker that another supervisor started have gone to that one's parent.
func (w *Worker) mayHaveStarted(pid int) bool {
	for self := os.Getpid(); pid != self; {
		if owner, known := w.launcher.pids.Load(pid); known {
			return owner == w
		}
		if pid <= 1 {
			return !w.process.child
		}
		stat, err := proc.ReadStat(pid)
		if err != nil {
			return true
		}
		pid = stat.Parent
	}
	return true
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
