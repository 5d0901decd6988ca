package starter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// errLate is wrapped by the errors of Restart and Stop when --timeout expires first.
var errLate = errors.New("timed out waiting")

// running is a running start_server.
type running struct {
	pid   int
	pidfd int
	file  *os.File      // owns pidfd
	ended chan struct{} // closed when the process has exited
	watch sync.WaitGroup
}

// findServer finds the start_server that has locked a pid file. The PID in an unlocked file may belong to another process by now, so
// that is an error.
func findServer(pidFile string) (*running, error) {
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
		return nil, fmt.Errorf("%s names a start_server (pid:%d) that is not running, because no process has locked the file: %w", pidFile, pid, unix.ESRCH)
	}
	pidfd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // so that Go's poller waits for it
	if err != nil {
		return nil, fmt.Errorf("start_server (pid:%d) of %s: %w", pid, pidFile, err)
	}
	r := &running{pid: pid, pidfd: pidfd, file: os.NewFile(uintptr(pidfd), "pidfd"), ended: make(chan struct{})}
	r.watch.Go(r.waitForEnd)
	return r, nil
}

// waitForEnd closes ended when the process has exited. It returns after close at the latest.
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

// unopened adds the file to the system's error, in the words of the reference.
func unopened(path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("failed to open file:%s: %w", path, err)
}

func (r *running) close() {
	r.file.Close() //nolint:errcheck // nothing was written
	r.watch.Wait()
}

func (r *running) signal(sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(r.pidfd, sig, nil, 0); err != nil {
		return fmt.Errorf("failed to send %s to the server process (pid:%d): %w", unix.SignalName(sig), r.pid, err)
	}
	return nil
}

// within returns a context that ends with --timeout.
func (o *Options) within() (context.Context, context.CancelFunc, error) {
	d, err := o.Duration("timeout", "5m")
	if err != nil || d == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		return ctx, cancel, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	return ctx, cancel, nil
}

// Restart is --restart: it sends HUP and returns when the status file contains one generation that is newer than all before.
// Generations that fail in between do not matter. If --timeout expires first, the error says which generation serves.
func (o *Options) Restart() error {
	pidFile, statusFile := o.Get("pid-file"), o.Get("status-file")
	if pidFile == "" || statusFile == "" {
		return errors.New("--restart option requires --pid-file and --status-file to be set as well")
	}
	ctx, cancel, err := o.within()
	defer cancel()
	if err != nil {
		return err
	}
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
	if err := changes.Add(filepath.Dir(statusFile)); err != nil { // each update replaces the file
		return fmt.Errorf("cannot watch the directory of the status file: %w", err)
	}
	if err := server.signal(syscall.SIGHUP); err != nil {
		return err
	}
	return server.replaced(ctx, statusFile, before[len(before)-1], changes)
}

// replaced waits until the status file contains one generation, newer than this one.
func (r *running) replaced(ctx context.Context, statusFile string, newest int, changes *fsnotify.Watcher) error {
	for {
		now, err := generations(statusFile)
		if err == nil && len(now) == 1 && now[0] > newest {
			return nil
		}
		select {
		case <-changes.Events:
		case <-changes.Errors: // events were lost: read the file again
		case <-r.ended:
			return fmt.Errorf("start_server (pid:%d) has exited", r.pid)
		case <-ctx.Done():
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
	return fmt.Errorf("%w: the new workers have failed or are not ready yet: the old ones keep serving while start_server retries; "+
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
		n, err := strconv.Atoi(word)
		if err == nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Stop is --stop: it calls say with the server's PID, sends TERM and returns when the server has exited.
func (o *Options) Stop(say func(pid int)) error {
	if o.Get("pid-file") == "" {
		return errors.New("--stop option requires --pid-file to be set as well")
	}
	ctx, cancel, err := o.within()
	defer cancel()
	if err != nil {
		return err
	}
	server, err := findServer(o.Get("pid-file"))
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
		return fmt.Errorf("%w: start_server (pid:%d) is waiting for its workers to stop: send another TERM to kill them", errLate, server.pid)
	}
}
