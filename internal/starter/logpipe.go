package starter

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The names under which a log command is handed over to the next image: what it reads, and a pidfd of it.
const (
	LogPipe    = "log-pipe"
	LogProcess = "log-process"
)

// pause is how long after its death a log command is started again.
const pause = time.Second

// patience is how long a log command has for the last lines.
const patience = 5 * time.Second

// Log is where start_server and its workers write, when that is not where it was started from.
type Log struct {
	to      int      // for stdout and stderr; -1: they are that already
	command string   // "": it is a file
	from    *os.File // what the command reads. It is held, so that nothing is lost when the command dies
	out     *os.File // where the command itself writes; nil: nowhere
	pidfd   atomic.Int32
	end     *os.File // closed to end Watch
	ended   chan struct{}
}

// OpenLog opens what --log-file says: a file to append to, or a command to feed, which writes to out (nil: nowhere) itself.
func OpenLog(spec string, out *os.File) (*Log, error) {
	if command, ok := strings.CutPrefix(strings.TrimSpace(spec), "|"); ok {
		return openPipe(strings.TrimSpace(command), out)
	}
	fd, err := unix.Open(spec, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOCTTY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("failed to open log file:%s: %w", spec, err)
	}
	return &Log{to: fd}, nil
}

func openPipe(command string, out *os.File) (*Log, error) {
	if command == "" {
		return nil, errors.New("--log-file: there is no command behind the |")
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("failed to open pipe:%s: %w", command, err)
	}
	l := &Log{to: p[1], command: command, from: os.NewFile(uintptr(p[0]), "log")}
	if out != nil { // stderr will be another one soon
		fd, err := unix.FcntlInt(out.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("failed to open pipe:%s: %w", command, err)
		}
		l.out = os.NewFile(uintptr(fd), out.Name())
	}
	l.pidfd.Store(-1)
	return l, l.start()
}

// InheritLog takes over the log command that the image before this one has started; nil: there is none.
func InheritLog(spec string, pipe, process int) *Log {
	command, ok := strings.CutPrefix(strings.TrimSpace(spec), "|")
	if !ok || pipe < 0 || process < 0 {
		return nil
	}
	l := &Log{to: -1, command: strings.TrimSpace(command), from: os.NewFile(uintptr(pipe), "log")}
	l.pidfd.Store(int32(process))
	return l
}

// Keep is what the next image needs.
func (l *Log) Keep() map[string]int {
	if l == nil || l.command == "" {
		return nil
	}
	return map[string]int{LogPipe: int(l.from.Fd()), LogProcess: int(l.pidfd.Load())}
}

// start starts the command. It has a process group of its own: Ctrl-C is not for it, because it has the last lines to take yet.
func (l *Log) start() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	out := null.Fd()
	if l.out != nil {
		out = l.out.Fd()
	}
	pidfd := -1
	_, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", l.command}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{l.from.Fd(), out, out},
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	})
	if err != nil {
		return fmt.Errorf("failed to open pipe:%s: %w", l.command, err)
	}
	unix.CloseOnExec(pidfd)
	if old := l.pidfd.Swap(int32(pidfd)); old >= 0 {
		unix.Close(int(old))
	}
	return nil
}

// Redirect makes it the stdout and stderr of this process.
func (l *Log) Redirect() error {
	if l.to < 0 {
		return nil
	}
	for fd := 1; fd <= 2; fd++ {
		if err := unix.Dup3(l.to, fd, 0); err != nil {
			return fmt.Errorf("failed to redirect: %w", err)
		}
	}
	err := unix.Close(l.to)
	l.to = -1
	return err
}

// Watch begins to start the command again when it dies. What is written meanwhile waits in the pipe. Close ends it.
func (l *Log) Watch(log *zap.Logger) error {
	if l == nil || l.command == "" {
		return nil
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return err
	}
	l.end, l.ended = end, make(chan struct{})
	go func() {
		defer close(l.ended)
		defer wake.Close()
		l.revive(int(wake.Fd()), log)
	}()
	return nil
}

// revive starts the command again whenever it has ended, until wake can be read.
func (l *Log) revive(wake int, log *zap.Logger) {
	for !readable(wake, int(l.pidfd.Load()), -1) {
		log.Error("the log command has ended; it is started again", zap.String("command", l.command), zap.Duration("after", pause))
		for started := false; !started; {
			if readable(wake, -1, pause) {
				return
			}
			err := l.start()
			if started = err == nil; !started {
				log.Error("cannot start the log command; what is written waits", zap.Error(err))
			}
		}
	}
}

// readable waits until first or second (-1: there is none) has something to read, and reports whether first has; or until the
// time is over, which is longer than any life when it is negative.
func readable(first, second int, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(first), Events: unix.POLLIN}, {Fd: int32(second), Events: unix.POLLIN}}
	timeout := -1
	if within >= 0 {
		timeout = int(within.Milliseconds())
	}
	for {
		if _, err := unix.Poll(fds, timeout); err != unix.EINTR {
			return fds[0].Revents != 0
		}
	}
}

// Close gives the command the last lines, and a moment to take them. Nothing may write to stdout or stderr after it.
func (l *Log) Close() {
	if l == nil || l.command == "" {
		return
	}
	if l.to >= 0 {
		unix.Close(l.to)
	}
	if l.end != nil {
		l.end.Close()
		<-l.ended
	}
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		unix.Dup3(null, 1, 0) //nolint:errcheck // it is open
		unix.Dup3(null, 2, 0) //nolint:errcheck // likewise
		unix.Close(null)
	}
	l.from.Close()
	readable(int(l.pidfd.Load()), -1, patience)
}
