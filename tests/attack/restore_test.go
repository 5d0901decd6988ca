package attack

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

// spoiled lists what may have happened to files and paths since the workers were started. repair undoes it.
var spoiled = map[string]func(t *testing.T, m *lab.Supervisord) (repair func()){
	"the folder of logs and sockets is gone": func(t *testing.T, m *lab.Supervisord) func() {
		lab.Must(t, os.Rename(m.Path("d"), m.Path("e"))) // at once: what is removed one by one is put back meanwhile
		lab.Must(t, os.RemoveAll(m.Path("e")))
		return func() { lab.Must(t, os.Mkdir(m.Path("d"), 0o755)) }
	},
	"a directory stands where the log file stood": func(t *testing.T, m *lab.Supervisord) func() {
		lab.Must(t, os.Remove(m.Path("d/out.log")))
		lab.Must(t, os.Mkdir(m.Path("d/out.log"), 0o755))
		return func() { lab.Must(t, os.Remove(m.Path("d/out.log"))) }
	},
	"a file stands where the socket stood": func(t *testing.T, m *lab.Supervisord) func() {
		lab.Must(t, os.Rename(m.File("d/x", "x"), m.Path("d/web.sock")))
		return func() { lab.Must(t, os.Remove(m.Path("d/web.sock"))) }
	},
	"another process listens there": func(t *testing.T, m *lab.Supervisord) func() {
		other, err := net.Listen("unix", m.Path("d/x"))
		lab.Must(t, err)
		t.Cleanup(func() { other.Close() })
		lab.Must(t, os.Rename(m.Path("d/x"), m.Path("d/web.sock")))
		return func() { lab.Must(t, errors.Join(os.Remove(m.Path("d/web.sock")), other.Close())) }
	},
	"the runtime directory is a file": func(t *testing.T, m *lab.Supervisord) func() {
		lab.Must(t, os.RemoveAll(m.Path("run")))
		m.File("run", "x")
		return func() { lab.Must(t, os.Remove(m.Path("run"))) }
	},
}

const manyThings = `
[program.web]
command = [{worker}]
stdout = "{dir}/d/out.log"
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[[program.web.listen]]
name = "path"
address = "unix:{dir}/d/web.sock"
[program.web.ready]
method = "notify"
`

// TestMissingFilesAndPathsKeepNobodyFromTakingOver damages the files and paths that a supervisord has opened, and lets
// the next one take over, after an upgrade or a death. The worker keeps running, and a reload works after the repair.
func TestMissingFilesAndPathsKeepNobodyFromTakingOver(t *testing.T) {
	t.Parallel()
	for what, spoil := range spoiled {
		for how, next := range map[string]func(*fakeSystemd){
			"upgrade": func(sd *fakeSystemd) { sd.m.Upgrade(lab.Upgraded) },
			"death":   func(sd *fakeSystemd) { sd.m.Die(); sd.Start() },
		} {
			t.Run(what+"/"+how, func(t *testing.T) {
				t.Parallel()
				takesOver(t, spoil, next)
			})
		}
	}
}

func takesOver(t *testing.T, spoil func(*testing.T, *lab.Supervisord) func(), next func(*fakeSystemd)) {
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("d"), 0o755))
	m.Write(manyThings)
	sd := openSystemd(m)
	sd.Start()
	m.Serves(1)
	worker, address := m.WorkerPID(1), m.Address()
	sd.Stored(".1", 1)
	sd.Stored(".5", 1)
	repair := spoil(t, m)
	next(sd)
	m.Await(lab.Says(lab.Adopted), lab.PID(worker))
	m.Settle()
	if body := lab.Ask(t, address, "/"); !strings.Contains(body, fmt.Sprintf("pid=%d ", worker)) &&
		!strings.Contains(body, "generation=2") {
		t.Errorf("the answer is %s", body)
	}
	m.Never(lab.Says(lab.UpgradeFailed))
	repair()
	// A worker that is stopped loses what it has not read. Perhaps the reload waits for one that has bound the path again.
	reload := m.Reload()
	served := m.Await(lab.Says(lab.GenerationServes), lab.Contains(`"reason":"HUP"`), lab.After(reload))
	m.Await(lab.Says(lab.GenerationGone), lab.Gen(served.Generation-1))
	lab.Ask(t, address, "/")
	lab.Ask(t, "unix:"+m.Path("d/web.sock"), "/")
}

func TestUpgradeKeepsEveryByteOfAnEnvironment(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	secret := []byte("p\xe4ss\xffword")
	lab.Must(t, os.WriteFile(m.Path("e.env"), append([]byte("SECRET="), secret...), 0o644))
	m.Start(strings.Replace(lab.Web, "\n[[",
		"\nenvironment_file = [\"{dir}/e.env\"]\nrestart = { backoff = { min = \"10ms\", max = \"10ms\" } }\n[[", 1))
	m.Serves(1)
	m.Upgrade(lab.Upgraded)
	adopted := m.Await(lab.Says(lab.Adopted))
	lab.Must(t, syscall.Kill(adopted.PID, syscall.SIGKILL))
	ready := m.Await(lab.Says(lab.WorkerReady), lab.After(adopted))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", ready.PID))
	lab.Must(t, err)
	if !bytes.Contains(environ, append([]byte("\x00SECRET="), append(secret, 0)...)) {
		t.Errorf("the environment is %q", environ)
	}
}
