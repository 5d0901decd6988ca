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

	"example.org/supervisord/worker"
)

// master is the supervisord that is reloaded: a child, or one that runs already. What it does comes from events, until over is
// closed by close. ended is closed when it has ended.
type master struct {
	pid     int
	events  chan event
	ended   chan struct{}
	over    chan struct{}
	seen    *family // nil: its log is read
	running sync.WaitGroup

	process *os.Process
	child   *exec.Cmd // nil: it is not ours

	tailing sync.Mutex
	tail    []string // the last lines of a child's stderr that are no part of a program's life
}

// tailLength is how many lines are kept to explain why a child ended.
const tailLength = 5

func newMaster() *master {
	return &master{events: make(chan event, 1024), ended: make(chan struct{}), over: make(chan struct{})}
}

// startChild starts supervisord. It gets a process group of its own, so that a Ctrl-C for us is none for it.
func startChild(o Options, program string, size int) (*master, error) {
	m := newMaster()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	m.child = exec.Command(o.Command[0], o.Command[1:]...)
	m.child.Stderr = write
	m.child.Env = worker.Inheritable(os.Environ())
	m.child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = m.child.Start()
	write.Close() //nolint:errcheck // the child has it
	if err != nil {
		read.Close() //nolint:errcheck // nothing was read
		return nil, fmt.Errorf("cannot start supervisord: %w", err)
	}
	m.process, m.pid = m.child.Process, m.child.Process.Pid
	loud := o.Config.Supervisor.LogLevel == "debug" || o.Config.Supervisor.LogLevel == "info"
	m.follow(read, program, loud)
	if !loud {
		if m.seen, err = newFamily(m.pid, program, size); err != nil {
			return nil, errors.Join(err, m.end(0))
		}
		m.running.Go(m.watch)
	}
	return m, nil
}

// follow reads a child's stderr and waits for its end. It has ended when its last words were read, too.
func (m *master) follow(read *os.File, program string, loud bool) {
	heard := make(chan struct{})
	m.running.Go(func() {
		defer close(heard)
		readLines(read, func(text string) { m.heard(text, program, loud) })
		read.Close() //nolint:errcheck // it was read to its end
	})
	m.running.Go(func() {
		m.child.Wait()                                  //nolint:errcheck // its ProcessState says how it ended
		read.SetReadDeadline(time.Now().Add(lastWords)) //nolint:errcheck // it may be at its end
		<-heard
		close(m.ended)
	})
}

// lastWords is how long the end of a child's stderr is waited for: whoever was left behind may hold it open.
const lastWords = 500 * time.Millisecond

// heard takes one line of a child's stderr.
func (m *master) heard(text, program string, loud bool) {
	l, ok := parseLine(text)
	if !ok || strings.EqualFold(l.Level, "error") {
		m.tailing.Lock()
		m.tail = append(m.tail, text)
		m.tail = m.tail[max(0, len(m.tail)-tailLength):]
		m.tailing.Unlock()
	}
	if e, tells := l.event(program, time.Now()); ok && tells && loud {
		m.post(e)
	}
}

func (m *master) post(e event) {
	select {
	case m.events <- e:
	case <-m.over:
	}
}

func (m *master) postAll(news []event) {
	for _, e := range news {
		m.post(e)
	}
}

// attach follows a supervisord that runs.
func attach(pid int, program string, size int) (*master, error) {
	caught, err := catches(pid, syscall.SIGHUP)
	if err != nil {
		return nil, fmt.Errorf("there is no process %d: name the one of supervisord with --pid", pid)
	}
	if !caught {
		return nil, fmt.Errorf("process %d would be ended by HUP, so it is no supervisord: name another with --pid", pid)
	}
	m := newMaster()
	m.pid = pid
	if m.process, err = os.FindProcess(pid); err != nil {
		return nil, err
	}
	if m.seen, err = newFamily(pid, program, size); err != nil {
		return nil, err
	}
	first, alive := m.seen.look(time.Now())
	if !alive || len(m.seen.workers) == 0 {
		m.seen.close()
		return nil, fmt.Errorf("process %d: %w %s (or they are another user's): name another with --pid, or run this as the user of supervisord", pid, errNoWorker, program)
	}
	m.running.Go(func() {
		m.postAll(first)
		m.watch()
	})
	return m, nil
}

// watch looks at the workers until the end.
func (m *master) watch() {
	defer m.seen.close()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-m.over:
			return
		case now := <-tick.C:
			news, alive := m.seen.look(now)
			m.postAll(news)
			if !alive {
				if m.child == nil {
					close(m.ended)
				}
				return
			}
		}
	}
}

// hup asks for a reload.
func (m *master) hup() error {
	if err := m.process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("cannot send HUP to process %d: %w", m.pid, err)
	}
	return nil
}

// why tells why a child has ended by itself.
func (m *master) why() string {
	if m.child == nil {
		return fmt.Sprintf("supervisord (PID %d) has ended", m.pid)
	}
	m.tailing.Lock()
	defer m.tailing.Unlock()
	said := ""
	if len(m.tail) > 0 {
		said = "; it said:\n\t" + strings.Join(m.tail, "\n\t")
	}
	return fmt.Sprintf("supervisord has ended: %s%s", m.child.ProcessState, said)
}

// end stops a child: TERM, and after patience TERM again, which means now. It returns when the child has ended and every
// goroutine; a supervisord that is not ours goes on.
func (m *master) end(patience time.Duration) error {
	close(m.over)
	if m.child == nil {
		m.running.Wait()
		return m.process.Release()
	}
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, patience}, {syscall.SIGTERM, 5 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, time.Hour}} {
		m.process.Signal(step.signal) //nolint:errcheck // it has ended
		ctx, cancel := context.WithTimeout(context.Background(), step.wait)
		select {
		case <-m.ended:
		case <-ctx.Done():
		}
		cancel()
		select {
		case <-m.ended:
			m.running.Wait()
			return nil
		default:
		}
	}
	return nil
}
