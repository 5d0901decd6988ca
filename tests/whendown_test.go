package tests

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// down is web at an address with this when_down. Its workers fail while the file "broken" exists; supervisord retries
// every 300 ms.
func down(address, when string) string {
	config := strings.Replace(lab.WebWith("failif={dir}/broken"), "127.0.0.1:0", address, 1)
	return strings.Replace(config, "name = \"http\"", "name = \"http\"\nwhen_down = \""+when+"\"", 1) +
		"[program.web.restart]\nbackoff = { min = \"300ms\", max = \"300ms\" }\n"
}

// places lists the addresses on which the tests of when_down listen.
func places(t *testing.T) map[string]string {
	return map[string]string{"tcp": lab.Reserve(t), "a port that the kernel chose": "127.0.0.1:0", "unix": "unix:{dir}/s"}
}

// where returns the address at which a client reaches the listener of down.
func where(m *lab.Supervisord) string {
	m.T.Helper()
	at := m.Status().Programs[0].Listeners[0].Address
	if strings.HasPrefix(at, "/") {
		return "unix:" + at
	}
	return at
}

// refuses waits until clients are refused immediately.
func refuses(m *lab.Supervisord, address string) {
	m.T.Helper()
	m.Until("clients are refused", func() bool {
		c := &lab.Connection{Address: address}
		defer c.Close()
		return errors.Is(c.Connect(), unix.ECONNREFUSED)
	})
}

func TestClientsAreRefusedWhileNothingServes(t *testing.T) {
	t.Parallel()
	for name, address := range places(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			m.File("broken", "")
			m.Start(down(address, "refuse"))
			m.Await(lab.Says(lab.StartRetry))
			at := where(m)
			refuses(m, at)
			m.AwaitN(3, lab.Says(lab.StartRetry))
			lab.Must(t, os.Remove(m.Path("broken")))
			m.Await(lab.Says(lab.GenerationServes))
			lab.Ask(t, at, "/")

			m.CtlOK("stop", "web")
			refuses(m, at)
			if out := m.CtlOK("status"); !strings.Contains(out, `closed: nothing serves (when_down = "refuse")`) {
				t.Errorf("the status is %s", out)
			}
			if host, _, err := net.SplitHostPort(at); err == nil && host == "127.0.0.1" {
				if l, err := net.Listen("tcp", at); !errors.Is(err, unix.EADDRINUSE) {
					t.Errorf("another process can bind the address: %v %v", l, err)
				}
			}
			m.CtlOK("start", "web")
			lab.Ask(t, at, "/")
		})
	}
}

func TestClientsWaitAndAreRefusedLater(t *testing.T) {
	t.Parallel()
	for name, address := range places(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, down(address, "queue 4s"))
			m.Serves(1)
			at := where(m)
			m.File("broken", "")
			lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
			m.AwaitN(2, lab.Says(lab.WorkerDied))
			c := &lab.Connection{Address: at, Once: true}
			lab.Must(t, c.Connect())
			t.Cleanup(c.Close)
			if body, err := c.Get("/"); err == nil {
				t.Errorf("the request is answered: %s", body)
			}
			refuses(m, at)
			last := m.Last()
			lab.Must(t, os.Remove(m.Path("broken")))
			m.Await(lab.Says(lab.WorkerReady), lab.After(last))
			lab.Ask(t, at, "/")
		})
	}
}

func TestCrashWithImmediateReplacementRefusesNoConnection(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"queue", "queue 30s", "refuse"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			address := lab.Reserve(t)
			m := lab.Start(t, down(address, when))
			m.Serves(1)
			lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
			var answers []func() string
			for range 20 {
				answers = append(answers, lab.Promise(t, address, "/"))
			}
			for _, answer := range answers {
				answer()
			}
		})
	}
}

func TestClientsOfAStoppedProgramWait(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	m := lab.Start(t, down(address, "queue"))
	m.Serves(1)
	m.CtlOK("stop", "web")
	answer := lab.Promise(t, address, "/")
	m.CtlOK("start", "web")
	answer()
}

func TestClientsOfAPausedProgramWaitThoughNothingServes(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	m := lab.Start(t, down(address, "refuse"))
	m.Serves(1)
	m.CtlOK("pause", "web", "--for", "2m")
	m.CtlOK("stop", "web")
	answer := waiting(t, m)
	m.CtlOK("start", "web")
	m.CtlOK("resume", "web")
	answer()
	m.CtlOK("pause", "web", "--for", "2m")
	m.CtlOK("stop", "web")
	m.CtlOK("resume", "web")
	refuses(m, address)
}

func TestWhenDownHoldsFromTheReloadOn(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	m := lab.Start(t, down(address, "queue"))
	m.Serves(1)
	m.CtlOK("stop", "web")
	m.Write(down(address, "refuse"))
	m.CtlOK("reload")
	refuses(m, address)
	m.Write(down(address, "queue"))
	m.CtlOK("reload")
	answer := lab.Promise(t, address, "/")
	m.CtlOK("start", "web")
	answer()
}

func TestClosedListenerIsClosedAfterAnUpgradeAndOpensAgain(t *testing.T) {
	t.Parallel()
	for name, address := range places(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, down(address, "refuse"))
			m.Serves(1)
			at := where(m)
			m.CtlOK("stop", "web")
			refuses(m, at)
			m.Upgrade(lab.Upgraded)
			refuses(m, at)
			m.CtlOK("start", "web")
			if now := where(m); now != at {
				t.Errorf("it is at %s now, it was at %s", now, at)
			}
			lab.Ask(t, at, "/")
		})
	}
}

// TestStopFirstReloadRefusesNoConnection: nothing serves between the old worker and the new one, but the new one is
// being started.
func TestStopFirstReloadRefusesNoConnection(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	m := lab.Start(t, strings.Replace(down(address, "refuse"), "{worker}", `{worker}, "boot=300ms"`, 1)+
		"[program.web.reload]\nstrategy = \"stop-first\"\n")
	m.Serves(1)
	last := m.Reload()
	m.Await(lab.Says(lab.WorkerStopped), lab.After(last))
	lab.Ask(t, address, "/")
	m.Serves(2)
}

func TestSlotsServeAgainAfterTheirListenerWasClosed(t *testing.T) {
	t.Parallel()
	address := lab.Reserve(t)
	m := lab.Start(t, helloWith(address, "per_slot = true", `when_down = "refuse"`))
	m.Serves(1)
	for range 2 {
		m.CtlOK("stop", "web")
		refuses(m, address)
		m.CtlOK("start", "web")
		load := lab.Press(t, address, 6, time.Millisecond)
		m.CtlOK("reload", "--drained")
		load.Lossless(t)
	}
}
