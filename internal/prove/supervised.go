package prove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

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

// find returns the supervisord of the plan: the one with --pid; the one that runs with this configuration, if it has a
// pid_file; or a new child.
func find(ctx context.Context, o Plan) (*supervised, error) {
	st, err := o.Client.Status(ctx, "", false)
	switch {
	case o.PID != 0 && err != nil:
		return nil, fmt.Errorf("cannot prove process %d: %v", o.PID, err)
	case o.PID != 0 && st.PID != o.PID:
		return nil, fmt.Errorf("cannot prove process %d: the supervisord of this configuration is process %d", o.PID, st.PID)
	case err == nil && o.PID == 0 && o.Config.Supervisor.PIDFile == "":
		return nil, fmt.Errorf("process %d already runs with this configuration: use --pid %d to put the load on it", st.PID,
			st.PID)
	case err != nil:
		return startChild(ctx, o)
	}
	s := &supervised{pid: st.PID, client: o.Client}
	s.events, err = process.Follow(ctx, o.Client)
	return s, err
}

// Start starts supervisord for more than one proof: each Run gets its PID. The caller stops it.
func Start(ctx context.Context, command []string, c *control.Client) (*process.Child, error) {
	s, err := startChild(ctx, Plan{Command: command, Client: c})
	if err != nil {
		return nil, err
	}
	s.events.Close()
	return s.child, nil
}

// startChild starts supervisord and waits until it answers on its control socket.
func startChild(ctx context.Context, o Plan) (*supervised, error) {
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

// heard keeps a line that a child, or a worker with its stderr, wrote. What the log reports of a program, prove knows.
func (s *supervised) heard(line string) {
	if strings.HasPrefix(line, `{"level":"info"`) ||
		strings.HasPrefix(line, `{"level":"`) && strings.Contains(line, `"program":"`) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, line)
	s.tail = s.tail[max(0, len(s.tail)-tailLength):]
}

// reloaded is the answer to a reload that was asked for.
type reloaded struct {
	generation int
	err        error
}

// reload asks for a reload, as `supervisord reload` does, and returns the number of the generation that it brings.
func (s *supervised) reload(ctx context.Context, program string) reloaded {
	tickets, err := s.client.Ask(ctx, control.OfReload(control.ReloadBody{Programs: []string{program}, Reason: "prove"}))
	r := reloaded{err: err}
	for _, t := range tickets {
		if t.Program == program {
			r.generation = t.Generation
		}
	}
	if r.err == nil && r.generation == 0 {
		r.err = fmt.Errorf("supervisord did not replace the workers of %s: is it stopped?", program)
	}
	return r
}

// why says why it has ended by itself.
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
	return fmt.Sprintf("supervisord has ended: %s%s", s.child.Cmd.ProcessState, s.said())
}

// said is the last lines that a child and its workers wrote, which follow a text; "": none.
func (s *supervised) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tail) == 0 {
		return ""
	}
	return "; it said:\n\t" + strings.Join(s.tail, "\n\t")
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
