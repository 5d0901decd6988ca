package tests

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

// demo starts `supervisord demo`, after the words of argv.
func demo(m *lab.Supervisord, argv ...string) *lab.Supervisord {
	m.Env = []string{"TMPDIR=" + m.Dir, "NO_COLOR=1"}
	m.Execute(append(argv, lab.Built.Supervisord, "demo")...)
	return m
}

// demoEnds fails the test unless the demo ends with this exit code and leaves no process and no file behind.
func demoEnds(t *testing.T, m *lab.Supervisord, code int) {
	t.Helper()
	m.Ends(code)
	if left, _ := filepath.Glob(m.Path("supervisord-demo-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestDemoOfAnOrdinaryUserEndsWithTheVerdict is long because TestFirstRunIsAsREADMESays runs the demo without a
// terminal, too.
func TestDemoOfAnOrdinaryUserEndsWithTheVerdict(t *testing.T) {
	if !lab.Long() {
		t.Skip("only with -long")
	}
	t.Parallel()
	m := demo(lab.PrepareOrdinary(t))
	m.Await(lab.Contains("PASSED: "))
	demoEnds(t, m, 0)
}

func texts(m *lab.Supervisord) (all []string) {
	for _, l := range m.Lines() {
		all = append(all, l.Text)
	}
	return all
}

func TestDemoOnATerminalStaysUntilCtrlC(t *testing.T) {
	t.Parallel()
	m := demo(lab.Prepare(t), lab.TerminalCommand(t)...)
	page := regexp.MustCompile(`http://\S+/`).FindString(m.Await(lab.Contains("the page shows every deploy")).Text)
	command := strings.Fields(m.Await(lab.Contains(" reload -c ")).Text)
	m.Await(lab.Contains("Ctrl-C ends the demo"))
	answer, err := http.Get(page)
	lab.Must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the page answers %s", answer.Status)
	}
	if command[0] != lab.Built.Supervisord {
		t.Errorf("the demo says to run %q", command)
	}
	if out, code := m.Run(command[1:]...); code != 0 || !strings.Contains(out, "web: ") {
		t.Errorf("%q: exit code %d: %s", command, code, out)
	}
	lines := strings.Join(texts(m), "\n")
	for _, want := range []string{
		`(?m)^1\. Two ordinary restarts(?s:.*)   [1-9]\d* of \d+ requests lost; `,
		`(?m)^2\. Three reloads(?s:.*)   0 of \d+ requests lost; `,
		`(?m)^3\. A reload with a version that never gets ready(?s:.*)   0 of \d+ requests lost; .*\n   rejected: ready: ` +
			`not ready within 2s: `,
	} {
		if !regexp.MustCompile(want).MatchString(lines) {
			t.Errorf("there is no %s in\n%s", want, lines)
		}
	}
	m.Signal(syscall.SIGINT)
	demoEnds(t, m, 0)
}

func TestCtrlCInTheMiddleOfTheDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	m := demo(lab.PrepareOrdinary(t))
	m.Await(lab.Contains("1. Two ordinary restarts"))
	m.Signal(syscall.SIGINT)
	demoEnds(t, m, 130)
}

func TestProveOnATerminalShowsItsProgressAndColors(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(strings.Replace(lab.Hello, "127.0.0.1:0", lab.Reserve(t), 1))
	m.Execute(append(lab.TerminalCommand(t), lab.Built.Supervisord, "prove", "-c", m.Path("config.toml"), "--duration",
		"2s", "--reloads", "1", "--rate", "50")...)
	m.Ends(0)
	lines := strings.Join(texts(m), "\n")
	for _, want := range []string{
		"gets 50 requests a second at http://127.0.0.1:", "requests, 0 lost; reload ", " of 1",
		"\x1b[32mPASSED\x1b[0m: nothing was lost and every reload served",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("there is no %q in\n%s", want, lines)
		}
	}
}
