package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// talker writes bursts of numbered lines until TERM, and then a last line "end".
const talker = `
trap 'echo $$ end; exit 0' TERM
echo >&$NOTIFY_FD
i=0
while :; do
	j=0
	while [ $j -lt 100 ]; do echo $$ $i; i=$((i+1)); j=$((j+1)); done
	sleep 0.02 & wait $!
done
`

func TestNoCapturedLineIsLostOverReloadsUpgradesAndRotation(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.File("talker", talker)
	m.Start("[program.web]\ncommand = [\"sh\", \"{dir}/talker\"]\nstdout = \"capture\"\nstderr = \"capture\"\n" +
		"[program.web.log]\nfile = \"web.log\"\n[program.web.ready]\nmethod = \"notify\"\n")
	m.Serves(1)
	for i := range 4 {
		m.Upgrade(lab.Upgraded)
		m.Reload()
		m.Serves(i + 2)
		if i == 1 {
			lab.Must(t, os.Rename(m.Path("web.log"), m.Path("web.log.1")))
			m.Signal(syscall.SIGUSR1)
			m.Await(lab.Says(lab.USR1))
		}
		time.Sleep(50 * time.Millisecond) // some more lines
	}
	m.Finish()
	next, ended := map[string]int{}, 0
	for line := range strings.Lines(m.Read("web.log.1") + m.Read("web.log")) {
		pid, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if what == "end" {
			ended++
			continue
		}
		if want := fmt.Sprint(next[pid]); what != want {
			t.Fatalf("line %q of worker %s, want %s", what, pid, want)
		}
		next[pid]++
	}
	if len(next) != 5 || ended != 5 {
		t.Errorf("%d workers wrote, %d of them a last line: %v", len(next), ended, next)
	}
}

func TestFailureReportHasTheLastLinesOfACapturedWorker(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"echo out; echo no such table >&2; exit 3\"]\n"+
		"stdout = \"capture\"\nstderr = \"capture\"\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); len(failed.Stderr) != 1 || failed.Stderr[0] != "no such table" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestLogsShowAProgramThatHasNeverServed(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"crashes": "echo boom >&2; exit 1",
		"never ready": "echo boom >&2; exec sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \""+script+"\"]\nstderr = \"capture\"\n"+
				"ready = { method = \"notify\", timeout = \"300ms\" }\n")
			m.Await(lab.Says(lab.TrialFailed))
			if out := m.CtlOK("logs", "web"); !strings.Contains(out, "boom") {
				t.Errorf("logs prints %q", out)
			}
		})
	}
}

func TestLogsShowAProgramThatIsStopped(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\n"+
		"command = [\"sh\", \"-c\", \"echo started; echo >&$NOTIFY_FD; exec sleep 1000\"]\nstdout = \"capture\"\n"+
		"[program.web.ready]\nmethod = \"notify\"\n")
	m.Serves(1)
	m.CtlOK("stop", "web")
	if out := m.CtlOK("logs", "web"); !strings.Contains(out, "started") {
		t.Errorf("logs prints %q", out)
	}
}

func TestLastLinesKeepTheirIndentation(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`Traceback:\n    File x\n        ^^^^\nTypeError`,
		`\tat java.lang.Thread\n\t\tat main`} {
		m := lab.Start(t, "[program.web]\ncommand = ['sh', '-c', \"printf '"+strings.ReplaceAll(text, `\`, `\\`)+
			"\\\\n' >&2; exit 1\"]\nstderr = \"capture\"\n")
		failed := m.Await(lab.Says(lab.TrialFailed))
		want := strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(text)
		if got := strings.Join(failed.Stderr, "\n"); got != want {
			t.Errorf("the last lines are %q, want %q", got, want)
		}
	}
}
