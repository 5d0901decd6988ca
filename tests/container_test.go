package tests

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// orphans is a program whose worker leaves short-lived orphans behind, then works.
const orphans = `
[program.web]
command = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'setsid sleep 0.1 & exit 0'; done; echo >&$NOTIFY_FD; exec sleep 1000"]
ready.method = "notify"
`

// children are the processes that have this parent, by their states.
func children(t *testing.T, parent int) (states []string) {
	t.Helper()
	out, _ := exec.Command("ps", "-o", "stat=", "--ppid", strconv.Itoa(parent)).Output()
	return strings.Fields(string(out))
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	need(t, "ps")
	need(t, "setsid")
	m := start(t, orphans)
	m.serves(1)
	m.until("only the worker is left, and no zombie", func() bool {
		states := children(t, m.pid())
		return len(states) == 1 && !strings.HasPrefix(states[0], "Z")
	})
	m.never(says(workerDied))
}

// first starts a supervisord as process 1 of a container, and returns its PID here.
func first(t *testing.T, config string) (m *master, master int) {
	t.Helper()
	asRoot(t, "make a PID namespace")
	m = prepare(t)
	m.via = []string{need(t, "unshare"), "--pid", "--fork", "--mount-proc", "--kill-child=KILL"}
	if out, err := exec.Command(m.via[0], append(m.via[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no PID namespace can be made here: %s", out)
	}
	m.start(config)
	m.serves(1)
	for _, p := range m.processes() {
		if strings.HasPrefix(cmdline(p), built.supervisord) {
			master = p
		}
	}
	return m, master
}

func TestAsProcess1ItReloadsAndStops(t *testing.T) {
	t.Parallel()
	m, master := first(t, web)
	if got := status(master)["NSpid"]; !strings.HasSuffix(got, "\t1") {
		t.Fatalf("its PIDs are %q", got)
	}
	must(t, syscall.Kill(master, syscall.SIGHUP))
	m.gone(1)
	must(t, syscall.Kill(master, syscall.SIGTERM))
	m.ends(0)
}

func TestAsProcess1ItReapsOrphans(t *testing.T) {
	t.Parallel()
	need(t, "ps")
	m, master := first(t, orphans)
	m.until("only the worker is left, and no zombie", func() bool {
		states := children(t, master)
		return len(states) == 1 && !strings.HasPrefix(states[0], "Z")
	})
	m.never(says(workerDied))
	must(t, syscall.Kill(master, syscall.SIGTERM))
	m.ends(0)
}

// What looks like left behind, seen from here, belongs to a supervisord whose directory for sockets has the same name, but in
// a container.
func TestTheWorkersOfASupervisordInAContainerAreLeftAlone(t *testing.T) {
	t.Parallel()
	asRoot(t, "make namespaces")
	inner := prepare(t)
	must(t, os.Mkdir(inner.path("run"), 0o755))
	inner.via = []string{need(t, "unshare"), "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL",
		"sh", "-c", "mount -t tmpfs none " + inner.path("run") + ` && exec "$@"`, "sh"}
	if out, err := exec.Command(inner.via[0], append(inner.via[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces can be made here: %s", out)
	}
	inner.start(plain)
	inner.serves(1)
	outer := prepare(t)
	outer.write(strings.ReplaceAll(plain, "web", "outer"))
	outer.file("config.toml", strings.ReplaceAll(outer.read("config.toml"), outer.path("run"), inner.path("run")))
	outer.launch("-c", outer.path("config.toml"))
	outer.serves(1)
	outer.finish()
	outer.never(contains("is told to stop"), func(l line) bool { return l.Msg != workerTold })
	inner.settle()
	inner.never(says(workerDied))
	for _, p := range inner.processes() {
		if strings.HasPrefix(cmdline(p), built.supervisord) {
			must(t, syscall.Kill(p, syscall.SIGTERM))
		}
	}
	inner.ends(0)
}
