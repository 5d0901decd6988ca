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

func TestHUPReplacesTheWorkers(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1") {
		t.Errorf("before HUP: %s", got)
	}
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=2") {
		t.Errorf("after HUP: %s", got)
	}
}

func TestHUPReplacesTheWorkersOfEveryProgram(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.one]
command = [{worker}]
ready.method = "notify"
[program.two]
command = [{worker}]
ready.method = "notify"
`)
	for generation := 1; generation <= 2; generation++ {
		for _, name := range []string{"one", "two"} {
			m.Await(lab.Says(lab.GenerationServes), lab.Program(name), lab.Gen(generation))
		}
		if generation == 1 {
			m.Reload()
		}
	}
}

func TestTERMStopsEverythingAndExitsWith0(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	m.Await(lab.Says(lab.WorkerTold), func(l lab.Entry) bool { return l.Signal == "TERM" })
	m.Await(lab.Says(lab.Ends))
}

func TestINTStopsEverythingAndExitsWith0(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Signal(syscall.SIGINT)
	m.Ends(0)
	m.Await(lab.Says(lab.WorkerTold), func(l lab.Entry) bool { return l.Signal == "TERM" })
}

func TestTERMDuringTheFirstStartStops(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("ready=never"))
	m.WorkerPID(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
}

func TestTERMWhileNothingRunsStops(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("exit=1")+`
[program.web.restart]
backoff = { min = "1h", max = "1h" }
`)
	m.Await(lab.Says(lab.StartRetry))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
}

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

// timeout(1) sends its signal to the process and to its group. INT and TERM, unlike two INTs, cannot become one on the
// way. They arrive at once, however busy the machine is, because supervisord is stopped meanwhile.
func TestTwoStopSignalsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=300ms"))
	m.Serves(1)
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT} {
		m.Signal(sig)
	}
	m.Ends(0)
	m.Never(lab.Says(lab.WorkerKilled))
}

func TestQUITStopsAtOnce(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
	m.Await(lab.Says(lab.WorkerKilled))
	m.Never(lab.Says(lab.WorkerTold))
}

func TestHundredHUPsDoNotCrowdOutTERM(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for range 100 {
		m.Signal(syscall.SIGHUP)
	}
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
}

func TestHUPWhileStoppingIsIgnored(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold))
	m.Reload()
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
}

func TestUSR1ReopensTheLogFilesAfterTheyWereRenamed(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", "while :; do echo tick; sleep 0.02; done"]
stdout = "{dir}/out.log"
ready.delay = "10ms"
`)
	m.Serves(1)
	m.Until("the log file has text", func() bool { return lab.Size(m.Path("out.log")) > 0 })
	lab.Must(t, os.Rename(m.Path("out.log"), m.Path("out.log.1")))
	m.Signal(syscall.SIGUSR1)
	m.Await(lab.Says(lab.USR1))
	m.Until("a new log file has text", func() bool { return lab.Size(m.Path("out.log")) > 0 })
	old := lab.Size(m.Path("out.log.1"))
	grown := lab.Size(m.Path("out.log"))
	m.Until("the new one grows", func() bool { return lab.Size(m.Path("out.log")) > grown })
	if lab.Size(m.Path("out.log.1")) != old {
		t.Error("the renamed file still grows")
	}
}

func TestServiceOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Via = []string{"sh", "-c", `"$@" 2>&1 | head -n 1`, "sh"}
	at := lab.Reserve(t)
	m.Write(lab.PIDFile + lab.WebAt(at))
	m.Launch("-c", m.Path("config.toml"))
	var master int
	m.Until("the pid file is there", func() bool { master = lab.Number(m.Path("p.pid")); return master != 0 })
	first := ""
	m.Until("the first generation answers", func() bool { first, _ = lab.Get(at, "/"); return first != "" })
	lab.Must(t, syscall.Kill(master, syscall.SIGHUP))
	m.Until("the next generation answers", func() bool { return lab.Ask(t, at, "/") != first })
	lab.Must(t, syscall.Kill(master, syscall.SIGTERM))
	m.Until("supervisord has ended", func() bool { return !lab.Alive(master) })
	m.Ends(0)
}

func TestTERMIsObeyedWhileAPreflightRuns(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+`
[program.web.reload]
preflight = ["sleep", "1000"]
`)
	m.Await(lab.Says(lab.TrialBegan))
	time.Sleep(50 * time.Millisecond) // the preflight leaves no trace before it exits
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
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
