package attack

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// stranger is an ordinary user that is in no configuration.
const stranger = 12345

// bait starts a process whose environment claims that it is a worker of m whose supervisord died. It prints a line and
// runs until the end of the test.
func bait(t *testing.T, m *lab.Supervisord, uid uint32, script string) *os.Process {
	t.Helper()
	cmd := exec.Command(lab.Need(t, "perl"), "-e", script+` $| = 1; print "ready\n"; sleep 1000;`)
	cmd.Env = []string{"NOTIFY_SOCKET=" + m.Path("run/notify.deadbeef/1"), "SUPERVISORD_CONFIG=" + m.Path("config.toml"),
		"SUPERVISORD_PROGRAM=web"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.StdoutPipe()
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() //nolint:errcheck // it was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the bait prints %q: %v", line, err)
	}
	return cmd.Process
}

func TestSocketThatAnotherUserPlantsIsNotTaken(t *testing.T) {
	lab.NeedRoot(t, "run a process as another user")
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	p := bait(t, m, stranger, `use IO::Socket::INET; our $s = IO::Socket::INET->new(LocalAddr => "`+address+
		`", Listen => 10, ReuseAddr => 1) or die;`)
	m.Start(lab.WebAt(address))
	m.Ends(1)
	m.Await(lab.Contains("cannot listen on tcp " + address + ": address already in use"))
	if !lab.Alive(p.Pid) {
		t.Error("the process of the other user was ended")
	}
}

func TestOnlyProcessesThatMayBeWorkersAreTakenForOrphans(t *testing.T) {
	lab.NeedRoot(t, "run processes as other users")
	t.Parallel()
	m := lab.Prepare(t)
	others := map[string]*os.Process{
		"another user's":                       bait(t, m, stranger, ""),
		"a setuid program that a user started": bait(t, m, 0, "$< = 12345;"),
	}
	ours := bait(t, m, 0, "")
	m.Start(lab.Web)
	m.Serves(1)
	m.Await(lab.Says("an orphaned worker is told to stop"), lab.PID(ours.Pid))
	m.Settle()
	for what, p := range others {
		m.Never(lab.Says("an orphaned worker is told to stop"), lab.PID(p.Pid))
		if !lab.Alive(p.Pid) {
			t.Errorf("the process was ended although it is %s", what)
		}
	}
}

func TestOrphansServeUntilTheProgramDoes(t *testing.T) {
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	m.Start(strings.Replace(lab.WebAt(address), "{worker}", "{hello}", 1)) // which loses no request when it is stopped
	m.Serves(1)
	old := m.WorkerPID(1)
	load := lab.Press(t, address, 4, 5*time.Millisecond)
	m.Die()
	gate := m.Gate("gate")
	// the load keeps its connections
	drains := strings.Replace(lab.WebWith("accept="+gate), "\n[[", "\ndrain.timeout = \"1s\"\n[[", 1)
	m.Start(strings.Replace(drains, "127.0.0.1:0", address, 1))
	m.Await(lab.Says("orphaned workers keep running until the program serves"))
	for range 20 {
		if body := lab.Ask(t, address, "/"); !strings.Contains(body, "hello") {
			t.Fatalf("before the new worker is ready the answer is %s", body)
		}
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "orphaned workers serve meanwhile (1)") {
		t.Errorf("the status does not name the serving process:\n%s", out)
	}
	m.Never(lab.Says("an orphaned worker is told to stop"))
	m.Open(gate)
	m.Serves(1)
	m.Until("the old worker has exited", func() bool { return !lab.Alive(old) })
	load.Lossless(t)
	if out := m.CtlOK("status"); strings.Contains(out, "orphaned worker") {
		t.Errorf("the status still lists the old worker:\n%s", out)
	}
}

func TestOrphansKeepServingWhenTheNewReleaseFails(t *testing.T) {
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	m.Start(lab.WebAt(address))
	m.Serves(1)
	old := m.WorkerPID(1)
	m.Die()
	m.Start(strings.Replace(lab.WebWith("exit=3"), "127.0.0.1:0", address, 1))
	m.AwaitN(2, lab.Says(lab.TrialFailed))
	if body := lab.Ask(t, address, "/"); !strings.Contains(body, fmt.Sprintf("pid=%d ", old)) {
		t.Errorf("the answer is %s", body)
	}
	m.Write(lab.WebAt(address))
	m.Reload()
	m.Await(lab.Says(lab.GenerationServes))
	m.Until("the old worker has exited", func() bool { return !lab.Alive(old) })
	lab.Ask(t, address, "/")
}

func TestOrphansEndWithTheSupervisordThatFoundThem(t *testing.T) {
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	m.Start(lab.WebAt(address))
	m.Serves(1)
	old := m.WorkerPID(1)
	m.Die()
	m.Start(strings.Replace(lab.WebWith("exit=3"), "127.0.0.1:0", address, 1))
	m.Await(lab.Says(lab.TrialFailed))
	m.Finish()
	if lab.Alive(old) {
		t.Error("a stop leaves the old worker behind")
	}
}

func TestOrphansOfAnotherConfigurationAreLeftAlone(t *testing.T) {
	t.Parallel()
	a, b := lab.Prepare(t), lab.Prepare(t)
	a.Start(lab.Web)
	a.Serves(1)
	address, old := a.Address(), a.WorkerPID(1)
	a.Die()
	b.Write(lab.Web)
	b.File("config.toml", strings.Replace(b.Read("config.toml"), b.Path("run"), a.Path("run"), 1))
	b.Launch("-c", b.Path("config.toml"))
	b.Serves(1)
	b.Never(lab.Contains("orphaned worker"))
	b.Finish()
	if body := lab.Ask(t, address, "/"); !strings.Contains(body, fmt.Sprintf("pid=%d ", old)) {
		t.Errorf("the answer is %s", body)
	}
	a.Start(lab.WebAt(address))
	a.Serves(1)
	a.Until("the old worker has exited", func() bool { return !lab.Alive(old) })
}
