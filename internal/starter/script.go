package starter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// ErrLate is wrapped by what Restart and Stop return when the time is over.
var ErrLate = errors.New("the time is over")

// errEnded is what Restart returns when nobody is left to wait for.
var errEnded = errors.New("it has ended")

// running is a start_server that runs.
type running struct {
	pid   int
	pidfd int
	file  *os.File      // owns pidfd
	ended chan struct{} // closed when the process has ended
	watch sync.WaitGroup
}

// findServer looks up who holds a pid file. The PID in a file that nobody has locked may be anybody's by now: it gets no signal.
func findServer(pidFile string) (*running, error) {
	f, err := os.Open(pidFile)
	if err != nil {
		return nil, unopened(pidFile, err)
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return nil, fmt.Errorf("%s does not hold a PID but %.40q", pidFile, line)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return nil, fmt.Errorf("%s is of a start_server (pid:%d) that runs no more: nobody has it locked: %w", pidFile, pid, unix.ESRCH)
	}
	pidfd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // which has Go's poller wait for it
	if err != nil {
		return nil, fmt.Errorf("start_server (pid:%d) of %s: %w", pid, pidFile, err)
	}
	r := &running{pid: pid, pidfd: pidfd, file: os.NewFile(uintptr(pidfd), "pidfd"), ended: make(chan struct{})}
	r.watch.Go(r.waitForEnd)
	return r, nil
}

// waitForEnd closes ended when the process has ended; close ends it.
func (r *running) waitForEnd() {
	conn, err := r.file.SyscallConn()
	if err != nil {
		return // impossible: it is open
	}
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	if err == nil {
		close(r.ended)
	}
}

// unopened says of which file the system's error is.
func unopened(path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("failed to open file:%s: %w", path, err)
}

func (r *running) close() {
	r.file.Close() //nolint:errcheck // it was only waited for
	r.watch.Wait()
}

func (r *running) signal(sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(r.pidfd, sig, nil, 0); err != nil {
		return fmt.Errorf("failed to send %s to the server process (pid:%d): %w", unix.SignalName(sig), r.pid, err)
	}
	return nil
}

// Restart sends HUP and returns when the status file has one generation, and that is newer than all that it had before.
// Generations that fail on the way there do not matter. The error says what is there when ctx ends before that.
func Restart(ctx context.Context, pidFile, statusFile string) error {
	server, err := findServer(pidFile)
	if err != nil {
		return err
	}
	defer server.close()
	before, err := generations(statusFile)
	if err != nil {
		return unopened(statusFile, err)
	}
	if len(before) == 0 {
		return fmt.Errorf("no active process found in the status file %s: no worker has become ready yet", statusFile)
	}
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch the status file %s: %w", statusFile, err)
	}
	defer changes.Close()
	if err := changes.Add(filepath.Dir(statusFile)); err != nil { // the file is another one each time
		return fmt.Errorf("cannot watch the folder of the status file: %w", err)
	}
	if err := server.signal(syscall.SIGHUP); err != nil {
		return err
	}
	return server.replaced(ctx, statusFile, before[len(before)-1], changes)
}

// replaced waits until the status file has one generation, newer than this one.
func (r *running) replaced(ctx context.Context, statusFile string, newest int, changes *fsnotify.Watcher) error {
	for {
		now, err := generations(statusFile)
		if err == nil && len(now) == 1 && now[0] > newest {
			return nil
		}
		select {
		case <-changes.Events:
		case <-changes.Errors: // events were lost: look
		case <-r.ended:
			return fmt.Errorf("start_server (pid:%d): %w", r.pid, errEnded)
		case <-ctx.Done():
			return unfinished(now, newest, err)
		}
	}
}

func unfinished(now []int, newest int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%w, and the status file cannot be read: %w", ErrLate, err)
	case len(now) > 0 && now[len(now)-1] > newest:
		return fmt.Errorf("%w: generation %d serves, but workers of older ones have not ended yet; they go on", ErrLate, now[len(now)-1])
	}
	return fmt.Errorf("%w: the new workers have failed, or are not ready yet: the old ones serve on, "+
		"and the log of start_server says why; it goes on trying", ErrLate)
}

// generations reads the numbers in a status file, in their order, each once.
func generations(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []int
	for line := range strings.Lines(string(text)) {
		word, _, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(word)
		if err == nil {
			list = insert(list, n)
		}
	}
	return list, nil
}

// insert keeps a list of numbers sorted and without doubles.
func insert(list []int, n int) []int {
	i := len(list)
	for i > 0 && list[i-1] >= n {
		i--
	}
	if i < len(list) && list[i] == n {
		return list
	}
	return append(list[:i], append([]int{n}, list[i:]...)...)
}

// Stop sends TERM and returns when the server has ended. say is told which process that is.
func Stop(ctx context.Context, pidFile string, say func(pid int)) error {
	server, err := findServer(pidFile)
	if err != nil {
		return err
	}
	defer server.close()
	say(server.pid)
	if err := server.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-server.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: start_server (pid:%d) waits for its workers, which it has told to end; another TERM kills them", ErrLate, server.pid)
	}
}
