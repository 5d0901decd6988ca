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

func receiptsOf(t *testing.T, m *lab.Supervisord) string {
	t.Helper()
	m.Await(lab.Says("reload report"), lab.Gen(2), lab.Contains("asked_by"))
	code, text := m.Request("GET", "/v1/programs/web/receipts", "")
	if code != http.StatusOK {
		t.Errorf("receipts: %d %s", code, text)
	}
	return text
}
