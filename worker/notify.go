package worker

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// How many messages are read in one turn, so that one worker cannot delay the others; and how many after the end of the
// worker: at least the length of a socket's queue (net.unix.max_dgram_qlen is 512 under systemd).
const (
	messagesPerTurn = 32
	lastMessages    = 1024
)

// listen begins to read the worker's messages. It must come after Spawned, because before the exec the sender cannot be
// authenticated; messages sent earlier wait in the socket. w.mu is held.
func (w *Worker) listen() {
	w.attend(FDNotify, w.readSocket)
	w.attend(FDPipe, w.readPipe)
}

// readSocket reads the notify socket, up to a message that must stay there until Recorded. It handles each message
// before it removes the message from the socket: an execve between the two loses nothing.
func (w *Worker) readSocket(fd int) {
	for range messagesPerTurn {
		m, sender, err := ready.Peek(fd)
		if err != nil || !w.admit(w.maySpeak(sender), m) {
			return
		}
		ready.Take(fd)
	}
}

// readLast handles what is left in the notify socket of a worker that has ended, and leaves it there.
func (w *Worker) readLast(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0) != nil {
		return
	}
	for range lastMessages {
		m, sender, err := ready.Peek(fd)
		if err != nil {
			return
		}
		w.admit(w.maySpeak(sender), m)
	}
}

// admit handles a message if it is the worker's own. It returns false if the message must stay where it is.
func (w *Worker) admit(own bool, m ready.Notification) bool {
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.channels.kept || own && m.Ready && !m.Stopping && w.mayGetReady() {
		w.noteDrains(own && m.Drains) // before it is ready, so that both are recorded together
		w.keepReady()
		return false
	}
	if own {
		w.handle(m)
	}
	return true
}

// mayGetReady reports whether the worker could say that it is ready, and live on. w.mu is held.
func (w *Worker) mayGetReady() bool {
	return w.spec.Ready.Method == ready.Notify && !w.process.Ready && !w.process.Leaving && !w.process.ended
}

// keepReady begins what makes the worker ready, and leaves the message that says so in the kernel until Recorded: if
// the supervisor dies before it has recorded the fact, the next one reads the message again. w.mu is held.
func (w *Worker) keepReady() {
	w.claimReady()
	w.channels.kept = true
	w.launcher.poll.Remove(w.channels.open[FDNotify])
	w.launcher.poll.Remove(w.channels.open[FDPipe])
}

// noteDrains posts that the worker drains itself, once. w.mu is held.
func (w *Worker) noteDrains(promised bool) {
	if promised && !w.channels.drains {
		w.channels.drains = true
		w.events.put(life.DrainsItself{})
	}
}

// Recorded tells the worker that the record for the next supervisor includes what an event says: what the kernel keeps
// until then may leave it. It must follow every Filtered and every ReadySaid.
func (w *Worker) Recorded(e life.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch c := &w.channels; e.(type) {
	case life.Filtered:
		if c.begins {
			c.begins = false
			w.watch(FDReport, epoll.Readable, w.readReport)
		}
	case life.ReadySaid:
		if c.kept {
			c.kept = false
			w.listen()
		}
	}
}

// handle posts the contents of a message in the order in which systemd handles them, whatever the order of the lines.
// w.mu is held.
func (w *Worker) handle(m ready.Notification) {
	if m.Stopping && !w.process.Leaving {
		w.process.Leaving = true
		w.stopReady()
		w.events.put(life.Leaving{})
	}
	w.noteDrains(m.Drains)
	if m.Ready && !w.process.Leaving && w.spec.Ready.Method == ready.Notify {
		w.claimReady()
	}
	if status := strings.TrimSpace(output.Printable(m.Status)); status != "" || m.Errno != 0 {
		w.events.put(life.StatusText{Text: status, Errno: m.Errno})
	}
	if m.Extend > 0 {
		w.events.put(life.Extend{Duration: m.Extend})
	}
	if m.Watchdog || m.Trigger {
		w.events.put(life.Watchdog{Trigger: m.Trigger})
	}
}

