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

func TestSecondTERMMeansNow(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold))
	time.Sleep(300 * time.Millisecond) // an earlier one counts as a duplicate
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	m.Await(lab.Says(lab.WorkerKilled))
}

// signalling is a program whose shell runs a script in the background, once the file "go" is there, and becomes the
// worker.
func signalling(script string) string {
	const config = "\n[program.web]\n" +
		"command = [\"sh\", \"-c\", \"(until [ -e {dir}/go ]; do sleep 0.02; done; SCRIPT) & exec \\\"$@\\\"\", \"sh\", " +
		"{worker}]"
	return strings.Replace(lab.Web, "\n[program.web]\ncommand = [{worker}]", strings.Replace(config, "SCRIPT", script, 1),
		1)
}

func TestStopSignalFromAWorkerFailsTheWorkerOnly(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"its child":                  "kill -TERM $PPID; sleep 1000",
		"a command":                  "env kill -INT $PPID",
		"a child in its own session": "exec setsid sh -c \\\"kill -QUIT $PPID; sleep 1000\\\"",
		"again and again":            "rm {dir}/go; for i in 1 2 3 4 5; do kill -TERM $PPID; done; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, signalling(script))
			m.Serves(1)
			pid := m.WorkerPID(1)
			lab.Must(t, os.WriteFile(m.Path("go"), nil, 0o600))
			m.Await(lab.Says("a worker told supervisord to stop; that is not obeyed"),
				lab.Contains("of worker 1 of program web"))
			left := m.Await(lab.Says("worker is to be replaced"))
			if left.PID != pid || !strings.Contains(left.Reason,
				"to supervisord, its parent: configure the program not to stop its parent") {
				t.Errorf("%s", left.Text)
			}
			os.Remove(m.Path("go"))
			m.Await(lab.Says(lab.WorkerStopped), func(l lab.Entry) bool { return l.PID == pid })
			lab.Ask(t, m.Address(), "/")
			m.Signal(syscall.SIGTERM)
			m.Ends(0)
		})
	}
}

func TestStopSignalFromAWorkerOnTrialFailsTheTrial(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"before it is ready": `["sh", "-c", "kill -TERM $PPID; exec \"$@\"", "sh", {worker}]`,
		"and at once ends":   `["sh", "-c", "kill -INT $PPID"]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.Web)
			m.Serves(1)
			m.Write(strings.Replace(lab.Web, "[{worker}]", command, 1))
			m.Reload()
			m.Await(lab.Says("a worker told supervisord to stop; that is not obeyed"))
			m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
			if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1") {
				t.Error(got)
			}
		})
	}
}

func TestStopSignalFromAWorkerWithoutListenersIsObeyed(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+`
[program.watchdog]
command = ["sh", "-c", "kill -TERM $PPID; exec sleep 1000"]
ready = { method = "delay", delay = "10ms" }
`)
	m.Await(lab.Says("stopping every program"), lab.Contains("of worker 1 of program watchdog"))
	m.Ends(0)
}

func TestOtherSignalsFromAWorkerAreObeyedAndNamed(t *testing.T) {
	t.Parallel()
	for sig, says := range map[string]string{"HUP": lab.TrialBegan, "USR1": lab.USR1} {
		t.Run(sig, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, signalling("rm {dir}/go; kill -"+sig+" $PPID; sleep 1000"))
			m.Serves(1)
			lab.Must(t, os.WriteFile(m.Path("go"), nil, 0o600))
			m.Await(lab.Says(says), lab.Contains(`"asked_by":"signal `+sig+` from `), lab.Contains("of worker 1 of program web"))
		})
	}
}

func TestSignalThatWaitsWhileSupervisordIsStoppedKeepsItsSender(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Signal(syscall.SIGSTOP)
	m.Signal(syscall.SIGTERM)
	m.Signal(syscall.SIGCONT)
	m.Await(lab.Says("stopping every program"),
		lab.Contains(fmt.Sprintf(`"asked_by":"signal TERM from tests.test (pid %d, uid %d)"`, os.Getpid(), os.Getuid())))
	m.Ends(0)
}
