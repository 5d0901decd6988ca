package ready

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// How often the kernel is asked: at first all the time, because most programs are ready soon, then less and less. A look that takes
// long, at a worker with a thousand threads, is followed by a longer pause.
const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
	restOfLook   = 10 // times the duration of a look
)

// blindFor is how long another process than the worker's first may be unreadable: it may be about to change its user.
const blindFor = time.Second

// Accepting says which worker to watch for the method Accept.
type Accepting struct {
	Sockets    []int // our descriptors of the worker's sockets
	PID        int
	Group      string        // the directory of its control group; "": it has none
	NotifyPath string        // its NOTIFY_SOCKET
	Orphans    func() []int  // our children that are not workers: some may have been started by this one
	GiveUp     time.Duration // how long a worker may not be seen to wait whose waiting the kernel may not show; 0: forever
	Looks      *foreign.Looks
	Key        any // of the worker, for Looks
}

// ErrUnseen says that a worker may wait for connections without being seen to.
var ErrUnseen = errors.New("the kernel does not show whether the worker accepts")

// Await waits until the processes of the worker, together, wait on each of its sockets, as the kernel sees it, or have accepted from it.
// Errors: the end of ctx, why the kernel does not let us look, or ErrUnseen if GiveUp is set.
func (a Accepting) Await(ctx context.Context) error {
	view, err := newKernelView(a.Sockets)
	if err != nil {
		return err
	}
	w := &acceptWatch{Accepting: a, view: view, blind: map[int]time.Time{}, begun: time.Now()}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(pause+pause/4, longestPause) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case begin := <-timer.C:
			waits, err := w.lookWithin(ctx, begin)
			if waits || ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, ErrUnseen) {
				return err
			}
			if err != nil {
				return fmt.Errorf("the kernel does not let supervisord see whether the worker accepts: %w: "+
					"run supervisord as root or as the worker's user, with CAP_SYS_PTRACE, or choose another method than accept", err)
			}
			timer.Reset(max(pause, restOfLook*time.Since(begin)))
		}
	}
}

type acceptWatch struct {
	Accepting
	view  *kernelView
	begun time.Time
	blind map[int]time.Time // since when a process cannot be looked at
}

// lookWithin is look until ctx ends: a worker that keeps its memory from being read must not outlive itself by that.
func (w *acceptWatch) lookWithin(ctx context.Context, now time.Time) (bool, error) {
	type answer struct {
		waits bool
		err   error
	}
	seen, err := foreign.Look(ctx, w.Looks, w.Key, func() answer {
		waits, err := w.look(now)
		return answer{waits, err}
	})
	return seen.waits, errors.Join(err, seen.err)
}

// look reports whether the processes of the worker, together, wait on every socket at this moment.
func (w *acceptWatch) look(now time.Time) (bool, error) {
	if invisible(w.PID) {
		return false, fmt.Errorf("process %d is not in /proc (hidepid=, or ProtectProc= of systemd): %w", w.PID, fs.ErrPermission)
	}
	found, processes := inodes{}, w.processes()
	for _, pid := range processes {
		waited, err := w.view.waited(pid)
		if err := w.denied(pid, now, err); err != nil {
			return false, err
		}
		found.add(waited)
		if len(found) == len(w.view.sockets) {
			return true, nil
		}
	}
	if w.GiveUp == 0 || now.Sub(w.begun) < w.GiveUp {
		return false, nil
	}
	for _, pid := range processes {
		if why := w.view.hidden(pid); why != nil {
			return false, fmt.Errorf("%w: %w", ErrUnseen, why)
		}
	}
	return false, nil
}

// invisible reports whether a process exists that /proc does not show.
func invisible(pid int) bool {
	_, err := os.Lstat(proc.Path(pid, ""))
	return errors.Is(err, fs.ErrNotExist) && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// denied returns the error of a look at a process, unless it may pass.
func (w *acceptWatch) denied(pid int, now time.Time, err error) error {
	if err == nil {
		delete(w.blind, pid)
		return nil
	}
	since, known := w.blind[pid]
	if !known {
		w.blind[pid], since = now, now
	}
	if pid != w.PID && now.Sub(since) < blindFor || !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fmt.Errorf("process %d (%q): %w", pid, proc.Name(pid), err)
}

// processes lists those of the worker: its first, the descendants of that, the members of its control group, and of our orphans those
// in its process group or with its NOTIFY_SOCKET in their environment.
func (w *acceptWatch) processes() []int {
	all := append([]int{w.PID}, proc.Descendants(w.PID)...)
	for _, pid := range w.Orphans() {
		if group, err := unix.Getpgid(pid); err == nil && group == w.PID || w.startedWith(pid, "NOTIFY_SOCKET="+w.NotifyPath) {
			all = append(append(all, pid), proc.Descendants(pid)...)
		}
	}
	if w.Group != "" {
		all = append(all, proc.GroupMembers(w.Group)...)
	}
	return all
}

// startedWith reports whether a process was started with a variable. It may be anybody's process, and keep its memory to itself.
func (w *acceptWatch) startedWith(pid int, variable string) bool {
	environ, err := w.Looks.ReadFile(proc.Path(pid, "environ"))
	return err == nil && strings.Contains("\x00"+string(environ), "\x00"+variable+"\x00")
}

// MayLookAt reports whether this process could see what a process of this user waits for: it must have the same user, or CAP_SYS_PTRACE
// (ptrace(2)). For an unknown user it returns true.
func MayLookAt(user string) bool {
	uid, err := proc.UID(user)
	if err != nil || int(uid) == os.Geteuid() {
		return true
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}
