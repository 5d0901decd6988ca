// Package process starts a supervisord as a child, and follows a supervisord over its control socket. The tests,
// `supervisord prove` and the measuring programs share it; it does not import testing.
package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process that was started here.
type Child struct {
	Cmd   *exec.Cmd
	Ended <-chan struct{} // closed when it has ended and was waited for
	EOF   <-chan struct{} // closed when no process can write to its output any more; its own children may hold it open
}

// Start starts cmd and calls line for each line that it writes to stdout or stderr. dead, unless nil, is called when
// the process has ended and can still be looked up in /proc.
func Start(cmd *exec.Cmd, line func(string), dead func()) (*Child, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close() //nolint:errcheck // the child has its own
	if err != nil {
		read.Close() //nolint:errcheck // nothing was read
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	ended, eof := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(eof)
		defer read.Close()
		ReadLines(read, line)
	}()
	go func() {
		defer close(ended)
		if dead != nil {
			awaitZombie(cmd.Process.Pid)
			dead()
		}
		cmd.Wait() //nolint:errcheck // its ProcessState says how it ended
	}()
	return &Child{cmd, ended, eof}, nil
}

// longestLine bounds a line: the rest of a longer one is dropped.
const longestLine = 4 << 20

// ReadLines calls each for every line until the end of r.
func ReadLines(r io.Reader, each func(string)) {
	in := bufio.NewReader(r)
	var line []byte
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			return
		}
		line = append(line, part[:min(len(part), longestLine-len(line))]...)
		if !more {
			each(string(line))
			line = line[:0]
		}
	}
}

// awaitZombie returns when a child has ended, and leaves it to be waited for.
func awaitZombie(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// Stop asks the child to stop with TERM, after patience with a second TERM, which means now, and finally kills it. It
// returns when the child has ended; a second call does nothing.
func (c *Child) Stop(patience time.Duration) {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, patience}, {syscall.SIGTERM, 5 * time.Second}, {syscall.SIGKILL, time.Hour}} {
		c.Cmd.Process.Signal(step.signal) //nolint:errcheck // it may have ended
		if c.Within(step.wait) {
			return
		}
	}
}

// Within reports whether the child ends within a time.
func (c *Child) Within(d time.Duration) bool { return within(d, c.Ended) }

// Drained reports whether all of its output is read within a time.
func (c *Child) Drained(d time.Duration) bool { return within(d, c.EOF) }

func within(d time.Duration, closed <-chan struct{}) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-closed:
		return true
	case <-late.C:
		return false
	}
}

// Over reports whether the child has ended.
func (c *Child) Over() bool {
	select {
	case <-c.Ended:
		return true
	default:
		return false
	}
}
