package tests

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const pidFile = "pid_file = \"{dir}/p.pid\"\n"

func TestThePIDFileHoldsThePIDAndIsRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := start(t, pidFile+web)
	m.serves(1)
	if got, want := m.read("p.pid"), strconv.Itoa(m.pid())+"\n"; got != want {
		t.Errorf("the pid file has %q, want %q", got, want)
	}
	m.signal(syscall.SIGTERM)
	m.ends(0) // sees that there is no pid file left
}

func TestAStalePIDFileIsTakenOver(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("p.pid", "1\n")
	m.start(pidFile + web)
	m.serves(1)
	if got := number(m.path("p.pid")); got != m.pid() {
		t.Errorf("the pid file has %d, want %d", got, m.pid())
	}
}

func TestAPIDFileInUseIsLeftAloneAndSaidSo(t *testing.T) {
	t.Parallel()
	m := start(t, pidFile+web)
	m.serves(1)
	out, code := m.run("-c", m.path("config.toml"))
	if code != 1 || !strings.Contains(out, strconv.Itoa(m.pid())) {
		t.Errorf("exit code %d, and nothing of the PID %d: %s", code, m.pid(), out)
	}
	if got := number(m.path("p.pid")); got != m.pid() {
		t.Errorf("the pid file has %d, want %d", got, m.pid())
	}
	ask(t, m.address(), "/")
}

func TestAPIDFileThatIsNoFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	must(t, os.Mkdir(m.path("p.d"), 0o755))
	m.write("pid_file = \"{dir}/p.d\"\n" + web)
	if out, code := m.run("-c", m.path("config.toml")); code != 1 || !strings.Contains(out, m.path("p.d")) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := os.Stat(m.path("p.d")); err != nil {
		t.Error(err)
	}
}

func TestAPIDFileOfSomebodyElseIsNotRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(pidFile, "p.pid", "pid", 1)+web)
	m.serves(1)
	must(t, os.Remove(m.path("pid")))
	m.file("pid", "4711\n")
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if m.read("pid") != "4711\n" {
		t.Error("the file of somebody else was changed")
	}
}

func TestAStartThatFailsLeavesNoPIDFile(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.write(pidFile + strings.Replace(web, "127.0.0.1:0", occupy(t), 1))
	m.launch("-c", m.path("config.toml"))
	m.ends(1)
}

func TestAReloadKeepsThePIDFile(t *testing.T) {
	t.Parallel()
	m := start(t, pidFile+web)
	m.serves(1)
	m.reload()
	m.serves(2)
	if got := number(m.path("p.pid")); got != m.pid() {
		t.Errorf("the pid file has %d, want %d", got, m.pid())
	}
}
