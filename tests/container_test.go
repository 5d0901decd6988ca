package tests

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

// orphans is a program whose worker leaves short-lived orphans behind and then serves.
const orphans = `
[program.web]
command = ["sh", "-c", """
for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'setsid sleep 0.1 & exit 0'; done; echo >&$NOTIFY_FD; exec sleep 1000"""]
ready.method = "notify"
`

// children lists the states of the processes with this parent.
func children(t testing.TB, parent int) (states []string) {
	t.Helper()
	out, _ := exec.Command("ps", "-o", "stat=", "--ppid", strconv.Itoa(parent)).Output()
	return strings.Fields(string(out))
}

// Seen from outside, these workers look orphaned. They belong to a supervisord in a container whose runtime directory
// has the same name.
func TestWorkersOfASupervisordInAContainerAreLeftAlone(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "make namespaces")
	inner := lab.Prepare(t)
	lab.Must(t, os.Mkdir(inner.Path("run"), 0o755))
	inner.Via = []string{lab.Need(t, "unshare"), "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL",
		"sh", "-c", "mount -t tmpfs none " + inner.Path("run") + ` && exec "$@"`, "sh"}
	if out, err := exec.Command(inner.Via[0], append(inner.Via[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("cannot create namespaces here: %s", out)
	}
	inner.Start(lab.Plain)
	inner.Serves(1)
	outer := lab.Prepare(t)
	outer.Write(strings.ReplaceAll(lab.Plain, "web", "outer"))
	outer.File("config.toml", strings.ReplaceAll(outer.Read("config.toml"), outer.Path("run"), inner.Path("run")))
	outer.Launch("-c", outer.Path("config.toml"))
	outer.Serves(1)
	outer.Finish()
	outer.Never(lab.Contains("is told to stop"), func(l lab.Entry) bool { return l.Msg != lab.WorkerTold })
	inner.Settle()
	inner.Never(lab.Says(lab.WorkerDied))
	for _, p := range inner.Processes() {
		if strings.HasPrefix(lab.Cmdline(p), lab.Built.Supervisord) {
			lab.Must(t, syscall.Kill(p, syscall.SIGTERM))
		}
	}
	inner.Ends(0)
}
