package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/output"
)

// How often the kernel is looked at: at first all the time, because most programs are ready soon, then less and less. A look
// that takes long, at a worker with a thousand threads, is followed by a longer pause.
const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
	restOfLook   = 10 // so many times what a look took
)

// blindFor is how long a process beside the worker's own may be out of our sight: one that is about to change its user.
const blindFor = time.Second

// acceptWatch waits until a worker waits on each of its sockets, as the kernel sees it.
type acceptWatch struct {
	w     *Worker
	pid   int
	group string // its control group; "": it has none
	view  *kernelView
	blind map[int]time.Time // since when a process cannot be looked at
}

// awaitAccept looks until the worker waits on all its sockets, or cannot be looked at, or ctx ends.
func (w *Worker) awaitAccept(ctx context.Context, pid int, group string) {
	err := w.watchAccept(ctx, pid, group)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil || w.process.ended:
	case err != nil:
		w.events.put(NeverReady{Err: fmt.Errorf("the kernel does not let supervisord see whether the worker accepts: %w: "+
			"run supervisord as root or as the worker's user, with CAP_SYS_PTRACE, or choose another method than accept", err)})
	default:
		w.sayReady()
	}
}

func (w *Worker) watchAccept(ctx context.Context, pid int, group string) error {
	view, err := newKernelView(w.spec.Sockets)
	if err != nil {
		return err
	}
	a := &acceptWatch{w: w, pid: pid, group: group, view: view, blind: map[int]time.Time{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(pause+pause/4, longestPause) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case begin := <-timer.C:
			waits, err := a.lookWithin(ctx, begin)
			if waits || err != nil {
				return err
			}
			timer.Reset(max(pause, restOfLook*time.Since(begin)))
		}
	}
}

// lookWithin is look until ctx ends: a worker that keeps its memory from being read must not outlive itself by that.
func (a *acceptWatch) lookWithin(ctx context.Context, now time.Time) (bool, error) {
	type answer struct {
		waits bool
		err   error
	}
	seen, err := foreign.Look(ctx, &a.w.launcher.looks, a.w, func() answer {
		waits, err := a.look(now)
		return answer{waits, err}
	})
	return seen.waits, errors.Join(err, seen.err)
}

// look tells whether the processes of the worker, together, wait on every socket at this moment.
func (a *acceptWatch) look(now time.Time) (bool, error) {
	if invisible(a.pid) {
		return false, fmt.Errorf("process %d is not in /proc (hidepid=, or ProtectProc= of systemd): %w", a.pid, fs.ErrPermission)
	}
	found := watched{}
	for _, pid := range a.processes() {
		waited, err := a.view.waited(pid)
		if err := a.sight(pid, now, err); err != nil {
			return false, err
		}
		found.add(waited)
		if len(found) == len(a.view.sockets) {
			return true, nil
		}
	}
	return false, nil
}

// invisible tells whether a process is there that /proc does not show.
func invisible(pid int) bool {
	_, err := os.Lstat("/proc/" + strconv.Itoa(pid))
	return errors.Is(err, fs.ErrNotExist) && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// sight returns the error of a look at a process if it is not one that may pass.
func (a *acceptWatch) sight(pid int, now time.Time, err error) error {
	if err == nil {
		delete(a.blind, pid)
		return nil
	}
	since, known := a.blind[pid]
	if !known {
		a.blind[pid], since = now, now
	}
	if pid != a.pid && now.Sub(since) < blindFor || !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return fmt.Errorf("process %d (%s): %w", pid, output.Printable(string(name)), err)
}

// processes lists those of the worker: its own, what descends from it, what is in its control group, and, as far as they are
// our children by now, those of its process group and those that still have its NOTIFY_SOCKET in their environment.
func (a *acceptWatch) processes() []int {
	all := append([]int{a.pid}, below(a.pid)...)
	for _, pid := range a.w.launcher.strangers() {
		if group, err := unix.Getpgid(pid); err == nil && group == a.pid || a.w.launcher.startedWith(pid, "NOTIFY_SOCKET="+a.w.said.path) {
			all = append(append(all, pid), below(pid)...)
		}
	}
	if a.group != "" {
		text, _ := os.ReadFile(filepath.Join(a.group, "cgroup.procs"))
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// startedWith reports whether a process was started with this variable. It may be anybody's process, and keep its memory to itself.
func (l *Launcher) startedWith(pid int, variable string) bool {
	environ, err := l.looks.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && strings.Contains("\x00"+string(environ), "\x00"+variable+"\x00")
}

// MayLookAt tells whether this process could look at what a process of this user waits for: its own user, or CAP_SYS_PTRACE
// (ptrace(2)). Where the user is not known it says yes.
func MayLookAt(name string) bool {
	uid, known := lookupUID(name)
	if !known || uid == os.Geteuid() {
		return true
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// lookupUID is the number of a user, by name or number.
func lookupUID(name string) (int, bool) {
	if uid, err := strconv.Atoi(name); err == nil {
		return uid, true
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	uid, err := strconv.Atoi(u.Uid)
	return uid, err == nil
}
