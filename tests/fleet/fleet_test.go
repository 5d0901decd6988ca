package fleet

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// fleet is some hosts, and the machine from which they are deployed.
type fleet struct {
	t       testing.TB
	dir     string
	hosts   []*host
	sshPort int
	worker  string // what every release starts
}

// newFleet boots hosts that have an sshd, and installs supervisord on them with site.yml.
func newFleet(t testing.TB, size int) *fleet {
	t.Helper()
	f := prepareFleet(t)
	opt := filepath.Join(f.dir, "opt")
	f.fillOpt(opt)
	f.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f.dir+"/key")
	sshPort, port := freePort(t), freePort(t)
	f.sshPort = sshPort
	network := fmt.Sprintf("127.%d.%d.", 10+rand.N(240), rand.N(256))
	var known strings.Builder
	for i := range size {
		h := &host{t: t, name: fmt.Sprintf("web-%02d", i+1), address: fmt.Sprintf("%s%d:%d", network, i+1, port)}
		h.root = filepath.Join(f.dir, h.name)
		h.prepare(sshPort)
		f.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", h.root+"/etc/ssh/host_key")
		h.own("/etc/ssh/host_key")
		h.file("/etc/ssh/authorized_keys", lab.Text(f.dir+"/key.pub"))
		fmt.Fprintf(&known, "[%s%d]:%d %s", network, i+1, sshPort, lab.Text(h.root+"/etc/ssh/host_key.pub"))
		f.hosts = append(f.hosts, h)
	}
	lab.Must(t, os.WriteFile(f.dir+"/known_hosts", []byte(known.String()), 0o644))
	script, err := filepath.Abs("host")
	lab.Must(t, err)
	for _, h := range f.hosts {
		h.boot(script, opt)
	}
	for _, h := range f.hosts {
		h.answers(sshPort)
	}
	f.inventory(sshPort, port)
	return f
}

// prepareFleet makes a directory that the hosts can reach, and skips the test where there is no ansible or there can be
// no hosts.
func prepareFleet(t testing.TB) *fleet {
	t.Helper()
	lab.Fetched(t, "python-ansible")
	lab.Fetched(t, "sshd")
	lab.Need(t, "ssh")
	if !lab.Exists("/usr/bin/python3") {
		t.Skip("/usr/bin/python3, which the modules of ansible run with, is not installed")
	}
	lab.OpenToAll(t)
	try := exec.Command("unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "--mount", "--pid",
		"--fork", "true")
	if out, err := try.CombinedOutput(); err != nil {
		t.Skipf("no user namespace can be made here: %v: %s", err, out)
	}
	dir, err := os.MkdirTemp("", "sv") // t.TempDir has paths too long for unix sockets
	lab.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	lab.Must(t, os.Chmod(dir, 0o755))
	lab.Must(t, os.CopyFS(dir+"/ansible", os.DirFS(lab.Root("examples/fleet/ansible"))))
	return &fleet{t: t, dir: dir, worker: "/opt/hello"}
}

// fillOpt makes /opt of the hosts: the sshd, and the worker that all releases start.
func (f *fleet) fillOpt(opt string) {
	f.t.Helper()
	lab.Must(f.t, os.CopyFS(opt, os.DirFS(lab.Fetched(f.t, "sshd"))))
	f.run("cp", lab.Built.Hello, opt+"/hello")
}

