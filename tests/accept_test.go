package tests

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// silent is a Python program that sends no readiness message. If the file {dir}/hold exists, it waits for {dir}/go
// before it accepts.
func silent(t *testing.T, more, script string) string {
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	return fmt.Sprintf(`
[program.web]
command = [%q, "-c", '''
import os, select, signal, socket, sys, time
gone = False
def term(*_): global gone; gone = True; sys.exit(0)
def hold():
    while os.path.exists('{dir}/hold'): time.sleep(0.005)
def answer(c):
    body = ('generation=' + os.environ['SUPERVISORD_GENERATION']).encode()
    c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %%d\r\nConnection: close\r\n\r\n%%s' %% (len(body), body))
    c.close()
%s''']
ready.method = "accept"
%s
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
`, python, script, more)
}

// The loop answers every accepted request before it exits.
const inASelectLoop = `
s = socket.socket(fileno=3)
s.setblocking(False)
r, w = os.pipe()
os.set_blocking(w, False)
hold()
signal.set_wakeup_fd(w)
signal.signal(signal.SIGTERM, lambda *_: None)
while r not in select.select([s, r], [], [])[0]:
    try: c, _ = s.accept()
    except BlockingIOError: continue
    c.setblocking(True)
    answer(c)
`

func TestAcceptMakesASilentServerReadyWhenItWaits(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("hold", "")
	m.Start(silent(t, "", inASelectLoop))
	m.WorkerPID(1)
	time.Sleep(300 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerReady))
	lab.Must(t, os.Remove(m.Path("hold")))
	m.Serves(1)
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=1" {
		t.Errorf("the answer is %q", got)
	}
}

func TestReloadsBehindAcceptLoseNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, silent(t, "workers = 2", inASelectLoop))
	m.Serves(1)
	l := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
	for generation := 2; generation <= 5; generation++ {
		m.Reload()
		m.Serves(generation)
		m.Gone(generation - 1)
	}
	l.Lossless(t)
}

func TestForkingServerIsReadyWithItsFirstChildThatAccepts(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, silent(t, "stop.group = true", `
s = socket.socket(fileno=3)
signal.signal(signal.SIGTERM, term)
time.sleep(0.1)
for _ in range(2):
    if os.fork() == 0:
        while True: answer(s.accept()[0])
while True: signal.pause()
`))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=2" {
		t.Errorf("the answer is %q", got)
	}
}

func TestOldGenerationThatWaitsDoesNotMakeANewOneReady(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, silent(t, "", inASelectLoop))
	m.Serves(1)
	m.File("hold", "")
	m.Write(silent(t, "ready.timeout = \"1s\"", inASelectLoop))
	m.Reload()
	failed := m.Await(lab.Says(lab.TrialFailed))
	if failed.Step != "ready" || !strings.Contains(failed.Reason, "not ready within 1s") || failed.Serving != 1 {
		t.Errorf("the log says %s", failed.Text)
	}
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=1" {
		t.Errorf("the answer is %q", got)
	}
}

func TestEachSlotWaitsOnItsOwnSocket(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(silent(t, "workers = 3", inASelectLoop) + "per_slot = true\n")
	m.Serves(1)
	m.File("hold", "")
	m.Reload()
	m.AwaitN(3, lab.Says(lab.WorkerRuns), lab.Gen(2))
	time.Sleep(200 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerReady), lab.Gen(2))
	lab.Must(t, os.Remove(m.Path("hold")))
	m.Serves(2)
}

func TestEveryListenerHasToBeWaitedOn(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, silent(t, "ready.timeout = \"1s\"", inASelectLoop)+
		"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\nname = \"b\"\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "ready" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialWithAcceptSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, silent(t, "", inASelectLoop))
	m.Serves(1)
	m.File("hold", "")
	m.Reload()
	p := m.WorkerPID(2)
	m.Upgrade(lab.Upgraded)
	time.Sleep(200 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerReady), lab.Gen(2))
	lab.Must(t, os.Remove(m.Path("hold")))
	m.Serves(2)
	if got := m.Await(lab.Says(lab.WorkerReady), lab.Gen(2)).PID; got != p {
		t.Errorf("worker %d is ready, want %d, the one on trial", got, p)
	}
	m.Gone(1)
}

func TestWorkerThatProcHidesFailsTheTrialAtOnce(t *testing.T) {
	t.Parallel()
	m := asRootWithout(t, "sys_ptrace")
	unshare := []string{lab.Need(t, "unshare"), "--mount", "--propagation", "private", "sh", "-c",
		`mount -t proc -o hidepid=invisible,gid=65533 proc /proc && exec "$@"`, "sh"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("processes cannot be hidden here: %s", out)
	}
	m.Via = append(unshare, m.Via...)
	m.Start("[program.web]\ncommand = [{sleep}]\nuser = \"nobody\"\nready = { method = \"accept\", timeout = \"1h\" }\n" +
		"listen = [{ address = \"127.0.0.1:0\", handover = \"share\" }]\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "ready" ||
		!strings.Contains(failed.Reason, "hidepid") || !strings.Contains(failed.Reason, "CAP_SYS_PTRACE") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestRefusedInspectionOfAChildFailsTheTrialWithItsName(t *testing.T) {
	t.Parallel()
	m := asRootWithout(t, "sys_ptrace")
	m.Start(silent(t, "ready.timeout = \"1h\"", `
signal.signal(signal.SIGTERM, term)
if os.fork() == 0:
    os.setuid(65534)
    socket.socket(fileno=3).accept()
while True: signal.pause()
`) + "handover = \"share\"\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Step != "ready" ||
		!strings.Contains(failed.Reason, "permission denied") || !strings.Contains(failed.Reason, "python") {
		t.Errorf("the log says %s", failed.Text)
	}
}

// A connection to its own socket shows that a worker accepts which may not be looked at.
func TestWorkerThatMayNotBeLookedAtIsReadyWhenItAccepts(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"accept", "notify"} {
		m := asRootWithout(t, "sys_ptrace")
		m.File("bad", "")
		m.File("hold", "")
		m.Start(claimant(t, "ready.method = \""+method+"\"",
			"say()\nos.setuid(65534)\nwhile os.path.exists('{dir}/hold'): time.sleep(0.005)\nserve(s)"))
		m.Await(lab.Says(lab.WorkerRuns))
		time.Sleep(400 * time.Millisecond)
		m.Never(lab.Says(lab.WorkerReady))
		lab.Must(t, os.Remove(m.Path("hold")))
		m.Serves(1)
		m.Never(lab.Contains("cannot see whether"))
		m.Finish()
	}
}

// asRootWithout prepares a supervisord that runs as root without one capability.
func asRootWithout(t *testing.T, capability string) *lab.Supervisord {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m := lab.Prepare(t)
	m.Via = []string{lab.Need(t, "setpriv"), "--bounding-set", "-" + capability, "--inh-caps", "-" + capability}
	return m
}

func TestAcceptProbesDoNotDisturbTheWorker(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("hold", "")
	m.Start(silent(t, "", "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))\n"+inASelectLoop))
	p := m.WorkerPID(1)
	time.Sleep(300 * time.Millisecond)
	if s := lab.ProcStatus(p); s["TracerPid"] != "0" || strings.HasPrefix(s["State"], "T") {
		t.Errorf("TracerPid is %s, State %s", s["TracerPid"], s["State"])
	}
	lab.Must(t, syscall.Kill(p, 0))
}
