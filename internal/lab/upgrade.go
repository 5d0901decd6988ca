package lab

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The sentences of the log about an upgrade in place.
const (
	Upgraded       = "supervisord was upgraded in place"
	UpgradeRefused = "upgrade refused; the running supervisord stays"
	UpgradeFailed  = "upgrade failed: the new binary could not take over; the old one is back"
	Adopted        = "worker is adopted"
)

// WithOwnBinary is Prepare for a supervisord that runs from a file of its own, which a test can replace.
func WithOwnBinary(t testing.TB) *Supervisord {
	t.Helper()
	m := Prepare(t)
	m.Via = []string{"sh", "-c", "shift; exec " + m.Path("supervisord") + ` "$@"`, "sh"}
	m.Replace(Built.Supervisord)
	return m
}

// Replace replaces the binary of WithOwnBinary atomically. Another process copies the file: a child that is started at
// that moment would inherit its descriptor from this one, and the kernel does not execute a file that is open for
// writing.
func (m *Supervisord) Replace(path string) {
	m.T.Helper()
	Must(m.T, exec.Command("cp", path, m.Path("supervisord.new")).Run())
	Must(m.T, os.Rename(m.Path("supervisord.new"), m.Path("supervisord")))
}

// Upgrade sends USR2 and waits for the line in the log that answers it. If that is to be Upgraded, a refusal because of
// a disk, which is slow for a moment on a busy machine, is followed by another USR2; any other answer fails at once.
func (m *Supervisord) Upgrade(want string) Entry {
	m.T.Helper()
	for began := time.Now(); ; {
		last := m.Last()
		m.Signal(syscall.SIGUSR2)
		answer := m.Await(After(last), func(l Entry) bool {
			return l.Msg == want || want == Upgraded && (l.Msg == UpgradeRefused || l.Msg == UpgradeFailed)
		})
		slow := strings.Contains(answer.Error, "does not answer") ||
			strings.Contains(answer.Error, "does not take what was written")
		switch {
		case answer.Msg == want:
			return answer
		case !slow || time.Since(began) > Patience:
			m.T.Fatalf("no upgrade: %s", answer.Short())
		}
	}
}
