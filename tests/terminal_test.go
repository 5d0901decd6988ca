package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// onTerminal runs a command on a terminal, with more variables in its environment, and returns what it writes there.
func onTerminal(t *testing.T, m *lab.Supervisord, code int, environ []string, args ...string) string {
	t.Helper()
	argv := append(append(lab.TerminalCommand(t), lab.Built.Supervisord), args...)
	cmd := exec.Command(argv[0], append(argv[1:], "-c", m.Path("config.toml"))...)
	cmd.Env, cmd.Dir = append(m.Environ(), environ...), m.Dir
	out, _ := cmd.CombinedOutput() // the exit status says more
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%q: exit status %d, want %d: %q", args, got, code, out)
	}
	return string(out)
}

const (
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
)

func TestSlowReloadOnATerminalSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("boot=2s", "term=2s"))
	m.Serves(1)
	out := onTerminal(t, m, 0, nil, "reload", "--drained")
	for _, want := range []string{
		"web: worker 2 of generation 2 is not ready yet, ", "s of ", "; generation 1 serve", // the width cuts the rest
		"web: generation 1 stops: 1 worker left, next signal in ",
		"\x1b[1A\r\x1b[J", // the line changes, and goes in the end
		"web: generation 2" + green + " serves\x1b[0m after ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in %q", want, out)
		}
	}
	if result := out[strings.LastIndex(out, "\x1b[J")+len("\x1b[J"):]; strings.Count(result, "\n") != 1 ||
		!strings.HasPrefix(result, "web: generation 2") {
		t.Errorf("what is left is %q", result)
	}
	out = onTerminal(t, m, 0, nil, "stop", "web")
	if !strings.Contains(out, "web: generation 2 stops: 1 worker left, next signal in ") {
		t.Errorf("there is no progress of stop in %q", out)
	}
}

func TestColorsAreForTerminalsThatWantThem(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	const warned = "[program.other]\ncommand = [\"no-such-command\"]\n"
	m.Write(lab.WebWith("exit=3"))
	if out := onTerminal(t, m, 11, nil, "reload"); !strings.Contains(out,
		"web: generation 2"+red+" failed\x1b[0m: worker") {
		t.Errorf("a failed reload: %q", out)
	}
	m.Write(lab.Web + warned)
	if out := onTerminal(t, m, 0, nil, "check"); !strings.Contains(out,
		": "+yellow+"warning\x1b[0m: program.other.command: ") || !strings.HasSuffix(out, green+"ok\x1b[0m\r\n") {
		t.Errorf("check: %q", out)
	}
	m.Write(lab.Web + "typo = 1\n")
	if out := onTerminal(t, m, 78, nil, "check"); !strings.Contains(out, ": "+red+"unknown key\x1b[0m") {
		t.Errorf("check of an error: %q", out)
	}
	m.Write(lab.Web)
	for _, environ := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if out := onTerminal(t, m, 0, []string{environ}, "reload"); strings.Contains(out, "\x1b[3") {
			t.Errorf("with %s: %q", environ, out)
		}
		if out := onTerminal(t, m, 0, []string{environ}, "check"); out != "ok\r\n" {
			t.Errorf("with %s: %q", environ, out)
		}
	}
	for _, args := range [][]string{{"reload"}, {"check"}, {"status"}} {
		if out := m.CtlOK(args...); strings.Contains(out, "\x1b") {
			t.Errorf("%q in a pipe: %q", args, out)
		}
	}
}

// pty is a terminal of a test's own. What a process writes there comes line by line or not, so it is read as it comes.
type pty struct {
	t      *testing.T
	master *os.File
	seen   string // and not yet awaited
}

// newPTY makes a terminal of this size, and starts a command in its foreground.
func newPTY(t *testing.T, rows, columns uint16, m *lab.Supervisord, argv ...string) (*pty, *exec.Cmd) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	lab.Must(t, err)
	p := &pty{t: t, master: master}
	number := 0
	p.control(func(fd int) error {
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
			unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	})
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	lab.Must(t, err)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = m.Environ(), m.Dir, end, end, end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	lab.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = errors.Join(master.Close(), end.Close())
	})
	return p, cmd
}

func (p *pty) control(do func(fd int) error) {
	p.t.Helper()
	raw, err := p.master.SyscallConn()
	lab.Must(p.t, err)
	lab.Must(p.t, errors.Join(raw.Control(func(fd uintptr) { err = do(int(fd)) }), err))
}

func (p *pty) resize(rows, columns uint16) {
	p.t.Helper()
	p.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// awaits reads until want comes, and returns what was before it.
func (p *pty) awaits(want string) string {
	p.t.Helper()
	lab.Must(p.t, p.master.SetReadDeadline(time.Now().Add(lab.Patience)))
	for {
		if before, after, found := strings.Cut(p.seen, want); found {
			p.seen = after
			return before
		}
		some := make([]byte, 4096)
		n, err := p.master.Read(some)
		if p.seen += string(some[:n]); err != nil {
			p.t.Fatalf("there is no %q in %q: %v", want, p.seen, err)
		}
	}
}

const drawn = "\x1b[H\x1b[J"

func TestWatchedStatusFitsTheWindowAndEndsWithCtrlC(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	const rows = 5
	p, cmd := newPTY(t, rows, 100, m, lab.Built.Supervisord, "status", "--watch", "-c", m.Path("config.toml"))
	p.awaits(drawn)
	if text := p.awaits(" more lines\r\n"); strings.Count(text, "\n") != rows-2 { // and the last; below is the cursor
		t.Errorf("of %d rows it writes %q", rows, text)
	}
	p.resize(50, 100)
	p.awaits(drawn)
	p.awaits("CONNS")
	_, err := p.master.WriteString("\x03")
	lab.Must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}