// run runs a preparing command.
func (f *fleet) run(argv ...string) {
	f.t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

// freePort returns a port that nothing uses on any address.
func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp4", ":0")
	lab.Must(t, err)
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// inventory writes the inventory of the hosts.
func (f *fleet) inventory(sshPort, port int) {
	f.t.Helper()
	hosts := map[string]any{}
	for _, h := range f.hosts {
		ip, _, _ := strings.Cut(h.address, ":")
		hosts[h.name] = map[string]any{"ansible_host": ip}
	}
	f.writeInventory(hosts, map[string]any{
		"ansible_user": "deploy", "ansible_port": sshPort, "ansible_become": false,
		"ansible_python_interpreter": "/usr/bin/python3",
		"ansible_ssh_private_key_file": f.dir +
			"/key", "ansible_ssh_common_args": "-F /dev/null -o IdentitiesOnly=yes -o UserKnownHostsFile=" + f.dir +
			"/known_hosts",
		"supervisord_listen": []any{map[string]string{"name": "http",
			"address": "{{ ansible_host }}:" + strconv.Itoa(port)}},
		"supervisord_verify_url": "http://{{ ansible_host }}:" + strconv.Itoa(port) + "/healthz",
	})
}

// writeInventory adds what all fleets have in common.
func (f *fleet) writeInventory(hosts, vars map[string]any) {
	f.t.Helper()
	for key, value := range map[string]any{
		"supervisord_program": "web", "supervisord_artifact": f.dir + "/web-{{ supervisord_release }}.tar.gz",
		"supervisord_command": []string{"./web"}, "supervisord_ready": map[string]string{"method": "http",
			"url": "http://{listener:http}/healthz"},
		"supervisord_binary": lab.Built.Supervisord, "supervisord_service": "", "supervisord_user": "",
		"supervisord_canary_for": "1s", "supervisord_keep": "1s", "supervisord_verify_retries": 1,
	} {
		vars[key] = value
	}
	raw, err := json.Marshal(map[string]any{"web": map[string]any{"hosts": hosts, "vars": vars}})
	lab.Must(f.t, err)
	lab.Must(f.t, os.WriteFile(f.dir+"/inventory.yml", raw, 0o644))
}

// release makes an archive with a worker: a shell script with these lines, and then hello with these flags.
func (f *fleet) release(version, lines string, flags ...string) {
	f.t.Helper()
	script := "#!/bin/sh\n" + lines + "exec " + f.worker + " -version " + version + " " + strings.Join(flags, " ") + "\n"
	out, err := os.Create(f.dir + "/web-" + version + ".tar.gz")
	lab.Must(f.t, err)
	packed := gzip.NewWriter(out)
	archive := tar.NewWriter(packed)
	lab.Must(f.t, archive.WriteHeader(
		&tar.Header{Name: "web", Mode: 0o755, Size: int64(len(script)), ModTime: time.Now()}))
	_, err = archive.Write([]byte(script))
	lab.Must(f.t, errors.Join(err, archive.Close(), packed.Close(), out.Close()))
}

// played is what ansible-playbook said.
type played struct {
	t    testing.TB
	out  string
	code int
}

// play runs a playbook of a copy of the example.
func (f *fleet) play(book string, args ...string) played {
	f.t.Helper()
	command := exec.Command(lab.Fetched(f.t, "python-ansible")+"/bin/ansible-playbook",
		append([]string{"-i", f.dir + "/inventory.yml", book}, args...)...)
	command.Dir = f.dir + "/ansible"
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "LANG=C.UTF-8", "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_CONFIG=" + command.Dir + "/ansible.cfg"}
	began := time.Now()
	out, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		f.t.Fatal(err)
	}
	end := command.ProcessState
	f.t.Logf("%s %s: %.1f s (%.1f s of CPU), exit status %d", book, strings.Join(args, " "),
		time.Since(began).Seconds(), (end.UserTime() + end.SystemTime()).Seconds(), end.ExitCode())
	return played{f.t, string(out), end.ExitCode()}
}

// roll plays roll.yml for a release.
func (f *fleet) roll(version string, args ...string) played {
	f.t.Helper()
	return f.play("roll.yml", append([]string{"-e", "supervisord_release=" + version}, args...)...)
}

// says fails unless the playbook ended with this exit status and said all of this.
func (p played) says(code int, all ...string) {
	p.t.Helper()
	wrong := p.code != code
	for _, want := range all {
		if !strings.Contains(p.out, want) {
			p.t.Errorf("%q was not said", want)
			wrong = true
		}
	}
	if wrong {
		p.t.Fatalf("exit status %d, want %d:\n%s", p.code, code, p.out)
	}
}

// press puts load on all hosts.
func (f *fleet) press() {
	for _, h := range f.hosts {
		h.traffic = lab.Press(f.t, h.address, 2, 20*time.Millisecond)
	}
}

// lossless ends the load and fails if a host lost a request.
func (f *fleet) lossless() {
	f.t.Helper()
	for _, h := range f.hosts {
		h.traffic.Lossless(f.t)
	}
}

// rolling is roll in the background.
func (f *fleet) rolling(version string, args ...string) <-chan played {
	done := make(chan played, 1)
	go func() { done <- f.roll(version, args...) }()
	return done
}

// serve fails unless these hosts serve this version.
func (f *fleet) serve(version string, hosts ...*host) {
	f.t.Helper()
	for _, h := range hosts {
		h.serves(version)
	}
}

// last returns the name of the last host.
func (f *fleet) last() string { return f.hosts[len(f.hosts)-1].name }

// generations returns the newest generation of each host.
func (f *fleet) generations() map[*host]int {
	f.t.Helper()
	found := map[*host]int{}
	for _, h := range f.hosts {
		found[h] = h.status().Newest
	}
	return found
}

// unchanged fails if one of these hosts had a reload since then.
func (f *fleet) unchanged(before map[*host]int, hosts ...*host) {
	f.t.Helper()
	for _, h := range hosts {
		if now := h.status().Newest; now != before[h] {
			f.t.Errorf("%s had generation %d before, and %d now", h.name, before[h], now)
		}
	}
}
