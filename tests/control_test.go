package tests

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

func TestEventsAreOneObjectALine(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	cmd := exec.Command(lab.Built.Supervisord, "events", "--json", "-c", m.Path("config.toml"))
	cmd.Env = m.Environ()
	out, err := cmd.StdoutPipe()
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := json.NewDecoder(out)
	seen := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() { // again, if supervisord had not read the client's request yet
		for {
			select {
			case <-seen:
				return
			default:
				m.Ctl("reload")
			}
		}
	})
	defer reloads.Wait()
	defer close(seen)
	for {
		var u struct {
			Time    time.Time
			Program string
			ID      string
		}
		lab.Must(t, lines.Decode(&u))
		if u.Program != "web" || u.Time.IsZero() {
			t.Errorf("an event is %+v", u)
		}
		if u.ID == "generation_serves" {
			break
		}
	}
	lab.Must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C counts as a failure: %v", err)
	}
}

func TestStatusAgreesWithTheKernel(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.WebWith("fork"), "[[", "workers = 2\n[[", 1))
	m.Serves(1)
	var conns []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", m.Address())
		lab.Must(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	m.Until("five connections are seen", func() bool {
		time.Sleep(200 * time.Millisecond) // a measurement is cached for a second
		n := 0
		for _, w := range m.Status().Programs[0].Generations[0].Workers {
			n += w.Connections
		}
		return n == len(conns)
	})
	s := m.Status()
	p := s.Programs[0]
	if s.PID != m.PID() || p.Name != "web" || p.State != "up" || p.Listeners[0].Address != m.Address() ||
		p.Generations[0].Role != "serving" {
		t.Errorf("the status is %+v", s)
	}
	for _, w := range p.Generations[0].Workers {
		resident := 0
		for _, pid := range append(proc.Children(w.PID), w.PID) {
			kb := 0
			fmt.Sscan(lab.ProcStatus(pid)["VmRSS"], &kb)
			resident += kb << 10
		}
		if w.Processes != 2 || w.State != "ready" || float64(w.Memory) < 0.7*float64(resident) ||
			float64(w.Memory) > 1.3*float64(resident) {
			t.Errorf("a worker is %+v; /proc says %d bytes", w, resident)
		}
		if n, err := ssCount(p.Listeners[0].Address, w.PID); err == nil && n != w.Connections {
			t.Errorf("worker %d has %d connections, ss says %d", w.PID, w.Connections, n)
		}
	}
}

// ssCount returns the number of connections of a process that ss(8) reports.
func ssCount(address string, pid int) (int, error) {
	ss, err := exec.LookPath("ss")
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(ss, "-Htnp", "state", "established", "src", address).Output()
	return strings.Count(string(out), fmt.Sprintf("pid=%d,", pid)), err
}

func output(out string, _ int) string { return out }

