package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// ordinary prepares a supervisord for an ordinary user: nobody, if the tests run as root.
func ordinary(t *testing.T) *master {
	t.Helper()
	m := prepare(t)
	if os.Geteuid() == 0 {
		openToAll(t)
		m.as = &syscall.Credential{Uid: 65534, Gid: 65534}
		must(t, os.Chown(m.dir, 65534, 65534))
	}
	return m
}

// openToAll skips a test where only root can pass to the directory for temporary files.
func openToAll(t *testing.T) {
	t.Helper()
	for dir := built.dir; dir != "/"; dir = filepath.Dir(dir) {
		if stat, err := os.Stat(dir); err != nil || stat.Mode()&1 == 0 {
			t.Skipf("an ordinary user cannot execute what is in %s; set TMPDIR", dir)
		}
	}
}

func TestAnOrdinaryUserCanRunSupervisord(t *testing.T) {
	t.Parallel()
	m := ordinary(t)
	m.start(pidFile + web)
	m.serves(1)
	m.reload()
	m.gone(1)
	ask(t, m.address(), "/")
	if uid := strings.Fields(status(m.worker(2))["Uid"])[0]; uid == "0" {
		t.Error("the worker is root's")
	}
}

// refusedTo starts a supervisord as an ordinary user with something that it may not do, and returns what the log says of it.
func refusedTo(t *testing.T, config string) string {
	t.Helper()
	m := ordinary(t)
	m.start(config)
	return m.await(says(trialFailed)).text
}

func TestAnOrdinaryUserIsToldWhenUserNeedsRoot(t *testing.T) {
	t.Parallel()
	m := ordinary(t)
	m.start(plain + "user = \"root\"\n")
	failed := m.await(says(trialFailed))
	if failed.Step != "user" && !strings.Contains(failed.Reason, "needs root") {
		t.Errorf("the log says only %s", failed.text)
	}
}

func TestAnOrdinaryUserIsToldWhenALimitNeedsRoot(t *testing.T) {
	t.Parallel()
	for _, limits := range []string{`{ nice = -5 }`, `{ oom_score_adj = -500 }`, `{ nofile = 1000000000 }`} {
		key := strings.Fields(limits)[1]
		if got := refusedTo(t, plain+"limits = "+limits+"\n"); !strings.Contains(got, key) && !strings.Contains(got, `"step":"limits"`) {
			t.Errorf("%s: the log says %s", limits, got)
		}
	}
}

func TestAnOrdinaryUserIsToldWhenAPortNeedsRoot(t *testing.T) {
	t.Parallel()
	if number("/proc/sys/net/ipv4/ip_unprivileged_port_start") <= 99 {
		t.Skip("on this machine everyone may bind port 99")
	}
	m := ordinary(t)
	m.write(strings.Replace(web, "127.0.0.1:0", "127.0.0.1:99", 1))
	m.launch("-c", m.path("config.toml"))
	l := m.await(contains("127.0.0.1:99"))
	if !strings.Contains(l.text, "permission denied") {
		t.Errorf("it says only %s", l.text)
	}
	m.ends(1)
}

func TestAWorkerRunsAsItsUserWithTheSupplementaryGroups(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	name, groups := userWithGroups(t)
	m := start(t, plain+fmt.Sprintf("user = %q\n", name))
	m.serves(1)
	s := status(m.worker(1))
	got := strings.Fields(s["Groups"])
	slices.Sort(got)
	if strings.Fields(s["Uid"])[0] == "0" || !slices.Equal(got, groups) {
		t.Errorf("user %s has uid %s and groups %v, want %v", name, s["Uid"], got, groups)
	}
	env := environment(t, m.worker(1))
	if env["USER"] != name || env["HOME"] == "" {
		t.Errorf("USER=%q HOME=%q", env["USER"], env["HOME"])
	}
}

// userWithGroups finds an ordinary user, at best one with supplementary groups, and all groups it is in.
func userWithGroups(t *testing.T) (name string, groups []string) {
	t.Helper()
	for l := range strings.Lines(text("/etc/passwd")) {
		fields := strings.Split(l, ":")
		if len(fields) < 4 || fields[2] == "0" {
			continue
		}
		in := []string{fields[3]}
		for g := range strings.Lines(text("/etc/group")) {
			group := strings.Split(strings.TrimSpace(g), ":")
			if len(group) == 4 && slices.Contains(strings.Split(group[3], ","), fields[0]) && group[2] != fields[3] {
				in = append(in, group[2])
			}
		}
		if len(in) > len(groups) {
			name, groups = fields[0], in
		}
	}
	slices.Sort(groups)
	return name, groups
}

func TestAWorkerMayHaveAnotherGroupThanItsUser(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	m := start(t, plain+"user = \"nobody\"\ngroup = \"65533\"\n")
	m.serves(1)
	s := status(m.worker(1))
	if strings.Fields(s["Uid"])[1] != "65534" || strings.Fields(s["Gid"])[1] != "65533" {
		t.Errorf("uid %s, gid %s", s["Uid"], s["Gid"])
	}
}

func TestAWorkerOfAnotherUserCanSayThatItIsReady(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	openToAll(t)
	m := start(t, strings.Replace(web, "[[", "user = \"nobody\"\n[[", 1))
	m.serves(1)
	m.reload()
	m.serves(2)
}

func TestAnOrdinaryUsersWorkerMayHaveAmbientCapabilities(t *testing.T) {
	t.Parallel()
	asRoot(t, "give capabilities away")
	m := start(t, plain+"user = \"nobody\"\nlimits = { ambient_capabilities = [\"CAP_NET_BIND_SERVICE\"] }\n")
	m.serves(1)
	s := status(m.worker(1))
	if s["CapAmb"] != "0000000000000400" || s["CapEff"] != "0000000000000400" {
		t.Errorf("ambient %s, effective %s", s["CapAmb"], s["CapEff"])
	}
}

func TestAWorkerOfAnotherUserHasNoCapabilities(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	m := start(t, plain+"user = \"nobody\"\n")
	m.serves(1)
	s := status(m.worker(1))
	for _, set := range []string{"CapEff", "CapPrm", "CapAmb", "CapInh"} {
		if strings.Trim(s[set], "0") != "" {
			t.Errorf("%s is %s", set, s[set])
		}
	}
}

func TestAPreflightRunsAsTheUserOfTheWorker(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	m := prepare(t)
	must(t, os.Mkdir(m.path("open"), 0o777))
	must(t, os.Chmod(m.path("open"), 0o777))
	m.start(plain + "user = \"nobody\"\n[program.web.reload]\npreflight = [\"sh\", \"-c\", \"id -u >{dir}/open/uid\"]\n")
	m.serves(1)
	if got := number(m.path("open/uid")); got != 65534 {
		t.Errorf("the preflight ran as %d", got)
	}
}
