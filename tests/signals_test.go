package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// web is a program with one listener that says when it is ready.
const web = `
[program.web]
command = [{worker}]
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
`

// webWith is web with arguments of the worker: `"boot=1s"`.
func webWith(args ...string) string {
	return strings.Replace(web, "{worker}", "{worker}, \""+strings.Join(args, "\", \"")+"\"", 1)
}

func TestHUPReplacesTheWorkers(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=1") {
		t.Errorf("before HUP: %s", got)
	}
	m.reload()
	m.serves(2)
	m.gone(1)
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=2") {
		t.Errorf("after HUP: %s", got)
	}
}

func TestHUPReplacesTheWorkersOfEveryProgram(t *testing.T) {
	t.Parallel()
	m := start(t, `
[program.one]
command = [{worker}]
ready.method = "notify"
[program.two]
command = [{worker}]
ready.method = "notify"
`)
	for generation := 1; generation <= 2; generation++ {
		for _, name := range []string{"one", "two"} {
			m.await(says(generationServes), program(name), gen(generation))
		}
		if generation == 1 {
			m.reload()
		}
	}
}

func TestTERMStopsEverythingAndExitsWith0(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	m.await(says(workerTold), func(l line) bool { return l.Signal == "TERM" })
	m.await(says(ends))
}

func TestINTStopsEverythingAndExitsWith0(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.signal(syscall.SIGINT)
	m.ends(0)
	m.await(says(workerTold), func(l line) bool { return l.Signal == "TERM" })
}

func TestTERMDuringTheFirstStartStops(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("ready=never"))
	m.worker(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
}

func TestTERMWhileNothingRunsStops(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("exit=1")+`
[program.web.restart]
backoff = { min = "1h", max = "1h" }
`)
	m.await(says(startRetry))
	m.signal(syscall.SIGTERM)
	m.ends(0)
}

func TestASecondTERMMeansNow(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=ignore"))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.await(says(workerTold))
	m.signal(syscall.SIGTERM)
	m.ends(0)
	m.await(says(workerKilled))
}

func TestQUITStopsAtOnce(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=ignore"))
	m.serves(1)
	m.signal(syscall.SIGQUIT)
	m.ends(0)
	m.await(says(workerKilled))
	m.never(says(workerTold))
}

func TestAHundredHUPsDoNotCrowdOutTERM(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	for range 100 {
		m.signal(syscall.SIGHUP)
	}
	m.signal(syscall.SIGTERM)
	m.ends(0)
}

func TestHUPWhileStoppingIsNoReload(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=300ms"))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.await(says(workerTold))
	m.signal(syscall.SIGHUP)
	m.ends(0)
	m.never(says(trialBegan), gen(2))
}

func TestUSR1ReopensTheLogFilesAfterTheyWereRenamed(t *testing.T) {
	t.Parallel()
	m := start(t, `
[program.web]
command = ["sh", "-c", "while :; do echo tick; sleep 0.02; done"]
stdout = "{dir}/out.log"
ready.delay = "10ms"
`)
	m.serves(1)
	m.until("something is in the log file", func() bool { return size(m.path("out.log")) > 0 })
	must(t, os.Rename(m.path("out.log"), m.path("out.log.1")))
	m.signal(syscall.SIGUSR1)
	m.await(says(usr1))
	m.until("there is a new log file with something in it", func() bool { return size(m.path("out.log")) > 0 })
	old := size(m.path("out.log.1"))
	grown := size(m.path("out.log"))
	m.until("the new one grows", func() bool { return size(m.path("out.log")) > grown })
	if size(m.path("out.log.1")) != old {
		t.Error("the renamed file still grows")
	}
}

func size(path string) int64 {
	stat, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return stat.Size()
}

func TestTheEndOfWhoeverReadsTheLogIsNoEndOfTheService(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.via = []string{"sh", "-c", `"$@" 2>&1 | head -n 1`, "sh"}
	m.write("pid_file = \"{dir}/p.pid\"\n" + strings.Replace(web, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.launch("-c", m.path("config.toml"))
	var master int
	m.until("the pid file is there", func() bool { master = number(m.path("p.pid")); return master != 0 })
	at := "unix:" + m.path("s")
	first := ""
	m.until("the first generation answers", func() bool { first, _ = get(at, "/"); return first != "" })
	must(t, syscall.Kill(master, syscall.SIGHUP))
	m.until("the next generation answers", func() bool { return ask(t, at, "/") != first })
	must(t, syscall.Kill(master, syscall.SIGTERM))
	m.until("supervisord has ended", func() bool { return !alive(master) })
	m.ends(0)
}

// number reads a file with a number in it, 0 if there is none.
func number(path string) int {
	n := 0
	for _, c := range strings.TrimSpace(text(path)) {
		n = n*10 + int(c-'0')
	}
	return n
}

func TestTERMIsObeyedWhileAPreflightRuns(t *testing.T) {
	t.Parallel()
	m := start(t, web+`
[program.web.reload]
preflight = ["sleep", "1000"]
`)
	m.await(says(trialBegan))
	time.Sleep(50 * time.Millisecond) // the preflight leaves no trace until it ends
	m.signal(syscall.SIGTERM)
	m.ends(0)
}

// text reads a file, "" if there is none.
func text(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}