// readPipe reads NOTIFY_FD, where a newline means ready. It also reads and drops everything after the newline, so that
// the worker's writes never block or fail.
func (w *Worker) readPipe(fd int) {
	var buf [256]byte
	for range messagesPerTurn {
		most := len(buf)
		if w.awaitsReady() {
			seen, err := ready.PeekPipe(fd)
			if errors.Is(err, unix.EAGAIN) ||
				bytes.IndexByte(seen, '\n') >= 0 && !w.admit(true, ready.Notification{Ready: true}) {
				return
			}
			if err == nil {
				most = min(most, max(1, len(seen))) // and nothing that came since: it may be the newline
			}
		}
		if !w.emptyPipe(fd, buf[:most]) {
			return
		}
	}
}

// emptyPipe removes bytes from the pipe. It returns false if the pipe is empty for now.
func (w *Worker) emptyPipe(fd int, buf []byte) bool {
	n, err := unix.Read(fd, buf)
	if err != nil {
		return errors.Is(err, unix.EINTR)
	}
	if bytes.IndexByte(buf[:n], '\n') >= 0 { // it could not be peeked at, or the worker has ended
		w.admit(true, ready.Notification{Ready: true})
	}
	if n == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(FDPipe)
	}
	return n > 0
}

// awaitsReady reports whether the pipe must be peeked at, because a newline in it would make the worker ready.
func (w *Worker) awaitsReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mayGetReady()
}

// maySpeak reports whether a process may send messages for the worker: the worker itself, or a process that the worker
// started, under whatever user it runs by now. If the origin of a process is unknown, because the process or its parent
// has ended, maySpeak accepts the worker's user, root and the supervisor's own user: the systemd-notify of a shell
// script has usually ended, and so has the parent of a daemon that forks twice. The name of the socket is secret to all
// other users; a process of the same user could trace the worker.
//
// Do not call maySpeak on the poller or with a lock: reading /proc/PID/stat can make the reader the last user of
// another process's memory, and releasing that may take long.
func (w *Worker) maySpeak(sender *unix.Ucred) bool {
	if sender == nil {
		return false
	}
	owner, known := w.starter(int(sender.Pid))
	return owner == w || !known && w.hasUser(sender.Uid)
}

// hasUser reports whether a user is root, the supervisor's own user, the user that the worker was started as, or the
// worker's user now.
func (w *Worker) hasUser(uid uint32) bool {
	if uid == 0 || uid == uint32(os.Geteuid()) || w.spec.Credential != nil && uid == w.spec.Credential.UID {
		return true
	}
	var now unix.Stat_t
	return unix.Stat(proc.Path(w.process.PID, ""), &now) == nil && now.Uid == uid
}

// starter follows the parents of a process, and looks at their sessions, up to a worker. Without a worker, known says
// that the process comes from none: its first ancestor is not this process, which inherits the orphans of w, unless
// another supervisor has started w.
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

// rememberFor is how long a process that has ended still counts as a worker: its signal may reach us after its end.
const rememberFor = time.Second

// Owner returns the worker to which one of these processes belongs, or belonged until rememberFor ago; nil: no worker.
// A process may run before the fork that made it has returned: Owner waits for the forks that are under way before it
// says that there is none.
func (l *Launcher) Owner(pids []int) *Worker {
	if w := l.living(pids); w != nil {
		return w
	}
	l.mu.Lock() // a fork holds it until it has stored its PID
	defer l.mu.Unlock()
	if w := l.living(pids); w != nil {
		return w
	}
	for _, pid := range pids {
		if w := l.past[pid]; w != nil {
			return w
		}
	}
	return nil
}

// living is Owner among the workers that were not reaped, without a lock.
func (l *Launcher) living(pids []int) *Worker {
	for _, pid := range pids {
		if w, known := l.pids.Load(pid); known {
			return w.(*Worker)
		}
	}
	return nil
}

// Serves reports whether the worker has listening sockets.
func (w *Worker) Serves() bool { return len(w.spec.Sockets) > 0 }
