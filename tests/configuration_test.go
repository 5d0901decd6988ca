package tests

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"

	"golang.org/x/sys/unix"
)

// other is a second program, beside web.
const other = `
[program.other]
command = [{worker}]
ready.method = "notify"
`

// listener is one more for the program before it.
func listener(address string) string {
	return "[[program.web.listen]]\naddress = \"" + address + "\"\n"
}

func TestAProgramThatIsNewStarts(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(web + other)
	m.reload()
	m.await(says(generationServes), program("other"), gen(1))
}

func TestAProgramThatIsRemovedStops(t *testing.T) {
	t.Parallel()
	m := start(t, web+other)
	m.await(says(generationServes), program("web"))
	gone := m.await(says(workerReady), program("other")).PID
	m.write(web)
	m.reload()
	m.await(says(notConfigured), program("other"))
	m.await(says(programStopped), program("other"))
	if alive(gone) {
		t.Error("its worker is alive")
	}
	m.await(says(generationServes), program("web"), gen(2))
}

func TestAProgramThatComesBackStartsAgain(t *testing.T) {
	t.Parallel()
	m := start(t, web+other)
	m.await(says(generationServes), program("other"))
	m.write(web)
	m.reload()
	m.await(says(programStopped), program("other"))
	m.write(web + other)
	last := m.reload()
	m.await(says(generationServes), program("other"), after(last))
}

func TestAProgramThatComesBackWhileItStopsStartsAgain(t *testing.T) {
	t.Parallel()
	slow := strings.Replace(other, "{worker}", `{worker}, "term=500ms"`, 1)
	m := start(t, web+slow)
	m.await(says(generationServes), program("other"))
	m.write(web)
	m.reload()
	m.await(says(workerTold), program("other"))
	m.write(web + slow)
	last := m.reload()
	m.await(says(generationServes), program("other"), after(last))
	m.await(says(workerStopped), program("other"))
}

func TestAProgramThatChangedHasItsNewConfiguration(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(web + "[program.web.environment]\nWORD = \"new\"\n")
	m.reload()
	m.gone(1)
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "word=new") {
		t.Errorf("there answers %s", got)
	}
}

func TestAListenerThatIsKeptIsTheSameSocket(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	first := descriptors(t, m.worker(1))[3]
	m.write(web + listener("127.0.0.1:0"))
	m.reload()
	m.serves(2)
	if second := descriptors(t, m.worker(2))[3]; second != first {
		t.Errorf("before it was %s, then %s", first, second)
	}
}

func TestAListenerThatIsNewIsOpenedByAReload(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	at := ports.Reserve(t)
	m.write(web + listener(at))
	m.reload()
	m.serves(2)
	if got := ask(t, at, "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("there answers %s", got)
	}
}

func TestAListenerThatIsRemovedIsClosedWhenTheLastGenerationThatHasItIsGone(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	at := ports.Reserve(t)
	gate := m.fifo("gate")
	m.start(web + listener(at))
	m.serves(1)
	m.write(webWith("gate=" + gate))
	m.reload()
	m.worker(2)
	ask(t, at, "/") // the first generation serves still, with all that it has
	m.open(gate)
	m.gone(1)
	m.until("nobody listens there", func() bool {
		_, err := get(at, "/")
		return err != nil && kind(err) == "connect refused"
	})
}

func TestAListenerThatCannotBeOpenedFailsTheWholeReload(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	free, taken := ports.Reserve(t), occupy(t)
	m.write(web + listener(free) + listener(taken) + other)
	m.reload()
	if l := m.await(says(refused)); !strings.Contains(l.Error, taken) || !strings.Contains(l.Error, "in use") {
		t.Errorf("the log says %s", l.text)
	}
	m.untouched(m.worker(1))
	m.never(program("other"))
	if got := addresses(t, m.pid()); len(got) != 1 {
		t.Errorf("supervisord listens on %v", got)
	}
}

func TestAListenerThatMovesIsOpenBeforeTheOldOneIsClosed(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	from, to := ports.Reserve(t), ports.Reserve(t)
	m.start(strings.Replace(web, "127.0.0.1:0", from, 1))
	m.serves(1)
	m.write(strings.Replace(web, "127.0.0.1:0", to, 1))
	m.reload()
	m.serves(2)
	ask(t, to, "/")
	m.gone(1)
}

