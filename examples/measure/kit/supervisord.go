package kit

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/lab/systemd"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// ProgramTable is the table of a program in a configuration.
type ProgramTable struct {
	Name    string // "": web
	Command []string
	Workers string // a number, or "\"auto\""; "": 1
	Ready   string // keys of its table ready; "": method = "notify"
	More    string // more keys, a line each
	Listen  []ListenTable
}

// ListenTable is the table of a listener.
type ListenTable struct {
	Name, Address string // Address "": a free one
	More          string // more keys, a line each
}

// String returns the table as TOML.
func (p ProgramTable) String() string {
	words := make([]string, len(p.Command))
	for i, word := range p.Command {
		words[i] = fmt.Sprintf("%q", word)
	}
	name := or(p.Name, "web")
	text := fmt.Sprintf("\n[program.%s]\ncommand = [%s]\nworkers = %s\nready = { timeout = \"3m\", %s }\n%s\n", name,
		strings.Join(words, ", "),
		or(p.Workers, "1"), or(p.Ready, `method = "notify"`), p.More)
	for _, l := range p.Listen {
		text += fmt.Sprintf("[[program.%s.listen]]\nname = %q\naddress = %q\n%s\n", name, l.Name, l.Address, l.More)
	}
	return text
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Setup is a supervisord to be measured, and where it runs.
type Setup struct {
	Binary string
	Lab    *systemd.Lab // nil: it is a child of this process
	Keys   string       // more keys of the table supervisor, a line each
}

// Subject is a supervisord that runs to be measured.
type Subject struct {
	*process.Follower
	Setup
	Addresses []string // of all listeners
	pid       int
	control   string // path of its control socket
	stop      func(patience time.Duration)
}

// Start starts supervisord.
func (s Setup) Start(programs ...ProgramTable) (*Subject, error) {
	text := "log_format = \"json\"\n" + s.Keys + "\n"
	var addresses []string
	for _, p := range programs {
		for i := range p.Listen {
			if p.Listen[i].Address == "" {
				p.Listen[i].Address = FreeAddress()
			}
			addresses = append(addresses, p.Listen[i].Address)
		}
		text += p.String()
	}
	start := s.startChild
	if s.Lab != nil {
		start = s.startService
	}
	subject, err := start(text)
	if err == nil {
		subject.Setup, subject.Addresses = s, addresses
	}
	return subject, err
}

// startChild starts supervisord with a directory of its own, in memory as /run is.
func (s Setup) startChild(config string) (*Subject, error) {
	dir, err := os.MkdirTemp(tmpfs(), "measure")
	if err != nil {
		return nil, err
	}
	clean := func() { os.RemoveAll(dir) } //nolint:errcheck // it is in memory
	path := filepath.Join(dir, "supervisord.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "[supervisor]\nruntime_dir = %q\n%s", dir, config), 0o600); err != nil {
		clean()
		return nil, err
	}
	f, line, end := process.FollowLog()
	c, err := process.Start(exec.Command(s.Binary, "-c", path), line, nil)
	if err != nil {
		clean()
		return nil, err
	}
	go func() { <-c.EOF; end() }()
	return &Subject{Follower: f, pid: c.Cmd.Process.Pid, control: filepath.Join(dir, "control.sock"),
		stop: func(patience time.Duration) {
			c.Stop(patience)
			clean()
		}}, nil
}

func tmpfs() string {
	if stat, err := os.Stat("/dev/shm"); err == nil && stat.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// Serve is Start that waits until every program serves.
func (s Setup) Serve(ctx context.Context, programs ...ProgramTable) (*Subject, error) {
	subject, err := s.Start(programs...)
	if err == nil {
		if err = subject.Serves(ctx, len(programs)); err != nil {
			subject.Abandon()
		}
	}
	return subject, err
}

// Serves waits until so many generations have begun to serve since the start.
func (s *Subject) Serves(ctx context.Context, generations int) error {
	_, err := s.Await(ctx, 0, func(u *supervisor.Update) bool {
		if u.Kind == program.GenerationServes {
			generations--
		}
		return generations == 0
	})
	return err
}

// Await waits for the first update from number n on for which is returns true. A generation that fails ends the wait.
func (s *Subject) Await(ctx context.Context, n int, is func(*supervisor.Update) bool) (*supervisor.Update, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("waited for %s in vain", Patience))
	defer cancel()
	u, err := s.Follower.Await(ctx, n, func(u *supervisor.Update) bool { return u.Kind == program.TrialFailed || is(u) })
	if err == nil && u.Kind == program.TrialFailed {
		return nil, fmt.Errorf("generation %d of %s failed: %s: %s", u.Generation, u.Program, u.Step, u.Reason)
	}
	return u, err
}

// PID returns the PID of supervisord.
func (s *Subject) PID() int { return s.pid }

// Control returns a client of its control socket.
func (s *Subject) Control() *control.Client {
	return control.NewClient(s.control)
}

// HUP reloads.
func (s *Subject) HUP() error { return unix.Kill(s.pid, unix.SIGHUP) }

// Redeploy is a reload, seen from outside: when HUP was sent and when the log said that the new generation serves, by
// Monotonic.
type Redeploy struct {
	Generation  int
	HUP, Served time.Duration
}

// Redeploy reloads and waits until the first new generation serves.
func (s *Subject) Redeploy(ctx context.Context) (r Redeploy, err error) {
	n := s.Len()
	r.HUP = clock.Monotonic()
	if err := s.HUP(); err != nil {
		return r, err
	}
	u, err := s.Await(ctx, n, func(u *supervisor.Update) bool { return u.Kind == program.GenerationServes })
	if err != nil {
		return r, err
	}
	r.Generation, r.Served = u.Generation, clock.Monotonic()-time.Since(u.Time)
	return r, nil
}

// Replace is Redeploy that waits until the old generation is gone.
func (s *Subject) Replace(ctx context.Context) (Redeploy, error) {
	r, err := s.Redeploy(ctx)
	if err == nil {
		_, err = s.Await(ctx, 0, func(u *supervisor.Update) bool {
			return u.Kind == program.GenerationGone && u.Generation == r.Generation-1
		})
	}
	return r, err
}

// Settle waits until only one generation of the only program is left.
func (s *Subject) Settle(ctx context.Context) error {
	_, err := s.Await(ctx, 0, func(*supervisor.Update) bool {
		return s.Count(program.GenerationGone) >= s.Count(program.GenerationServes)-1
	})
	return err
}

// Dial returns a dialer for one of its addresses.
func (s *Subject) Dial(address string) func(context.Context) (net.Conn, error) {
	if s.Lab != nil {
		return s.Lab.Dial(address)
	}
	return load.Dial(address)
}

// Stop stops supervisord. After patience it is told to stop at once; a service is killed. A second call does nothing.
func (s *Subject) Stop(patience time.Duration) { s.stop(patience) }

// Abandon stops a supervisord after its measurement, without waiting long for clients that keep idle connections.
func (s *Subject) Abandon() { s.Stop(shortPatience) }

const shortPatience = 5 * time.Second

// Alone starts something else than supervisord and waits until it accepts connections.
func Alone(ctx context.Context, address string, cmd *exec.Cmd) (*process.Child, error) {
	c, err := process.Start(cmd, func(string) {}, nil)
	if err != nil {
		return nil, err
	}
	if err := untilAccepts(ctx, address); err != nil {
		c.Stop(shortPatience)
		return nil, err
	}
	return c, nil
}
