package tests

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestOrdinaryUserCanRunSupervisord(t *testing.T) {
	t.Parallel()
	m := lab.PrepareOrdinary(t)
	m.Start(lab.PIDFile + lab.Web)
	m.Serves(1)
	m.Reload()
	m.Gone(1)
	lab.Ask(t, m.Address(), "/")
	if uid := strings.Fields(lab.ProcStatus(m.WorkerPID(2))["Uid"])[0]; uid == "0" {
		t.Error("the worker runs as root")
	}
}

// refusedTo starts a supervisord as an ordinary user with something that it may not do, and returns what the log says
// of it.
func refusedTo(t *testing.T, config string) string {
	t.Helper()
	m := lab.PrepareOrdinary(t)
	m.Start(config)
	return m.Await(lab.Says(lab.TrialFailed)).Text
}

func TestUserThatNeedsRootFailsWithReason(t *testing.T) {
	t.Parallel()
	m := lab.PrepareOrdinary(t)
	m.Start(lab.Plain + "user = \"root\"\n")
	failed := m.Await(lab.Says(lab.TrialFailed))
	if !strings.Contains(failed.Reason, "does not run as root") {
		t.Errorf("the log says only %s", failed.Text)
	}
}

func TestLimitThatNeedsRootFailsWithReason(t *testing.T) {
	t.Parallel()
	for _, limits := range []string{`{ nice = -5 }`, `{ oom_score_adj = -500 }`, `{ nofile = 1000000000 }`} {
		key := strings.Fields(limits)[1]
		if got := refusedTo(t, lab.Plain+"limits = "+limits+"\n"); !strings.Contains(got, key) &&
			!strings.Contains(got, `"step":"limits"`) {
			t.Errorf("%s: the log says %s", limits, got)
		}
	}
}

func TestPortThatNeedsRootFailsWithReason(t *testing.T) {
	t.Parallel()
	if lab.Number("/proc/sys/net/ipv4/ip_unprivileged_port_start") <= 99 {
		t.Skip("every user may bind port 99 on this machine")
	}
	m := lab.PrepareOrdinary(t)
	m.Write(strings.Replace(lab.Web, "127.0.0.1:0", "127.0.0.1:99", 1))
	m.Launch("-c", m.Path("config.toml"))
	l := m.Await(lab.Contains("127.0.0.1:99"))
	if !strings.Contains(l.Text, "permission denied") {
		t.Errorf("it says only %s", l.Text)
	}
	m.Ends(1)
}

func TestWorkerRunsAsItsUserWithTheSupplementaryGroups(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	name, groups := userWithGroups(t)
	m := lab.Start(t, lab.Plain+fmt.Sprintf("user = %q\n", name))
	m.Serves(1)
	s := lab.ProcStatus(m.WorkerPID(1))
	got := strings.Fields(s["Groups"])
	slices.Sort(got)
	if strings.Fields(s["Uid"])[0] == "0" || !slices.Equal(got, groups) {
		t.Errorf("user %s has uid %s and groups %v, want %v", name, s["Uid"], got, groups)
	}
	env := lab.Environment(t, m.WorkerPID(1))
	if env["USER"] != name || env["HOME"] == "" {
		t.Errorf("USER=%q HOME=%q", env["USER"], env["HOME"])
	}
}

// userWithGroups finds an ordinary user, preferably one with supplementary groups, and returns all its groups.
func userWithGroups(t *testing.T) (name string, groups []string) {
	t.Helper()
	for l := range strings.Lines(lab.Text("/etc/passwd")) {
		fields := strings.Split(l, ":")
		if len(fields) < 4 || fields[2] == "0" {
			continue
		}
		in := []string{fields[3]}
		for g := range strings.Lines(lab.Text("/etc/group")) {
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

func TestWorkerMayHaveAnotherGroupThanItsUser(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	m := lab.Start(t, lab.Plain+"user = \"nobody\"\ngroup = \"65533\"\n")
	m.Serves(1)
	s := lab.ProcStatus(m.WorkerPID(1))
	if strings.Fields(s["Uid"])[1] != "65534" || strings.Fields(s["Gid"])[1] != "65533" {
		t.Errorf("uid %s, gid %s", s["Uid"], s["Gid"])
	}
}

func TestWorkerOfAnotherUserCanSayThatItIsReady(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	lab.OpenToAll(t)
	m := lab.Start(t, strings.Replace(lab.Web, "[[", "user = \"nobody\"\n[[", 1))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
}

func TestOrdinaryUsersWorkerMayHaveAmbientCapabilities(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "give capabilities away")
	m := lab.Start(t, lab.Plain+"user = \"nobody\"\nlimits = { ambient_capabilities = [\"CAP_NET_BIND_SERVICE\"] }\n")
	m.Serves(1)
	s := lab.ProcStatus(m.WorkerPID(1))
	if s["CapAmb"] != "0000000000000400" || s["CapEff"] != "0000000000000400" {
		t.Errorf("ambient %s, effective %s", s["CapAmb"], s["CapEff"])
	}
}

func TestWorkerOfAnotherUserHasNoCapabilities(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	m := lab.Start(t, lab.Plain+"user = \"nobody\"\n")
	m.Serves(1)
	s := lab.ProcStatus(m.WorkerPID(1))
	for _, set := range []string{"CapEff", "CapPrm", "CapAmb", "CapInh"} {
		if strings.Trim(s[set], "0") != "" {
			t.Errorf("%s is %s", set, s[set])
		}
	}
}

func TestPreflightRunsAsTheUserOfTheWorker(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("open"), 0o777))
	lab.Must(t, os.Chmod(m.Path("open"), 0o777))
	m.Start(lab.Plain + "user = \"nobody\"\n[program.web.reload]\n" +
		"preflight = [\"sh\", \"-c\", \"id -u >{dir}/open/uid\"]\n")
	m.Serves(1)
	if got := lab.Number(m.Path("open/uid")); got != 65534 {
		t.Errorf("the preflight ran as %d", got)
	}
}
