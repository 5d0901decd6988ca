package lab

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
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

// CtlFails is Ctl that must exit with this code and write these words.
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

// Running is a subcommand in the background.
type Running struct {
	t    testing.TB
	Cmd  *exec.Cmd
	out  *printed
	done chan struct{}
}

// printed is what a command has written so far.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *printed) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *printed) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// CtlStart starts a subcommand that the test waits for later.
func (m *Supervisord) CtlStart(args ...string) *Running {
	m.T.Helper()
	a := &Running{m.T, exec.Command(ProgramFor(args), append(args, "-c", m.Path("config.toml"))...), &printed{},
		make(chan struct{})}
	a.Cmd.Env = []string{"GORACE=atexit_sleep_ms=0"} // without the mark: it does not belong to what supervisord leaves
	a.Cmd.Dir, a.Cmd.Stdout, a.Cmd.Stderr = m.Dir, a.out, a.out
	Must(m.T, a.Cmd.Start())
	go func() { a.Cmd.Wait(); close(a.done) }()
	m.T.Cleanup(func() { a.Cmd.Process.Kill(); <-a.done })
	return a
}

// Output is what the command has written so far.
func (a *Running) Output() string { return a.out.String() }

// Says waits until the command has written this.
func (a *Running) Says(text string) {
	a.t.Helper()
	for end := time.Now().Add(Patience); !strings.Contains(a.out.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatalf("%v has not written %q after %v: %s", a.Cmd.Args, text, Patience, a.out)
		}
	}
}

// Ends waits for the end of the command, which must exit with code, and returns its output.
func (a *Running) Ends(code int) string {
	a.t.Helper()
	select {
	case <-a.done:
	case <-time.After(Patience):
		a.t.Fatalf("%v has not ended after %v", a.Cmd.Args, Patience)
	}
	if got := a.Cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("%v: exit code %d, want %d: %s", a.Cmd.Args[1:], got, code, a.out)
	}
	return a.out.String()
}

// statusAnswer is a part of what `supervisord status --json` prints.
type statusAnswer struct {
	PID      int
	Programs []struct {
		Name, State string
		Due         *struct{} // a reload waits
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
			Address    string
			FDs        []int
			Queue      struct{ Waiting, Limit int }
			PerSlot    string `json:"per_slot"`
			PerSlotWhy string `json:"per_slot_why"`
		}
	}
}

// Status asks for the status.
func (m *Supervisord) Status() (s statusAnswer) {
	m.T.Helper()
	Must(m.T, json.Unmarshal([]byte(m.CtlOK("status", "--json")), &s))
	return s
}

// Reloaded waits until the log rests, and no reload waits or is on trial.
func (m *Supervisord) Reloaded() {
	m.T.Helper()
	m.Settle()
	m.Until("every reload has ended", func() bool {
		p := m.Status().Programs[0]
		return p.Due == nil && p.Generations[0].Role == "serving"
	})
}

// Request sends a request over the control socket, on a connection of its own. If it fails, code is 0 and text the
// error.
func (m *Supervisord) Request(method, path, body string) (code int, text string) {
	r, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	c := &Connection{Address: "unix:" + m.Path("run/control.sock")}
	if err := c.Connect(); err != nil {
		return 0, err.Error()
	}
	defer c.Close()
	c.Conn.SetDeadline(time.Now().Add(Patience))
	var all strings.Builder
	answer, err := load.Exchange(c.Conn, r, true, &all)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, all.String()
}
