package tests

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

// TestEveryChangeRecordsWhoAskedForIt sends every request that changes something.
func TestEveryChangeRecordsWhoAskedForIt(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.TwoWorkers)
	m.Serves(1)
	me, err := user.Current()
	lab.Must(t, err)
	who := fmt.Sprintf(`"asked_by":"%s (uid %s, pid `, me.Username, me.Uid)
	for _, c := range []struct{ command, says, contains string }{
		{"reload web", lab.TrialBegan, `"generation":2`},
		{"reload --drained", lab.GenerationServes, `"generation":3`},
		{"scale web 3", "the number of workers changes", "3 workers instead of 2"},
		{"signal web CONT", "signal is sent to the workers", `"signal":"CONT"`},
		{"reload --canary 1 --hold", lab.TrialBegan, `"generation":4`},
		{"promote web", "the canary is promoted", `"generation":4`},
		{"reload --canary 1 --hold", lab.TrialBegan, `"generation":5`},
		{"abort web --reason because", lab.TrialFailed, `"reason":"because"`},
		{"stop web", "the program stops", "requested"},
		{"start web", lab.TrialBegan, `"generation":6`},
		{"kill web --generation 6", "signal is sent to the workers", `"signal":"KILL"`},
		{"restart web", "the program stops", "requested"},
		{"log-level debug", "log level changed", "debug"},
	} {
		last := m.Last()
		if out, code := m.Ctl(strings.Fields(c.command)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", c.command, code, out)
		}
		m.Await(lab.After(last), lab.Says(c.says), lab.Contains(c.contains), lab.Contains(who))
	}
}

// TestTwoUsersAreToldApart lets nobody, and a user without a name, deploy and stop a program that root runs, with a
// name in the environment that is not theirs.
func TestTwoUsersAreToldApart(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "ask as other users")
	nobody, err := user.LookupId("65534")
	lab.Must(t, err)
	m := lab.Prepare(t)
	lab.Must(t, os.Chmod(m.Dir, 0o755))
	m.Start("control_group = \"65534\"\n" + lab.Web)
	m.Serves(1)
	as := func(uid uint32, args ...string) int {
		t.Helper()
		cmd := exec.Command(lab.Built.Supervisord, append(args, "--socket", m.Path("run/control.sock"))...)
		cmd.Dir, cmd.Env = "/", []string{"USER=root", "LOGNAME=root", "SUDO_USER=root", "GORACE=atexit_sleep_ms=0"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v as %d: %v: %s", args, uid, err, out)
		}
		return cmd.Process.Pid
	}
	named := fmt.Sprintf("%s (uid 65534, pid %d", nobody.Username, as(65534, "reload", "web"))
	m.Await(lab.Says(lab.GenerationServes), lab.Gen(2), lab.Contains(`"asked_by":"`+named))
	const unknown = 1_234_567
	number := fmt.Sprintf("uid %d (pid %d", unknown, as(unknown, "stop", "web"))
	m.Await(lab.Says("the program stops"), lab.Contains(`"asked_by":"`+number))
	for _, text := range []string{m.CtlOK("status", "--json"), receiptsOf(t, m)} {
		if !strings.Contains(text, `"asked_by":"`+named) && !strings.Contains(text, `"asked_by": "`+named) {
			t.Errorf("%s is not named: %s", named, text)
		}
	}
	if text := m.CtlOK("status"); !strings.Contains(text, "stopped by "+number) {
		t.Errorf("the status says: %s", text)
	}
}

func TestStatusEventsAndReceiptsShowWhoAsked(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	me, err := user.Current()
	lab.Must(t, err)
	who := fmt.Sprintf("%s (uid %s, pid ", me.Username, me.Uid)
	events := m.CtlOK("reload", "-v", "--drained")
	for what, text := range map[string]string{
		"the events":   events,
		"the status":   m.CtlOK("status"),
		"the API":      m.CtlOK("status", "--json"),
		"the receipts": receiptsOf(t, m),
	} {
		if !strings.Contains(text, who) {
			t.Errorf("%s do not name %s: %s", what, who, text)
		}
	}
	m.CtlOK("stop", "web")
	if text := m.CtlOK("status"); !strings.Contains(text, "stopped by "+who) {
		t.Errorf("the status of a stopped program: %s", text)
	}
	m.CtlOK("start", "web")
	if text := m.CtlOK("status"); strings.Contains(text, "stopped by") {
		t.Errorf("the status of a restarted program: %s", text)
	}
}

func receiptsOf(t *testing.T, m *lab.Supervisord) string {
	t.Helper()
	m.Await(lab.Says("reload report"), lab.Gen(2), lab.Contains("asked_by"))
	code, text := m.Request("GET", "/v1/programs/web/receipts", "")
	if code != http.StatusOK {
		t.Errorf("receipts: %d %s", code, text)
	}
	return text
}

func TestChangesWithoutARequestRecordTheirCause(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	token := strings.Repeat("secret", 4)
	lab.Must(t, os.WriteFile(m.Path("token"), []byte(token), 0o600))
	m.File("watched", "1")
	m.Start("http = \"127.0.0.1:0\"\nhttp_token_file = \"{dir}/token\"\n" +
		strings.Replace(lab.Web, "[[", "watch = [\"{dir}/watched\"]\n[[", 1))
	m.Never(lab.Contains("asked_by"))
	m.Serves(1)

	m.Reload()
	m.Await(lab.Says(lab.TrialBegan), lab.Gen(2), lab.Contains(`"asked_by":"signal HUP from tests.test (pid `))
	m.Serves(2)

	m.File("watched", "2")
	m.Await(lab.Says(lab.TrialBegan), lab.Gen(3), lab.Contains(`"asked_by":"watch: `+m.Path("watched")+`"`))
	m.Serves(3)

	address := m.Await(lab.Says("metrics and the page are served")).Text
	_, address, _ = strings.Cut(address, `"address":"`)
	address, _, _ = strings.Cut(address, `"`)
	r, err := http.NewRequest("POST", "http://"+address+"/reload", nil)
	lab.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Close = true
	answer, err := http.DefaultTransport.RoundTrip(r)
	lab.Must(t, err)
	answer.Body.Close()
	m.Await(lab.Says(lab.TrialBegan), lab.Gen(4), lab.Contains(`"asked_by":"token holder from 127.0.0.1"`))
	m.Serves(4)

	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says("the program stops"), lab.Contains(`"asked_by":"signal TERM from tests.test (pid `))
}

// TestUpgradeKeepsWhoAskedForAReload upgrades during a trial.
func TestUpgradeKeepsWhoAskedForAReload(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("gate=" + gate))
	m.CtlOK("reload", "--no-wait")
	last := m.Last()
	m.CtlOK("upgrade")
	m.Open(gate)
	m.Await(lab.After(last), lab.Says(lab.GenerationServes), lab.Gen(2), lab.Contains(`"asked_by":"`))
}
