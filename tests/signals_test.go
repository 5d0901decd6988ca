package tests

import (
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

// timeout(1) sends its signal to the process and to its group. INT and TERM, unlike two INTs, cannot become one on the way. They arrive
// at once, however busy the machine is, because supervisord is stopped meanwhile.
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
	m.Write("pid_file = \"{dir}/p.pid\"\n" + strings.Replace(lab.Web, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.Launch("-c", m.Path("config.toml"))
	var master int
	m.Until("the pid file is there", func() bool { master = lab.Number(m.Path("p.pid")); return master != 0 })
	at := "unix:" + m.Path("s")
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
