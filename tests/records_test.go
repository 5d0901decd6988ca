package tests

import (
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestWaitingReloadReportsThatItsProgramWasStopped(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("boot=20s"))
	m.Signal(syscall.SIGHUP)
	m.WorkerPID(2)
	waits := m.CtlStart("reload")
	m.Await(lab.Says(lab.ReloadQueued))
	m.CtlOK("stop", "web")
	if out := waits.Ends(13); !strings.Contains(out, "generation 3: stopped: the program was stopped") {
		t.Errorf("the output is %q", out)
	}
	m.Write(lab.Web)
	m.CtlOK("start", "web")
	if _, text := m.Request("GET", "/v1/wait?ticket=web:3", ""); !strings.Contains(text, `"outcome":"stopped"`) {
		t.Errorf("after a start: %s", text)
	}
}

func TestVerdictIsKnownManyReloadsAndAnUpgradeLater(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("exit=3"))
	m.CtlFails(11, nil, "reload")
	m.Write(lab.Web)
	for range 8 {
		m.CtlOK("reload", "--drained")
	}
	m.CtlOK("upgrade")
	for ticket, want := range map[string]string{
		"web:1": `"outcome":"serves"`,
		"web:2": `"outcome":"worker","reason":"exited with status 3","serving":1,`,
		"web:3": `"outcome":"serves","reload":{"generation":3,"replaced":1,`,
	} {
		if _, text := m.Request("GET", "/v1/wait?until=drained&ticket="+ticket, ""); !strings.Contains(text, want) ||
			!strings.Contains(text, `"ended":`) {
			t.Errorf("%s: %s", ticket, text)
		}
	}
}

func TestPromoteWaitsForTheCanaryAndNotForTheReloadThatFollows(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.TwoWorkers)
	m.Serves(1)
	m.CtlOK("reload", "--canary", "1", "--hold")
	m.Signal(syscall.SIGHUP)
	m.Await(lab.Says(lab.ReloadHeld))
	if out := m.CtlOK("promote", "web"); !strings.Contains(out, "generation 2 serves") {
		t.Errorf("the output is %q", out)
	}
	m.Serves(3)
}
