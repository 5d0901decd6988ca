package fleet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// TestRollOverAHundredHostsInTime measures how long a roll takes: 100 supervisords on this machine, each with a
// directory of its own in place of a root, and no ssh.
func TestRollOverAHundredHostsInTime(t *testing.T) {
	if !lab.Long() {
		t.Skip("takes minutes: -long")
	}
	f := prepareFleet(t)
	f.worker = lab.Built.Hello
	port, hosts := freePort(t), map[string]any{}
	network := fmt.Sprintf("127.%d.%d.", 10+rand.N(240), rand.N(256))
	for i := range 100 {
		h := &host{t: t, name: fmt.Sprintf("web-%03d", i+1), address: network + strconv.Itoa(i+1) + ":" + strconv.Itoa(port)}
		h.root = filepath.Join(f.dir, h.name)
		hosts[h.name] = map[string]any{"supervisord_runtime_dir": h.root + "/run"} // the path of its socket is short
		f.hosts = append(f.hosts, h)
	}
	f.writeInventory(hosts, map[string]any{
		"ansible_connection": "local", "ansible_become": false, "ansible_python_interpreter": "/usr/bin/python3",
		"supervisord_path": lab.Built.Supervisord, "supervisord_config": f.dir + "/{{ inventory_hostname }}/etc/config.toml",
		"supervisord_root": f.dir + "/{{ inventory_hostname }}/srv",
		"supervisord_listen": []any{map[string]string{"name": "http",
			"address": network + "{{ inventory_hostname.split('-')[1] | int }}:" + strconv.Itoa(port)}},
	})
	f.release("1", "")
	f.release("2", "")
	for _, h := range f.hosts {
		f.serveFirst(h)
	}
	began := time.Now()
	f.roll("2", "--forks", "10").says(0, "web-100  deployed  2")
	t.Logf("a roll over 100 hosts took %.0f s", time.Since(began).Seconds())
	for _, h := range f.hosts {
		if got := lab.Ask(t, h.address, "/"); !strings.Contains(got, "version=2 ") {
			t.Errorf("%s answers %q", h.name, got)
		}
	}
}

// serveFirst starts a supervisord with release 1.
func (f *fleet) serveFirst(h *host) {
	f.t.Helper()
	m := lab.Prepare(f.t)
	release := h.root + "/srv/releases/1-0000000"
	lab.Must(f.t, os.MkdirAll(release, 0o755))
	lab.Must(f.t, os.MkdirAll(h.root+"/etc/conf.d", 0o755))
	f.run("tar", "-xzf", f.dir+"/web-1.tar.gz", "-C", release)
	lab.Must(f.t, os.WriteFile(release+"/supervisord.toml", fmt.Appendf(nil, `
[program.web]
command = ["./web"]
directory = %q
[[program.web.listen]]
name = "http"
address = %q
`, h.root+"/srv/current", h.address), 0o644))
	lab.Must(f.t, os.Symlink("releases/1-0000000", h.root+"/srv/current"))
	lab.Must(f.t, os.Symlink(h.root+"/srv/current/supervisord.toml", h.root+"/etc/conf.d/web.toml"))
	lab.Must(f.t, os.WriteFile(h.root+"/etc/config.toml",
		fmt.Appendf(nil, "[supervisor]\ninclude = [\"conf.d/*.toml\"]\nruntime_dir = %q\n", h.root+"/run"), 0o644))
	m.Launch("-c", h.root+"/etc/config.toml")
	m.Serves(1)
}
