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

	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Program is one program of a configuration.
type Program struct {
	Name    string
	Command []string
	Workers string // a number, or "\"auto\""; "": 1
	Ready   string // keys of its table ready; "": method = "notify"
	More    string // more keys, a line each
	Listen  []Listen
}

// Listen is one listener of a Program.
type Listen struct {
	Name, Address string
	More          string // more keys, a line each
}

// String returns the table of the configuration.
func (p Program) String() string {
	var t strings.Builder
	words := make([]string, len(p.Command))
	for i, word := range p.Command {
		words[i] = fmt.Sprintf("%q", word)
	}
	fmt.Fprintf(&t, "[program.%s]\ncommand = [%s]\nworkers = %s\nready = { timeout = \"3m\", %s }\n%s\n", p.Name, strings.Join(words, ", "),
		or(p.Workers, "1"), or(p.Ready, `method = "notify"`), p.More)
	for _, l := range p.Listen {
		fmt.Fprintf(&t, "[[program.%s.listen]]\nname = %q\naddress = %q\n%s\n", p.Name, l.Name, l.Address, l.More)
	}
	return t.String()
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Supervisord is a supervisord that runs to be measured.
type Supervisord struct {
	*process.Child
	*process.Follower
	CPU time.Duration // once it has ended: what it used in its life, without its children
	dir string
}

// Start starts supervisord with a directory of its own, in memory as /run is.
func Start(binary string, programs ...Program) (_ *Supervisord, err error) {
	s := &Supervisord{}
	if s.dir, err = os.MkdirTemp(tmpfs(), "measure"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop(0)
		}
	}()
	text := fmt.Sprintf("[supervisor]\nlog_format = \"json\"\nruntime_dir = %q\n", s.dir)
	for _, p := range programs {
		text += "\n" + p.String()
	}
	path := filepath.Join(s.dir, "supervisord.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "-c", path)
	s.Child, s.Follower, err = process.StartLogged(cmd, func() { s.CPU, _ = CPU(cmd.Process.Pid) })
	return s, err
}

func tmpfs() string {
	if stat, err := os.Stat("/dev/shm"); err == nil && stat.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// PID returns the PID of supervisord.
func (s *Supervisord) PID() int { return s.Cmd.Process.Pid }

// HUP reloads.
func (s *Supervisord) HUP() error { return s.Cmd.Process.Signal(unix.SIGHUP) }

// Serves waits until a generation serves: of any program, or of the only one.
func (s *Supervisord) Serves(ctx context.Context, generation int) (*supervisor.Update, error) {
	return s.Await(ctx, 0, func(u *supervisor.Update) bool {
		return u.Kind == program.GenerationServes && u.Generation == generation
	})
}

// Await waits for the first update from number n on for which is returns true. A generation that fails ends the wait, too.
func (s *Supervisord) Await(ctx context.Context, n int, is func(*supervisor.Update) bool) (*supervisor.Update, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("still waiting after %s", Patience))
	defer cancel()
	u, err := s.Follower.Await(ctx, n, func(u *supervisor.Update) bool { return u.Kind == program.TrialFailed || is(u) })
	if err == nil && u.Kind == program.TrialFailed {
		return nil, fmt.Errorf("generation %d of %s failed: %s: %s", u.Generation, u.Program, u.Step, u.Reason)
	}
	return u, err
}

// Stop stops supervisord; after patience it is told to stop at once. A second call does nothing.
func (s *Supervisord) Stop(patience time.Duration) {
	if s.Child != nil {
		s.Child.Stop(patience)
	}
	os.RemoveAll(s.dir) //nolint:errcheck // the system empties it
}
