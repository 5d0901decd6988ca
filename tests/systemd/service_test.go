package systemd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// helloConfig runs examples/hello with two workers.
const helloConfig = `
[program.hello]
command = ["/usr/local/bin/hello", "-version", "1"]
workers = 2

[[program.hello.listen]]
name    = "http"
address = "127.0.0.1:8080"

[program.hello.ready]
method = "notify"
`

// Prepare puts supervisord, its unit, examples/hello and a configuration into the lab, without starting it.
func (l *Lab) Prepare(config string) {
	l.t.Helper()
	l.Install("cmd/supervisord", "/usr/local/bin/supervisord")
	l.Install("examples/hello", "/usr/local/bin/hello")
	l.Copy(filepath.Join(repository(l.t), "systemd/supervisord.service"), "/etc/systemd/system/supervisord.service")
	l.Write("/etc/supervisord/config.toml", config, 0o644)
	l.Run("systemctl", "daemon-reload")
}

// Start is Prepare, and starts the service.
func (l *Lab) Start(config string) {
	l.t.Helper()
	l.Prepare(config)
	l.Run("systemctl", "start", "supervisord")
}

// Keeps fails the test if the workers of hello are not these.
func (l *Lab) Keeps(workers []string) {
	l.t.Helper()
	if now := l.Workers("hello"); !slices.Equal(now, workers) {
		l.t.Errorf("the workers were %v and are %v", workers, now)
	}
}

// Workers returns the PIDs (inside the lab) of the processes with this name, oldest first. It reads the lab's /proc
// from outside, which costs less than a command inside: many tests ask again and again.
func (l *Lab) Workers(name string) []string {
	l.t.Helper()
	dir, err := os.Open(l.Path("/proc"))
	must(l.t, err)
	defer dir.Close()
	pids, err := dir.Readdirnames(-1) // in the order of the PIDs
	must(l.t, err)
	return slices.DeleteFunc(pids, func(pid string) bool {
		comm, err := os.ReadFile(filepath.Join(dir.Name(), pid, "comm"))
		return err != nil || string(comm) != name+"\n"
	})
}

func TestServiceServesLosesNoRequestAtAReloadAndLeavesNoWorker(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(helloConfig)
		before := l.Workers("hello")
		if len(before) != 2 {
			t.Errorf("the workers are %v, want two", before)
		}
		load := l.Load("127.0.0.1:8080", 2, 2)
		l.Until("the load runs", func() bool { return load.Requests() > 100 })
		l.reloads(t, before)
		load.Lossless()
		l.Run("systemctl", "stop", "supervisord")
		l.cleanStop(t)
	})
}

func TestWorkersRunAsAUserOfTheNameServiceSwitch(t *testing.T) {
	const module = "/usr/lib/libnss_extrausers.so.2"
	if _, err := os.Stat(module); err != nil {
		t.Skip("libnss-extrausers is missing")
	}
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare("[program.sleep]\ncommand = [\"sleep\", \"4321\"]\nuser = \"alice\"\nready.delay = \"10ms\"\n")
		if out, code := l.Try("supervisord", "check"); code != 78 || !strings.Contains(out, `there is no user "alice"`) {
			t.Errorf("without the user check exits with %d: %s", code, out)
		}
		l.Copy(module, module)
		l.Write("/etc/nsswitch.conf", "passwd: files extrausers\ngroup: files extrausers\n", 0o644)
		l.Write("/var/lib/extrausers/passwd", "alice:x:4242:4240::/tmp:/bin/sh\n", 0o644)
		l.Write("/var/lib/extrausers/group", "staff2:x:4243:alice\n", 0o644)
		l.Run("systemctl", "start", "supervisord")
		status := strings.Join(strings.Fields(
			l.Run("grep", "-E", "^([UG]id|Groups):", "/proc/"+l.Run("pgrep", "-x", "sleep")+"/status")), " ")
		if status != "Uid: 4242 4242 4242 4242 Gid: 4240 4240 4240 4240 Groups: 4240 4243" {
			t.Errorf("the worker runs as %s", status)
		}
		// the running supervisord, whose reaper collects getent, finds the user, too
		l.Run("systemctl", "reload", "supervisord")
	})
}
