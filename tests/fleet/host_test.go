package fleet

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// nobody is who the hosts are, seen from outside, if the tests run as root.
const nobody = 65534

// longPatience is how long a playbook may take on a busy machine.
const longPatience = 5 * time.Minute

// host is one machine of the fleet.
type host struct {
	t       testing.TB
	name    string
	root    string // its root directory
	address string // of its program
	init    *exec.Cmd
	traffic *lab.Traffic
}

// file writes a file of the host.
func (h *host) file(path, text string) {
	h.t.Helper()
	lab.Must(h.t, os.MkdirAll(filepath.Dir(h.root+path), 0o755))
	lab.Must(h.t, os.WriteFile(h.root+path, []byte(text), 0o600))
	h.own(path)
}

// own gives a file or directory to the host.
func (h *host) own(path string) {
	h.t.Helper()
	if os.Geteuid() == 0 {
		lab.Must(h.t, os.Chown(h.root+path, nobody, nobody))
	}
}

// ordinary makes a command the host's user, seen from outside.
func ordinary() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// boot starts the host. It ends with the test.
func (h *host) boot(script, opt string) {
	h.t.Helper()
	h.init = exec.Command("unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "--mount", "--pid",
		"--fork", "--kill-child",
		"/bin/sh", script, h.root, opt)
	h.init.SysProcAttr = ordinary()
	h.init.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	log, err := os.Create(h.root + ".log")
	lab.Must(h.t, err)
	defer log.Close()
	h.init.Stdout, h.init.Stderr = log, log
	lab.Must(h.t, h.init.Start())
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("%s:\n%s%s", h.name, lab.Text(h.root+".log"), tail(lab.Text(h.root+"/var/log/supervisord"), 15))
		}
		h.init.Process.Kill()
		h.init.Wait()
	})
}

func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// processes returns the processes of the host with this name, seen from outside.
func (h *host) processes(name string) (found []int) {
	root, err := os.Stat(h.root)
	lab.Must(h.t, err)
	for _, pid := range proc.PIDs() {
		if proc.Name(pid) != name {
			continue
		}
		if at, err := os.Stat(proc.Path(pid, "root")); err == nil && os.SameFile(root, at) {
			found = append(found, pid)
		}
	}
	return found
}

// kill kills the processes of the host with this name whose command line ends like this.
func (h *host) kill(name, end string) {
	h.t.Helper()
	killed := 0
	for _, pid := range h.processes(name) {
		if strings.HasSuffix(lab.Cmdline(pid), end) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		h.t.Fatalf("%s has no process %s … %s", h.name, name, end)
	}
}

// vanish ends the sshd of the host, and its connections.
func (h *host) vanish() {
	h.t.Helper()
	h.file("/etc/unreachable", "")
	h.kill("sshd", "")
}

// comeBack starts sshd again.
func (h *host) comeBack(f *fleet) {
	h.t.Helper()
	lab.Must(h.t, os.Remove(h.root+"/etc/unreachable"))
	h.answers(f.sshPort)
}

// status asks the supervisord of the host.
func (h *host) status() *supervisor.ProgramStatus {
	h.t.Helper()
	command := exec.Command(lab.Built.Supervisord, "status", "--json", "--socket", h.root+"/run/supervisord/control.sock")
	command.SysProcAttr = ordinary()
	out, err := command.Output()
	var st supervisor.Status
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	if err != nil {
		h.t.Fatalf("%s: %v", h.name, err)
	}
	return st.Program("web")
}

// serves fails unless this release answers, is current, and is what supervisord says.
func (h *host) serves(version string) {
	h.t.Helper()
	if got := lab.Ask(h.t, h.address, "/"); !strings.Contains(got, "version="+version+" ") {
		h.t.Errorf("%s answers %q, want version %s", h.name, got, version)
	}
	if to, _ := os.Readlink(h.root + "/srv/web/current"); !strings.HasPrefix(to, "releases/"+version+"-") {
		h.t.Errorf("current of %s leads to %s, want version %s", h.name, to, version)
	}
	for _, g := range h.status().Generations {
		if g.Role == program.RoleServing && !strings.HasPrefix(g.Directory, "/srv/web/releases/"+version+"-") {
			h.t.Errorf("%s serves from %s, want version %s", h.name, g.Directory, version)
		}
	}
}

// prepare fills the root of the host.
func (h *host) prepare(sshPort int) {
	h.t.Helper()
	for _, dir := range []string{"", "/usr", "/dev", "/proc", "/opt", "/local", "/local/bin", "/etc", "/etc/ssh",
		"/etc/supervisord", "/home", "/home/deploy",
		"/run", "/run/supervisord", "/srv", "/srv/web", "/tmp", "/var", "/var/log"} {
		lab.Must(h.t, os.Mkdir(h.root+dir, 0o755))
		h.own(dir)
	}
	h.file("/etc/passwd", "deploy:x:1000:1000::/home/deploy:/bin/sh\n")
	h.file("/etc/group", "deploy:x:1000:\n")
	ip, _, _ := strings.Cut(h.address, ":")
	h.file("/etc/ssh/sshd_config", fmt.Sprintf(`ListenAddress %s
Port %d
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
MaxStartups 100
MaxSessions 100
`, ip, sshPort))
}

// tries waits until a generation is on trial.
func (h *host) tries() {
	h.t.Helper()
	h.until("a generation is on trial", longPatience, func() bool {
		return slices.ContainsFunc(h.status().Generations,
			func(g supervisor.GenerationStatus) bool { return g.Role == program.RoleTrial && g.Share > 0 })
	})
}

// until waits until a condition holds.
func (h *host) until(what string, patience time.Duration, holds func() bool) {
	h.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("%s: still not true after %v: %s", h.name, patience, what)
		}
	}
}

// answers waits until a server of the host accepts connections.
func (h *host) answers(port int) {
	h.t.Helper()
	ip, _, _ := strings.Cut(h.address, ":")
	h.until("it can be reached", lab.Patience, func() bool {
		c, err := net.Dial("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}
