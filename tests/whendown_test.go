package tests

import (
	"errors"
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

// refuses waits until clients are refused immediately.
func refuses(m *lab.Supervisord, address string) {
	m.T.Helper()
	m.Until("clients are refused", func() bool {
		c := &lab.Connection{Address: address}
		defer c.Close()
		return errors.Is(c.Connect(), unix.ECONNREFUSED)
	})
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
