package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/starter"
)

// errLate is wrapped by the errors of restart and stop when --timeout expires first.
var errLate = errors.New("timed out waiting")

// runningServer is a running start_server.
type runningServer struct{ pid, pidfd int }

// findServer finds the start_server that has locked a pid file. The PID in an unlocked file may belong to another
// process by now, so that is an error.
func findServer(pidFile string) (*runningServer, error) {
	f, err := os.Open(pidFile)
	if err != nil {
		return nil, unopened(pidFile, err)
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return nil, fmt.Errorf("%s contains %.40q instead of a PID", pidFile, line)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return nil, fmt.Errorf("%s names a start_server (pid:%d) that is not running, because no process has locked the "+
			"file: %w", pidFile, pid, unix.ESRCH)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("start_server (pid:%d) of %s: %w", pid, pidFile, err)
	}
	return &runningServer{pid, pidfd}, nil
}

// unopened adds the file to the system's error, in the words of the reference.
func unopened(path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("failed to open file:%s: %w", path, err)
}

func (r *runningServer) signal(sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(r.pidfd, sig, nil, 0); err != nil {
		return fmt.Errorf("failed to send %s to the server process (pid:%d): %w", unix.SignalName(sig), r.pid, err)
	}
	return nil
}

// poll waits until one of these descriptors is readable, and returns the index of the first that is. It returns -1 at
// the deadline; zero: never.
func poll(deadline time.Time, fds ...int) int {
	list := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		list[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for {
		timeout := -1
		if !deadline.IsZero() {
			timeout = int(min(max(time.Until(deadline).Milliseconds(), 0), math.MaxInt32))
		}
		if _, err := unix.Poll(list, timeout); err != unix.EINTR {
			return slices.IndexFunc(list, func(p unix.PollFd) bool { return p.Revents != 0 })
		}
	}
}

// deadline returns when --timeout expires; zero: never.
func deadline(o *starter.Arguments) (time.Time, error) {
	d, err := o.Duration("timeout", "5m")
	if err != nil || d == 0 {
		return time.Time{}, err
	}
	return time.Now().Add(d), nil
}

// restart is --restart: it sends HUP and returns when the status file contains one generation that is newer than all
// before. Generations that fail in between do not matter. If --timeout expires first, the error says which generation
// serves.
func restart(o *starter.Arguments) error {
	pidFile, statusFile := o.Get("pid-file"), o.Get("status-file")
	if pidFile == "" || statusFile == "" {
		return errors.New("--restart option requires --pid-file and --status-file to be set as well")
	}
	until, err := deadline(o)
	if err != nil {
		return err
	}
	server, err := findServer(pidFile)
	if err != nil {
		return err
	}
	defer unix.Close(server.pidfd)
	before, err := generations(statusFile)
	if err != nil {
		return unopened(statusFile, err)
	}
	if len(before) == 0 {
		return fmt.Errorf("no active process found in the status file %s: no worker has become ready yet", statusFile)
	}
	changes, err := watch(filepath.Dir(statusFile)) // each update replaces the file
	if err != nil {
		return fmt.Errorf("cannot watch the directory of the status file %s: %w", statusFile, err)
	}
	defer unix.Close(changes)
	if err := server.signal(syscall.SIGHUP); err != nil {
		return err
	}
	return server.replaced(until, statusFile, before[len(before)-1], changes)
}

// watch returns an inotify descriptor that is readable when a file has been moved into a directory.
func watch(dir string) (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if _, err = unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE); err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// replaced waits until the status file contains one generation, newer than this one.
func (r *runningServer) replaced(deadline time.Time, statusFile string, newest, changes int) error {
	events := make([]byte, 64<<10)
	for {
		now, err := generations(statusFile)
		if err == nil && len(now) == 1 && now[0] > newest {
			return nil
		}
		switch poll(deadline, r.pidfd, changes) {
		case 0:
			return fmt.Errorf("start_server (pid:%d) has exited", r.pid)
		case 1:
			unix.Read(changes, events) //nolint:errcheck // whatever has happened, the file is read again
		default:
			return unfinished(now, newest, err)
		}
	}
}

func unfinished(now []int, newest int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%w, and the status file cannot be read: %w", errLate, err)
	case len(now) > 0 && now[len(now)-1] > newest:
		return fmt.Errorf("%w: generation %d serves, but older workers are still stopping", errLate, now[len(now)-1])
	}
	return fmt.Errorf("%w: the new workers have failed or are not ready yet: the old ones keep serving while "+
		"start_server retries; "+
		"see its log", errLate)
}

// generations reads the generations in a status file, sorted, each once.
func generations(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []int
	for line := range strings.Lines(string(text)) {
		word, _, _ := strings.Cut(line, ":")
		if n, err := strconv.Atoi(word); err == nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// stop is --stop: it calls say with the server's PID, sends TERM and returns when the server has exited.
func stop(o *starter.Arguments, say func(pid int)) error {
	if o.Get("pid-file") == "" {
		return errors.New("--stop option requires --pid-file to be set as well")
	}
	until, err := deadline(o)
	if err != nil {
		return err
	}
	server, err := findServer(o.Get("pid-file"))
	if err != nil {
		return err
	}
	defer unix.Close(server.pidfd)
	say(server.pid)
	if err := server.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if poll(until, server.pidfd) < 0 {
		return fmt.Errorf("%w: start_server (pid:%d) is waiting for its workers to stop: send another TERM to kill them",
			errLate, server.pid)
	}
	return nil
}
