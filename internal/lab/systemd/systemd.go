// Package systemd boots a real systemd of a Debian release in namespaces, with the script tests/systemd/lab. The tests
// and the measuring programs share it; it does not import testing.
package systemd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/netns"
)

// Lab is a booted systemd. It ends with Close, or with this process: its keeper reads from a pipe that this process
// holds.
type Lab struct {
	Suite      string
	PID        int      // of its systemd, seen from outside
	network    *os.File // its network namespace
	keeper     *exec.Cmd
	hold       io.Closer
	out        io.Reader
	complaints bytes.Buffer
}

// cannotRun is the exit status with which the script says that this machine cannot boot a systemd.
const cannotRun = 77

// UnableError says why this machine cannot boot a systemd.
type UnableError string

func (e UnableError) Error() string { return string(e) }

// Boot boots a suite ("bookworm") with the script lab at this path. The first boot unpacks the suite.
func Boot(script, suite string) (*Lab, error) {
	l := &Lab{Suite: suite, keeper: exec.Command(script, "run", suite)}
	l.keeper.Stderr = &l.complaints
	hold, err := l.keeper.StdinPipe()
	if err != nil {
		return nil, err
	}
	l.hold = hold
	if l.out, err = l.keeper.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := l.keeper.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(l.out).ReadString('\n')
	if err == nil {
		l.PID, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err == nil {
		l.network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", l.PID))
	}
	if err == nil {
		return l, nil
	}
	ended := l.Close()
	if exit, ok := errors.AsType[*exec.ExitError](ended); ok && exit.ExitCode() == cannotRun {
		lines := strings.Split(strings.TrimSpace(l.complaints.String()), "\n")
		return nil, UnableError(lines[len(lines)-1])
	}
	return nil, errors.Join(fmt.Errorf("%s does not boot: %w", suite, err), ended)
}

// Close shuts the lab down and waits for its end.
func (l *Lab) Close() error {
	l.network.Close()          //nolint:errcheck // nothing is written to it
	l.hold.Close()             //nolint:errcheck // the keeper may have ended
	io.Copy(io.Discard, l.out) //nolint:errcheck // until its end
	if err := l.keeper.Wait(); err != nil {
		return fmt.Errorf("the lab did not shut down cleanly: %w\n%s", err, l.complaints.String())
	}
	return nil
}

// Command prepares a command to run in the lab, as root with a plain environment. It is killed at the end of ctx.
func (l *Lab) Command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(l.PID), "-a", "--"}, args...)...)
	command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=dumb",
		"LC_ALL=C.UTF-8"}
	command.WaitDelay = time.Second
	return command
}

// Try runs a command in the lab and returns its output on both streams, without the last newline, and its exit status.
func (l *Lab) Try(ctx context.Context, args ...string) (out string, code int, err error) {
	command := l.Command(ctx, args...)
	raw, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return "", -1, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimRight(string(raw), "\n"), command.ProcessState.ExitCode(), nil
}

// Path returns the path of a file of the lab from outside. It works for unix sockets too.
func (l *Lab) Path(inside string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", l.PID), inside)
}

// Write writes a file in the lab and creates its directories.
func (l *Lab) Write(inside string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(l.Path(inside)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(l.Path(inside), content, mode)
}

// Copy copies a file from outside into the lab, with its mode. It replaces the old file instead of overwriting it,
// which works for a running program too.
func (l *Lab) Copy(outside, inside string) error {
	from, err := os.Stat(outside)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(outside)
	if err == nil {
		err = l.Write(inside+".new", raw, from.Mode().Perm())
	}
	if err != nil {
		return err
	}
	return os.Rename(l.Path(inside+".new"), l.Path(inside))
}

// Dial returns a dialer for a numeric TCP address of the lab.
func (l *Lab) Dial(address string) func(context.Context) (net.Conn, error) {
	return netns.Dial(l.network, address)
}
