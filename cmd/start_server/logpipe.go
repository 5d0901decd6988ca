package main

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

// The names of the descriptors that an upgrade hands over for a log command: the pipe that it reads, and its pidfd.
const (
	logPipe    = "log-pipe"
	logProcess = "log-process"
)

// restartDelay is the time from the death of a log command to its restart.
const restartDelay = time.Second

// drainTimeout is how long a log command may take for the last lines.
const drainTimeout = 5 * time.Second

// sessionLog is --log-file: where start_server and its workers write.
type sessionLog struct {
	to      int      // for stdout and stderr; -1: they are redirected already
	command string   // "": it is a file
	from    *os.File // what the command reads; held open, so that nothing is lost when the command dies
	out     *os.File // where the command itself writes; nil: nowhere
	pidfd   atomic.Int32
	end     *os.File // closed to end watch
	ended   chan struct{}
}

// openLog opens the value of --log-file: a file to append to, or "| COMMAND". The command itself writes to out (nil:
// nowhere).
func openLog(spec string, out *os.File) (*sessionLog, error) {
	if command, ok := strings.CutPrefix(strings.TrimSpace(spec), "|"); ok {
		return openPipe(strings.TrimSpace(command), out)
	}
	fd, err := unix.Open(spec, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOCTTY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("failed to open log file:%s: %w", spec, err)
	}
	return &sessionLog{to: fd}, nil
}

func openPipe(command string, out *os.File) (*sessionLog, error) {
	if command == "" {
		return nil, errors.New("--log-file: write a command after the |")
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("failed to open pipe:%s: %w", command, err)
	}
	l := &sessionLog{to: p[1], command: command, from: os.NewFile(uintptr(p[0]), "log")}
	if out != nil { // redirect replaces stderr
		fd, err := unix.FcntlInt(out.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("failed to open pipe:%s: %w", command, err)
		}
		l.out = os.NewFile(uintptr(fd), out.Name())
	}
	l.pidfd.Store(-1)
	return l, l.start()
}

// inheritLog takes over the log command that the previous image started. It returns nil if there is none.
func inheritLog(spec string, pipe, process int) *sessionLog {
	command, ok := strings.CutPrefix(strings.TrimSpace(spec), "|")
	if !ok || pipe < 0 || process < 0 {
		return nil
	}
	l := &sessionLog{to: -1, command: strings.TrimSpace(command), from: os.NewFile(uintptr(pipe), "log")}
	l.pidfd.Store(int32(process))
	return l
}

// keep returns the descriptors that an upgrade hands over.
func (l *sessionLog) keep() map[string]int {
	if l == nil || l.command == "" {
		return nil
	}
	return map[string]int{logPipe: int(l.from.Fd()), logProcess: int(l.pidfd.Load())}
}

// start starts the command in its own process group, so that Ctrl-C does not kill it before it has read the last lines.
func (l *sessionLog) start() error {
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

// redirect makes the log stdout and stderr of this process.
func (l *sessionLog) redirect() error {
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

// watch restarts the command whenever it dies, until close. Lines written in between wait in the pipe.
func (l *sessionLog) watch(log *zap.Logger) error {
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

// revive restarts the command whenever it has exited, until wake is readable.
func (l *sessionLog) revive(wake int, log *zap.Logger) {
	for poll(time.Time{}, wake, int(l.pidfd.Load())) != 0 {
		log.Error("the log command has exited and will be restarted", zap.String("command", l.command),
			zap.Duration("after", restartDelay))
		for started := false; !started; {
			if poll(time.Now().Add(restartDelay), wake) == 0 {
				return
			}
			err := l.start()
			if started = err == nil; !started {
				log.Error("cannot start the log command; its lines wait", zap.Error(err))
			}
		}
	}
}

// close lets the command read the last lines. Nothing may write to stdout or stderr afterwards.
func (l *sessionLog) close() {
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
		unix.Dup3(null, 1, 0) //nolint:errcheck // null is open
		unix.Dup3(null, 2, 0) //nolint:errcheck // likewise
		unix.Close(null)
	}
	l.from.Close()
	poll(time.Now().Add(drainTimeout), int(l.pidfd.Load()))
}
