package worker

import (
	"os"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// maySpeak reports whether a process may speak for the worker. Its user must be the worker's, root or the supervisor's own, and it must be
// the worker or have been started by it. The second rule keeps the workers of one user apart as far as that is possible: they could
// trace each other. It gives the benefit of the doubt to a process whose origin is lost, because it or the process that started it has
// ended: a shell script's systemd-notify usually has, and so has what started a daemon that forks twice. It must not be called on the
// poller nor with a lock: reading the file stat in /proc can make the reader the last user of another process's memory, whose release
// may take long.
func (w *Worker) maySpeak(sender *unix.Ucred) bool {
	if sender == nil {
		return false
	}
	known := sender.Uid == 0 || sender.Uid == uint32(os.Geteuid()) || w.spec.Credential != nil && sender.Uid == w.spec.Credential.UID
	return known && (int(sender.Pid) == w.process.pid || w.mayHaveStarted(int(sender.Pid)))
}

// mayHaveStarted follows a process up to a worker, to this process, which inherits orphans, or to the first of all. The orphans of a
// worker that another supervisor started have gone to that one's parent.
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
