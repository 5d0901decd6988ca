package tests

import (
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/supervisor"
	core "example.org/supervisord/supervisor/program"
)

var updateGolden = flag.Bool("update-status", false, "write what `status` prints into testdata")

// answersStatus is a supervisord that has only a status, which begins at the time of each request. It returns its
// socket.
func answersStatus(t *testing.T, m *lab.Supervisord, status func(now time.Time) *supervisor.Status) string {
	t.Helper()
	path := m.Path("control.sock")
	l, err := net.Listen("unix", path)
	lab.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(status(time.Now()))
	})}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return path
}

// twenty is the status of twenty programs of eight workers, of which some need somebody.
func twenty(now time.Time) *supervisor.Status {
	ago := func(d time.Duration) time.Time { return now.Add(-d - 20*time.Second) } // a busy machine shows it later
	st := &supervisor.Status{Version: "1.2.3", PID: 27052, Started: ago(26 * time.Hour)}
	names := strings.Fields("accounts admin api auth billing-and-invoicing-service cache-warmer catalog checkout feed " +
		"images " +
		"mail metrics orders payments push search sessions shop web webhooks")
	for i, name := range names {
		p := supervisor.ProgramStatus{Name: name, State: core.Up, Newest: i + 1}
		serving := supervisor.GenerationStatus{Number: i + 1, Role: core.RoleServing, Slots: 8}
		for slot := range 8 {
			cpu, memory, conns := float64(i*slot)/7, int64(20+i*slot)<<20, i*slot*5
			serving.Workers = append(serving.Workers, supervisor.WorkerStatus{
				Standing: core.Standing{Number: slot + 1, Slot: slot, PID: 1000*i + slot, State: core.Ready},
				Usage:    supervisor.Usage{CPUPercent: &cpu, Memory: &memory, Connections: &conns}})
		}
		p.Generations = []supervisor.GenerationStatus{serving}
		p.Reloads = []core.ReloadRecord{{Generation: i + 1, Outcome: core.Serves,
			Instants: core.Instants{Decided: ago(time.Duration(1+i*i*i) * time.Minute)},
			AskedBy:  "deploy (uid 1001, pid 9120)"}}
		st.Programs = append(st.Programs, p)
	}
	at := func(name string) *supervisor.ProgramStatus { return st.Program(name) }
	failed := core.ReloadRecord{Generation: 30, Outcome: core.WorkerDown,
		Instants: core.Instants{Decided: ago(3 * time.Minute)},
		AskedBy:  "root (uid 0, pid 4711, login alice)"}
	at("shop").Reloads = append(at("shop").Reloads, failed)
	failed.Outcome, failed.AskedBy = core.NotReady, ""
	retry := now.Add(time.Minute)
	*at("mail") = supervisor.ProgramStatus{Name: "mail", State: core.Waiting, Failures: 4, RetryAt: retry,
		History: supervisor.History{Reloads: []core.ReloadRecord{failed}}}
	canary := at("checkout").Generations[0]
	canary.Number, canary.Role, canary.Held, canary.Share = 9, core.RoleTrial, true, 1000
	at("checkout").Generations = append([]supervisor.GenerationStatus{canary}, at("checkout").Generations...)
	at("checkout").State = core.Reloading
	at("orders").State = core.Reloading
	at("orders").Generations = append(at("orders").Generations,
		supervisor.GenerationStatus{Number: 14, Role: core.RoleTrial, Slots: 8})
	at("feed").Generations[0].Workers = at("feed").Generations[0].Workers[:5]
	at("feed").RetryAt = retry
	at("images").Reloads[0].RolledBack, at("images").Reloads[0].RolledBackBy = ago(
		2*time.Hour), "signal HUP from bash (pid 1, uid 0)"
	*at("push") = supervisor.ProgramStatus{Name: "push", State: core.Down,
		History: supervisor.History{Stop: &core.StopRecord{AskedBy: "alice (uid 1000, pid 1)"}}}
	at("search").Generations[0].Workers[3].Connections = nil
	return st
}

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

func TestStatusOfTwentyProgramsFitsATerminal(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	socket := answersStatus(t, m, twenty)
	out := strings.ReplaceAll(onTerminal(t, m, 0, []string{"NO_COLOR=1"}, "status", "--socket", socket), "\r\n", "\n")
	const golden = "testdata/status-twenty.txt"
	if *updateGolden {
		lab.Must(t, os.WriteFile(golden, []byte(out), 0o644))
	}
	if want := lab.Text(golden); out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if n := strings.Count(out, "\n"); n > 23 { // and the prompt
		t.Errorf("it has %d lines", n)
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	colored := strings.ReplaceAll(onTerminal(t, m, 0, nil, "status", "--socket", socket), "\r\n", "\n")
	for _, want := range []string{"mail              " + red + "failing\x1b[0m  ", yellow + "canary held\x1b[0m",
		green + "up\x1b[0m"} {
		if !strings.Contains(colored, want) {
			t.Errorf("in colors there is no %q in %q", want, colored)
		}
	}
	if plain := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colored, ""); plain != out {
		t.Errorf("the colors change more than colors:\n%s", plain)
	}
	if piped, code := m.Run("status", "--socket", socket); code != 0 || strings.Contains(piped, "\x1b") ||
		!strings.Contains(piped, "billing-and-invoicing-service  up ") {
		t.Errorf("in a pipe: exit code %d: %s", code, piped)
	}
	for _, args := range [][]string{{"status", "-v"}, {"status", "web"}} {
		if detail, _ := m.Run(append(args, "--socket", socket)...); !strings.Contains(detail, "GENERATION  ROLE") {
			t.Errorf("%q: %s", args, detail)
		}
	}
}
