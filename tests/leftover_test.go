package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"
)

// webAt is web at a known address.
func webAt(address string) string { return strings.Replace(web, "127.0.0.1:0", address, 1) }

func TestAStartThatMayNotTakeTheSocketOfALeftOverSaysHowToFindWhoHasIt(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run as two users")
	}
	m, address := prepare(t), ports.Reserve(t)
	m.start(webAt(address))
	m.serves(1)
	old := m.worker(1)
	m.die()
	must(t, os.Chown(m.dir, 65534, 65534))
	m.as = &syscall.Credential{Uid: 65534, Gid: 65534}
	m.write(webAt(address))
	m.file("config.toml", strings.Replace(m.read("config.toml"), m.path("run"), m.path("run2"), 1))
	m.launch("-c", m.path("config.toml"))
	<-m.ended
	m.over = true
	if code := m.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("it ends with %d", code)
	}
	m.await(contains("cannot listen on tcp " + address + ": address already in use: `ss -ltnp` as root shows who has it"))
	if !alive(old) {
		t.Error("the worker of the other user has ended")
	}
	m.sweep()
}

func TestAStartThatFindsItsPortInOtherHandsNamesTheProcess(t *testing.T) {
	t.Parallel()
	address := occupy(t)
	m := prepare(t)
	m.start(webAt(address))
	m.ends(1)
	m.await(contains("address already in use"), contains("has it: stop that or choose another port"))
}

func TestASupervisordThatIsToldToLeaveLeavesItsWorkersToTheNextOne(t *testing.T) {
	t.Parallel()
	m, address := prepare(t), ports.Reserve(t)
	config := pidFile + strings.Replace(webAt(address), "{worker}", "{hello}", 1)
	m.start(config)
	m.serves(1)
	old := m.worker(1)
	load := press(t, address, 4, 5*time.Millisecond)
	m.signal(syscall.Signal(35)) // RTMIN+1
	<-m.ended
	m.over = true
	if code := m.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	if _, err := os.Stat(m.path("p.pid")); err == nil {
		t.Error("the pid file is still there")
	}
	if _, err := os.Lstat(m.path("run/control.sock")); err == nil {
		t.Error("the control socket is still there")
	}
	ask(t, address, "/")
	m.start(config)
	m.serves(1)
	m.until("the worker that was left has gone", func() bool { return !alive(old) })
	load.lossless(t)
}