// queue is the backlog of a listening socket of supervisord's.
func queue(t *testing.T, m *master, path string) uint32 {
	t.Helper()
	for fd, to := range descriptors(t, m.pid()) {
		if to == path {
			tcp, err := unix.GetsockoptTCPInfo(steal(t, m.pid(), fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			must(t, err)
			return tcp.Sacked // of a socket that listens, this is the limit of its queue
		}
	}
	t.Fatalf("supervisord does not have %s", path)
	return 0
}

func TestABacklogIsChangedInPlace(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(web, "[program.web.ready]", "backlog = 16\n[program.web.ready]", 1))
	m.serves(1)
	socket := descriptors(t, m.worker(1))[3]
	if got := queue(t, m, socket); got != 16 {
		t.Errorf("the backlog is %d, want 16", got)
	}
	m.write(strings.Replace(web, "[program.web.ready]", "backlog = 32\n[program.web.ready]", 1))
	m.reload()
	m.serves(2)
	if got := descriptors(t, m.worker(2))[3]; got != socket {
		t.Errorf("the socket was %s and is %s", socket, got)
	}
	if got := queue(t, m, socket); got != 32 {
		t.Errorf("the backlog is %d, want 32", got)
	}
}

func TestTheModeOfAUnixSocketIsChangedInPlace(t *testing.T) {
	t.Parallel()
	with := func(mode string) string {
		return strings.Replace(web, "127.0.0.1:0\"", "unix:{dir}/s\"\nmode = \""+mode+"\"", 1)
	}
	m := start(t, with("0600"))
	m.serves(1)
	before, err := os.Stat(m.path("s"))
	must(t, err)
	m.write(with("0666"))
	m.reload()
	m.serves(2)
	now, err := os.Stat(m.path("s"))
	must(t, err)
	if before.Mode().Perm() != 0o600 || now.Mode().Perm() != 0o666 || !os.SameFile(before, now) {
		t.Errorf("it was %v and is %v; the same: %v", before.Mode(), now.Mode(), os.SameFile(before, now))
	}
}

func TestAnIncludedFileIsReadAgainAtAReload(t *testing.T) {
	t.Parallel()
	m := start(t, "include = [\"conf.d/*.toml\"]\n"+web)
	m.serves(1)
	m.file("conf.d/other.toml", other)
	m.reload()
	m.await(says(generationServes), program("other"))
}

func TestTheLogLevelHoldsFromTheReloadOn(t *testing.T) {
	t.Parallel()
	m := start(t, "log_level = \"info\"\n"+web)
	m.serves(1)
	m.never(says(workerRuns))
	m.write(web) // debug
	m.reload()
	m.await(says(workerRuns), gen(2))
}

func TestWhatNeedsARestartOfSupervisordIsWarnedOf(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write("pid_file = \"{dir}/p.pid\"\n" + web)
	m.reload()
	if l := m.await(contains("until supervisord itself is started again")); l.Level != "warn" {
		t.Errorf("the log says %s", l.text)
	}
}

func TestAConfigurationThatHasGoneIsOneErrorAndNothingElse(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	must(t, os.Remove(m.path("config.toml")))
	m.reload()
	m.await(says(refused))
	m.untouched(m.worker(1))
}

func TestAUDPSocketKeepsItsDatagramsOverAReload(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(plain, "{sleep}", `{worker}`, 1)+listener("udp:127.0.0.1:0"))
	m.serves(1)
	name, err := unix.Getsockname(steal(t, m.worker(1), 3))
	must(t, err)
	c, err := net.Dial("udp", (&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String())
	must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	must(t, err)
	m.reload()
	m.gone(1)
	mine := steal(t, m.worker(2), 3)
	must(t, unix.SetsockoptTimeval(mine, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	buf := make([]byte, 10)
	if n, err := unix.Read(mine, buf); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("the second generation reads %q, %v", buf[:max(n, 0)], err)
	}
}

func TestPerSlotIsASocketForEachSlotWhichReloadsKeep(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(web, "[[program", "workers = 3\n[[program", 1)+"[program.web.restart]\n")
	m.serves(1)
	m.write(strings.Replace(strings.Replace(web, "[[program", "workers = 3\n[[program", 1), "127.0.0.1:0\"", ports.Reserve(t)+"\"\nper_slot = true", 1))
	m.reload()
	m.serves(2)
	inodes := map[string]bool{}
	for n := range 3 {
		inodes[descriptors(t, m.await(says(workerRuns), gen(2), slot(n)).PID)[3]] = true
	}
	m.reload()
	m.serves(3)
	for n := range 3 {
		inodes[descriptors(t, m.await(says(workerRuns), gen(3), slot(n)).PID)[3]] = true
	}
	if len(inodes) != 3 {
		t.Errorf("three slots of two generations have %d sockets, want 3", len(inodes))
	}
}

func TestASlowReloadDoesNotHoldUpTERM(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	began := time.Now()
	for range 5 {
		m.signal(syscall.SIGHUP)
	}
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
