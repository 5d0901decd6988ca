package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestStartWithoutPermissionToAdoptSaysHowToFindTheHolderOfTheSocket(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to run as two users")
	}
	m, address := lab.Prepare(t), lab.Reserve(t)
	m.Start(lab.WebAt(address))
	m.Serves(1)
	old := m.WorkerPID(1)
	m.Die()
	lab.Must(t, os.Chown(m.Dir, 65534, 65534))
	m.As = &syscall.Credential{Uid: 65534, Gid: 65534}
	m.Write(lab.WebAt(address))
	m.File("config.toml", strings.Replace(m.Read("config.toml"), m.Path("run"), m.Path("run2"), 1))
	m.Launch("-c", m.Path("config.toml"))
	m.Wait()
	if code := m.Cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	m.Await(lab.Contains("cannot listen on tcp " + address + ": address already in use: `ss -ltnp` as root shows which process has it"))
	if !lab.Alive(old) {
		t.Error("the worker of the other user has exited")
	}
	m.Sweep()
}

func TestStartWithAPortInUseNamesTheProcess(t *testing.T) {
	t.Parallel()
	address := lab.Occupy(t)
	m := lab.Prepare(t)
	m.Start(lab.WebAt(address))
	m.Ends(1)
	m.Await(lab.Contains("address already in use"), lab.Contains("has it: stop that or choose another port"))
}

func TestSupervisordOnRTMIN1LeavesItsWorkersToTheNextOne(t *testing.T) {
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	config := lab.PIDFile + strings.Replace(lab.WebAt(address), "{worker}", "{hello}", 1)
	m.Start(config)
	m.Serves(1)
	old := m.WorkerPID(1)
	load := lab.Press(t, address, 4, 5*time.Millisecond)
	m.Signal(syscall.Signal(35)) // RTMIN+1
	m.Wait()
	if code := m.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(m.Path("p.pid")); err == nil {
		t.Error("the pid file is still there")
	}
	if _, err := os.Lstat(m.Path("run/control.sock")); err == nil {
		t.Error("the control socket is still there")
	}
	lab.Ask(t, address, "/")
	m.Start(config)
	m.Serves(1)
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(old) })
	load.Lossless(t)
}
