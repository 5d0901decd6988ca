package prove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/worker"
)

// supervised is the supervisord that is reloaded: a child, or one that already runs.
type supervised struct {
	pid    int
	client *control.Client
	events *process.Follower
	child  *process.Child // nil: it already ran

	mu   sync.Mutex
	tail []string // the last lines that a child wrote
}

// tailLength is how many lines are kept to explain why a child ended.
const tailLength = 5

// startChild starts supervisord and waits until it answers on its control socket.
func startChild(ctx context.Context, o Plan) (*supervised, error) {
	if st, err := o.Client.Status(ctx, "", false); err == nil {
		return nil, fmt.Errorf("process %d already runs with this configuration: use --pid %d to put the load on it", st.PID, st.PID)
	}
	s := &supervised{client: o.Client}
	c := exec.Command(o.Command[0], o.Command[1:]...)
	c.Env = worker.Inheritable(os.Environ())
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C for prove does not reach it
	var err error
	if s.child, err = process.Start(c, s.heard, nil); err != nil {
		return nil, err
	}
	s.pid = c.Process.Pid
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		<-s.child.Ended
		cancel()
	}()
	if s.events, err = process.Follow(ctx, o.Client); err != nil {
		if s.child.Over() {
			err = errors.New(s.why())
		}
		s.end(2 * time.Second)
		return nil, err
	}
	return s, nil
}

// heard keeps a line that a child wrote.
func (s *supervised) heard(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, line)
	s.tail = s.tail[max(0, len(s.tail)-tailLength):]
}

// attach finds the supervisord that runs.
func attach(ctx context.Context, o Plan, pid int) (*supervised, error) {
	s := &supervised{pid: pid, client: o.Client}
	st, err := o.Client.Status(ctx, "", false)
	if err == nil && st.PID != pid {
		err = fmt.Errorf("the supervisord of this configuration is process %d: use --pid %d, or the configuration file of process %d", st.PID, st.PID, pid)
	}
	if err == nil {
		s.events, err = process.Follow(ctx, o.Client)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot prove process %d: %v", pid, err)
	}
	return s, nil
}

// reloaded is the answer to a reload that was asked for.
type reloaded struct {
	generation int
	err        error
}

// reload asks for a reload, as `supervisord reload` does, and returns the number of the generation that it brings.
func (s *supervised) reload(ctx context.Context, program string) reloaded {
	r := reloaded{}
	r.err = s.client.Reload(ctx, control.ReloadBody{Reason: "prove"}, func(l control.WaitLine) {
		for _, t := range l.Tickets {
			if t.Program == program {
				r.generation = t.Generation
			}
		}
	})
	if r.err == nil && r.generation == 0 {
		r.err = fmt.Errorf("supervisord did not replace the workers of %s: is it stopped?", program)
	}
	return r
}

// gaps counts the interruptions of the events.
func (s *supervised) gaps() int { return s.events.Gaps() }

// why tells why it has ended by itself.
func (s *supervised) why() string {
	if s.child == nil {
		return fmt.Sprintf("process %d: %v", s.pid, s.events.Err())
	}
	late := time.NewTimer(500 * time.Millisecond) // a process that was left behind may hold the output open
	defer late.Stop()
	select {
	case <-s.child.EOF:
	case <-late.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	said := ""
	if len(s.tail) > 0 {
		said = "; it said:\n\t" + strings.Join(s.tail, "\n\t")
	}
	return fmt.Sprintf("supervisord has ended: %s%s", s.child.Cmd.ProcessState, said)
}

// end stops a child, which gets patience to do so. A supervisord that already ran continues.
func (s *supervised) end(patience time.Duration) {
	if s.events != nil {
		s.events.Close()
	}
	if s.child != nil {
		s.child.Stop(patience)
	}
}

// lockedPID returns the PID in a pid file whose owner lives and holds its lock; 0: there is none.
func lockedPID(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read pid_file: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, nil // stale
	}
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("pid_file %s is locked but holds no PID: name the process with --pid", path)
	}
	return pid, nil
}
