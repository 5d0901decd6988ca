package kit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/process"
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
	text := fmt.Sprintf("\n[program.%s]\ncommand = [%s]\nworkers = %s\nready = { timeout = \"3m\", %s }\n%s\n", name, strings.Join(words, ", "),
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

// Subject is a supervisord that runs to be measured.
type Subject struct {
	*process.Child
	*process.Follower
	Addresses []string      // of all listeners
	CPU       time.Duration // once it has ended: what it used in its life, without its children
	dir       string
}

// Start starts supervisord with a directory of its own, in memory as /run is.
func Start(binary string, programs ...ProgramTable) (*Subject, error) {
	dir, err := os.MkdirTemp(tmpfs(), "measure")
	if err != nil {
		return nil, err
	}
	s := &Subject{dir: dir}
	text := fmt.Sprintf("[supervisor]\nlog_format = \"json\"\nruntime_dir = %q\n", dir)
	for _, p := range programs {
		for i := range p.Listen {
			if p.Listen[i].Address == "" {
				p.Listen[i].Address = FreeAddress()
			}
			s.Addresses = append(s.Addresses, p.Listen[i].Address)
		}
		text += p.String()
	}
	path := filepath.Join(dir, "supervisord.toml")
	if err = os.WriteFile(path, []byte(text), 0o600); err == nil {
		cmd := exec.Command(binary, "-c", path)
		s.Child, s.Follower, err = process.StartLogged(cmd, func() { s.CPU, _ = clock.CPU(cmd.Process.Pid) })
	}
	if err != nil {
		os.RemoveAll(dir) //nolint:errcheck // the first error counts
		return nil, err
	}
	return s, nil
}

func tmpfs() string {
	if stat, err := os.Stat("/dev/shm"); err == nil && stat.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// Serve is Start that waits until every program serves.
func Serve(ctx context.Context, binary string, programs ...ProgramTable) (*Subject, error) {
	s, err := Start(binary, programs...)
	if err == nil {
		if err = s.Serves(ctx, len(programs)); err != nil {
			s.Abandon()
		}
	}
	return s, err
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
func (s *Subject) PID() int { return s.Cmd.Process.Pid }

// Control returns a client of its control socket.
func (s *Subject) Control() *control.Client {
	return control.NewClient(filepath.Join(s.dir, "control.sock"))
}

// HUP reloads.
func (s *Subject) HUP() error { return s.Cmd.Process.Signal(unix.SIGHUP) }

// Redeploy is a reload, seen from outside: when HUP was sent and when the log said that the new generation serves, by Monotonic.
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

// Stop stops supervisord. After patience it is told to stop at once. A second call does nothing.
func (s *Subject) Stop(patience time.Duration) {
	s.Child.Stop(patience)
	os.RemoveAll(s.dir) //nolint:errcheck // it is in memory
}

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
