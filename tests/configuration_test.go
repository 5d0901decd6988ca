package tests

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// other is a second program beside web.
const other = `
[program.other]
command = [{worker}]
ready.method = "notify"
`

func TestNewProgramStarts(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.Web + other)
	m.Reload()
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"), lab.Gen(1))
}

func TestRemovedProgramStops(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+other)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	gone := m.Await(lab.Says(lab.WorkerReady), lab.Program("other")).PID
	m.Write(lab.Web)
	m.Reload()
	m.Await(lab.Says(lab.NotConfigured), lab.Program("other"))
	m.Await(lab.Says(lab.ProgramStopped), lab.Program("other"))
	if lab.Alive(gone) {
		t.Error("its worker is alive")
	}
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"), lab.Gen(2))
}

func TestProgramAddedAgainStarts(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+other)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	m.Write(lab.Web)
	m.Reload()
	m.Await(lab.Says(lab.ProgramStopped), lab.Program("other"))
	m.Write(lab.Web + other)
	last := m.Reload()
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"), lab.After(last))
}

func TestProgramAddedAgainWhileItStopsStarts(t *testing.T) {
	t.Parallel()
	slow := strings.Replace(other, "{worker}", `{worker}, "term=500ms"`, 1)
	m := lab.Start(t, lab.Web+slow)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	m.Write(lab.Web)
	m.Reload()
	m.Await(lab.Says(lab.WorkerTold), lab.Program("other"))
	m.Write(lab.Web + slow)
	last := m.Reload()
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"), lab.After(last))
	m.Await(lab.Says(lab.WorkerStopped), lab.Program("other"))
}

func TestChangedProgramGetsItsNewConfiguration(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.Web + "[program.web.environment]\nWORD = \"new\"\n")
	m.Reload()
	m.Gone(1)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "word=new") {
		t.Errorf("the answer is %s", got)
	}
}

func TestKeptListenerIsTheSameSocketWhereGenerationsShareIt(t *testing.T) {
	t.Parallel()
	share := strings.Replace(lab.Web, "127.0.0.1:0\"", "127.0.0.1:0\"\nhandover = \"share\"", 1)
	m := lab.Start(t, share)
	m.Serves(1)
	first := lab.Descriptors(t, m.WorkerPID(1))[3]
	m.Write(share + lab.Listener("127.0.0.1:0"))
	m.Reload()
	m.Serves(2)
	if second := lab.Descriptors(t, m.WorkerPID(2))[3]; second != first {
		t.Errorf("the socket was %s, then %s", first, second)
	}
}

func TestGenerationsTakeTurnsWithTheirSockets(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	address, sockets := m.Address(), []string{""}
	for n := 1; n <= 4; n++ {
		sockets = append(sockets, lab.Descriptors(t, m.WorkerPID(n))[3])
		m.Write(lab.Web + strings.Repeat(lab.Listener("127.0.0.1:0"), n%2))
		m.Reload()
		m.Serves(n + 1)
		m.Gone(n)
	}
	if sockets[1] == sockets[2] || sockets[1] != sockets[3] || sockets[2] != sockets[4] {
		t.Errorf("the generations had the sockets %v", sockets[1:])
	}
	if now := m.Address(); now != address {
		t.Errorf("the address was %s, and is %s", address, now)
	}
}

func TestNewListenerIsOpenedByAReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	at := lab.Reserve(t)
	m.Write(lab.Web + lab.Listener(at))
	m.Reload()
	m.Serves(2)
	if got := lab.Ask(t, at, "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("the answer is %s", got)
	}
}

func TestRemovedListenerIsClosedWithItsLastGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	at := lab.Reserve(t)
	gate := m.Gate("gate")
	m.Start(lab.Web + lab.Listener(at))
	m.Serves(1)
	m.Write(lab.WebWith("gate=" + gate))
	m.Reload()
	m.WorkerPID(2)
	lab.Ask(t, at, "/") // the first generation still serves, with all its listeners
	m.Open(gate)
	m.Gone(1)
	m.Until("the address is closed", func() bool {
		_, err := lab.Get(at, "/")
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func TestListenerThatCannotBeOpenedFailsTheWholeReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	free, taken := lab.Reserve(t), lab.Occupy(t)
	m.Write(lab.Web + lab.Listener(free) + lab.Listener(taken) + other)
	m.Reload()
	if l := m.Await(lab.Says(lab.Refused)); !strings.Contains(l.Error, taken) || !strings.Contains(l.Error, "in use") {
		t.Errorf("the log says %s", l.Text)
	}
	m.Untouched(m.WorkerPID(1))
	m.Never(lab.Program("other"))
	if got := lab.Addresses(t, m.PID()); len(got) != 1 {
		t.Errorf("supervisord listens on %v", got)
	}
}

func TestListenerThatMovesIsOpenBeforeTheOldOneIsClosed(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	from, to := lab.Reserve(t), lab.Reserve(t)
	m.Start(strings.Replace(lab.Web, "127.0.0.1:0", from, 1))
	m.Serves(1)
	m.Write(strings.Replace(lab.Web, "127.0.0.1:0", to, 1))
	m.Reload()
	m.Serves(2)
	lab.Ask(t, to, "/")
	m.Gone(1)
}

// queue is the backlog of a listening socket that supervisord holds.
func queue(t *testing.T, m *lab.Supervisord, path string) uint32 {
	t.Helper()
	for fd, to := range lab.Descriptors(t, m.PID()) {
		if to == path {
			tcp, err := unix.GetsockoptTCPInfo(lab.Steal(t, m.PID(), fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			lab.Must(t, err)
			return tcp.Sacked // for a listening socket, the limit of its queue
		}
	}
	t.Fatalf("supervisord does not have %s", path)
	return 0
}

func TestBacklogIsChangedInPlace(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[program.web.ready]", "backlog = 16\n[program.web.ready]", 1))
	m.Serves(1)
	socket := lab.Descriptors(t, m.WorkerPID(1))[3]
	if got := queue(t, m, socket); got != 16 {
		t.Errorf("the backlog is %d, want 16", got)
	}
	m.Write(strings.Replace(lab.Web, "[program.web.ready]", "backlog = 32\n[program.web.ready]", 1))
	m.Reload()
	m.Serves(2)
	for _, s := range []string{socket, lab.Descriptors(t, m.WorkerPID(2))[3]} {
		if got := queue(t, m, s); got != 32 {
			t.Errorf("the backlog of %s is %d, want 32", s, got)
		}
	}
}

func TestModeOfAUnixSocketChanges(t *testing.T) {
	t.Parallel()
	with := func(mode string) string {
		return strings.Replace(lab.Web, "127.0.0.1:0\"", "unix:{dir}/s\"\nmode = \""+mode+"\"", 1)
	}
	m := lab.Start(t, with("0600"))
	m.Serves(1)
	before, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	m.Write(with("0666"))
	m.Reload()
	m.Serves(2)
	now, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	if before.Mode().Perm() != 0o600 || now.Mode().Perm() != 0o666 || !os.SameFile(before, now) {
		t.Errorf("it was %v and is %v; the same: %v", before.Mode(), now.Mode(), os.SameFile(before, now))
	}
}

func TestIncludedFileIsReadAgainAtAReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "include = [\"conf.d/*.toml\"]\n"+lab.Web)
	m.Serves(1)
	m.File("conf.d/other.toml", other)
	m.Reload()
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
}

func TestLogLevelHoldsFromTheReloadOn(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "log_level = \"info\"\n"+lab.Web)
	m.Serves(1)
	m.Never(lab.Says(lab.WorkerRuns))
	m.Write(lab.Web) // debug
	m.Reload()
	m.Await(lab.Says(lab.WorkerRuns), lab.Gen(2))
}

func TestReloadWarnsOfSettingsThatNeedARestart(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write("pid_file = \"{dir}/p.pid\"\n" + lab.Web)
	m.Reload()
	if l := m.Await(lab.Contains("until supervisord itself is started again")); l.Level != "warn" {
		t.Errorf("the log says %s", l.Text)
	}
}

func TestMissingConfigurationLogsOneErrorAndChangesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	lab.Must(t, os.Remove(m.Path("config.toml")))
	m.Reload()
	m.Await(lab.Says(lab.Refused))
	m.Untouched(m.WorkerPID(1))
}

func TestUDPSocketKeepsItsDatagramsOverAReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Plain, "{sleep}", `{worker}`, 1)+lab.Listener("udp:127.0.0.1:0"))
	m.Serves(1)
	name, err := unix.Getsockname(lab.Steal(t, m.WorkerPID(1), 3))
	lab.Must(t, err)
	c, err := net.Dial("udp", (&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String())
	lab.Must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	lab.Must(t, err)
	m.Reload()
	m.Gone(1)
	mine := lab.Steal(t, m.WorkerPID(2), 3)
	lab.Must(t, unix.SetsockoptTimeval(mine, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	buf := make([]byte, 10)
	if n, err := unix.Read(mine, buf); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("the second generation reads %q, %v", buf[:max(n, 0)], err)
	}
}

func TestPerSlotOpensOneSocketPerSlotAndGenerationsTakeTurns(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[[program", "workers = 3\n[[program", 1)+"[program.web.restart]\n")
	m.Serves(1)
	m.Write(strings.Replace(strings.Replace(lab.Web, "[[program", "workers = 3\n[[program", 1), "127.0.0.1:0\"",
		lab.Reserve(t)+"\"\nper_slot = true", 1))
	m.Reload()
	m.Serves(2)
	inodes := map[string]bool{}
	for g := 2; g <= 5; g++ {
		own := map[string]bool{}
		for n := range 3 {
			inode := lab.Descriptors(t, m.Await(lab.Says(lab.WorkerRuns), lab.Gen(g), lab.Slot(n)).PID)[3]
			own[inode], inodes[inode] = true, true
		}
		if len(own) != 3 || len(inodes) != min(3*(g-1), 6) {
			t.Errorf("the three slots of generation %d have %d sockets, and all generations so far had %d", g, len(own),
				len(inodes))
		}
		m.Reload()
		m.Serves(g + 1)
		m.Gone(g)
	}
}

func TestSlowReloadDoesNotHoldUpTERM(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	began := time.Now()
	for range 5 {
		m.Signal(syscall.SIGHUP)
	}
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestSharedListenerIsLoggedOnceWithItsReason(t *testing.T) {
	t.Parallel()
	const shared = "the generations share a listener, so the old one accepts until it is told to stop"
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Reload()
	m.Never(lab.Says(shared))
	m.Write(lab.Web + "[program.web.reload]\nstrategy = \"rolling\"\n")
	m.Reload()
	if e := m.Await(lab.Says(shared), lab.Program("web")); !strings.Contains(e.Text, `strategy \"rolling\"`) {
		t.Errorf("the log says %s", e.Text)
	}
	m.Serves(3)
	m.Reload()
	m.Serves(4)
	if n := m.Count(lab.Says(shared)); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
}
