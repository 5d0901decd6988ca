package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Ctl runs a subcommand, such as "reload", against supervisord, and returns its output and its exit code.
func (m *Supervisord) Ctl(args ...string) (out string, code int) {
	m.T.Helper()
	return m.Run(append(args, "-c", m.Path("config.toml"))...)
}

// CtlOK is Ctl that must exit with 0.
func (m *Supervisord) CtlOK(args ...string) string {
	m.T.Helper()
	out, code := m.Ctl(args...)
	if code != 0 {
		m.T.Fatalf("supervisord %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// CtlFails is Ctl that must exit with code and write these words.
func (m *Supervisord) CtlFails(code int, words []string, args ...string) {
	m.T.Helper()
	out, got := m.Ctl(args...)
	if got != code {
		m.T.Errorf("supervisord %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			m.T.Errorf("supervisord %s: there is no %q in: %s", strings.Join(args, " "), w, out)
		}
	}
}

// Running is a subcommand that runs.
type Running struct {
	t    testing.TB
	Cmd  *exec.Cmd
	out  *strings.Builder
	done chan struct{}
}

// CtlStart starts a subcommand that the test waits for later.
func (m *Supervisord) CtlStart(args ...string) *Running {
	m.T.Helper()
	a := &Running{m.T, exec.Command(Built.Supervisord, append(args, "-c", m.Path("config.toml"))...), &strings.Builder{}, make(chan struct{})}
	a.Cmd.Env = []string{"GORACE=atexit_sleep_ms=0"} // without the mark: it is no part of what the supervisord leaves
	a.Cmd.Dir, a.Cmd.Stdout, a.Cmd.Stderr = m.Dir, a.out, a.out
	Must(m.T, a.Cmd.Start())
	go func() { a.Cmd.Wait(); close(a.done) }()
	m.T.Cleanup(func() { a.Cmd.Process.Kill(); <-a.done })
	return a
}

// Ends waits for the end of the command, which must exit with code, and returns its output.
func (a *Running) Ends(code int) string {
	a.t.Helper()
	select {
	case <-a.done:
	case <-time.After(Patience):
		a.t.Fatalf("%v has not ended", a.Cmd.Args)
	}
	if got := a.Cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("%v: exit code %d, want %d: %s", a.Cmd.Args[1:], got, code, a.out)
	}
	return a.out.String()
}

// Status is a part of what `supervisord status --json` prints.
type Status struct {
	PID      int
	Programs []struct {
		Name, State string
		Generations []struct {
			Role    string
			Workers []struct {
				PID, Processes, Connections int
				Memory                      int64
				State                       string
				ConnectionsError            string `json:"connections_error"`
			}
		}
		Listeners []struct {
			Address string
			Queue   struct{ Waiting, Limit int }
		}
	}
}

// Status asks for the status.
func (m *Supervisord) Status() (s Status) {
	m.T.Helper()
	Must(m.T, json.Unmarshal([]byte(m.CtlOK("status", "--json")), &s))
	return s
}

// Request sends a request over the control socket, on a connection of its own. Code 0 is a failure, with its text.
func (m *Supervisord) Request(method, path, body string) (code int, text string) {
	c, err := net.Dial("unix", m.Path("run/control.sock"))
	if err != nil {
		return 0, err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(Patience))
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(all)
}