// commands returns the commands that --help lists.
func commands(m *lab.Supervisord) []string {
	m.T.Helper()
	out, _ := m.Run("--help")
	_, list, _ := strings.Cut(out, "\nRun:\n")
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^  (\w[\w-]*)  `).FindAllStringSubmatch(list, -1) {
		if name := found[1]; name != "completion" && name != "exit-status" {
			names = append(names, name)
		}
	}
	if len(names) < 15 {
		m.T.Fatalf("--help lists only %q", names)
	}
	return names
}

// flagsOf returns the flags that the help of a command lists.
func flagsOf(m *lab.Supervisord, command string) []string {
	m.T.Helper()
	out, _ := m.Run(command, "--help")
	_, list, _ := strings.Cut(out, "\nFlags:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).FindAllStringSubmatch(list, -1) {
		if found[1] != "help" {
			names = append(names, found[1])
		}
	}
	return names
}

func TestEveryCommandAndFlagIsCompleted(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	all := output(m.Run("__complete", ""))
	for _, command := range commands(m) {
		if !strings.Contains(all, "\n"+command+"\t") && !strings.HasPrefix(all, command+"\t") {
			t.Errorf("%s is not completed: %s", command, all)
		}
		flags := output(m.Run("__complete", command, "--"))
		for _, flag := range flagsOf(m, command) {
			if !strings.Contains(flags, "--"+flag) {
				t.Errorf("%s --%s is not completed: %s", command, flag, flags)
			}
		}
	}
}

func TestManualPageHasEveryCommand(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	if out, code := m.Run("docs", "man", m.Dir); code != 0 {
		t.Fatal(out)
	}
	page := m.Read("supervisord.1")
	for _, command := range commands(m) {
		if !strings.Contains(page, "\n.SS \""+strings.ReplaceAll(command, "-", `\-`)) {
			t.Errorf("%s is missing", command)
		}
		for _, flag := range flagsOf(m, command) {
			if !strings.Contains(page, `\-\-`+strings.ReplaceAll(flag, "-", `\-`)) {
				t.Errorf("--%s of %s is missing", flag, command)
			}
		}
	}
	for _, word := range []string{"reload [PROGRAM...]", "status [PROGRAM]", "EXIT STATUS", `\-\-drained`,
		"had to be killed"} {
		if !strings.Contains(page, word) {
			t.Errorf("%q is missing", word)
		}
	}
	if man, err := exec.LookPath("groff"); err == nil {
		if out, err := exec.Command(man, "-man", "-Tutf8", "-ww", "-z",
			m.Path("supervisord.1")).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff says %s %v", out, err)
		}
	}
}

// twins prepares two supervisords with the same runtime_dir; only the first is started.
func twins(t *testing.T) (first, second *lab.Supervisord) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	lab.Must(t, err)
	t.Cleanup(func() {
		if left, _ := filepath.Glob(dir + "/*.sock"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		os.RemoveAll(dir)
	})
	config := "[supervisor]\nruntime_dir = \"" + dir + "\"\n" + lab.Web
	first, second = lab.Prepare(t), lab.WithOwnBinary(t)
	first.File("config.toml", config)
	second.File("config.toml", config)
	first.Launch("-c", first.Path("config.toml"))
	first.Serves(1)
	first.Until("it answers", func() bool { _, code := first.Ctl("status"); return code == 0 })
	return first, second
}

func TestTwoSupervisordsWithTheSameRuntimeDirectoryAreFoundByTheirConfigurations(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.CtlFails(69, []string{"runs with " + m.Path("config.toml")}, "status")
	other.Launch("-c", other.Path("config.toml"))
	if l := other.Await(lab.Contains("answers there")); l.Level != "warn" {
		t.Errorf("the log says %s", l.Text)
	}
	other.Serves(1)
	for _, one := range []*lab.Supervisord{m, other} {
		if s := one.Status(); s.PID != one.PID() {
			t.Errorf("the answer is from PID %d, want %d", s.PID, one.PID())
		}
	}
	lab.Must(t, os.Symlink(m.Dir, other.Path("link")))
	if out, code := m.Run("status", "-c", other.Path("link/config.toml")); code != 0 ||
		!strings.Contains(out, fmt.Sprint(m.PID())) {
		t.Errorf("through a symlink: exit code %d: %s", code, out)
	}
	m.Finish()
	m.CtlFails(69, []string{"does not answer"}, "status")
}

func TestControlSocketAtAnotherPathSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.Launch("-c", other.Path("config.toml"))
	other.Serves(1)
	m.Finish()
	other.Upgrade(lab.Upgraded)
	if s := other.Status(); s.PID != other.PID() {
		t.Errorf("the answer is from PID %d, want %d", s.PID, other.PID())
	}
}

func TestSecondSupervisordDoesNotTakeTheControlSocketAway(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	other := lab.Prepare(t)
	other.Start("control = \"" + m.Path("run/control.sock") + "\"\n" + lab.Web)
	other.Await(lab.Contains("answers there"))
	other.Serves(1)
	other.Finish()
	if s := m.Status(); s.PID != m.PID() {
		t.Errorf("the answer is from PID %d, want %d", s.PID, m.PID())
	}
}
