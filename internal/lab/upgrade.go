package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// ReplaceBy is Replace with a text as the new file.
func (m *Supervisord) ReplaceBy(text string, mode os.FileMode) {
	m.T.Helper()
	Must(m.T, os.WriteFile(m.Path("supervisord.new"), []byte(text), mode))
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

// SourceEdit replaces one text in a file of the source. Edit makes one.
type SourceEdit struct{ file, old, new string }

// Edit replaces old, which must occur exactly once, with new in a file of this module.
func Edit(file, old, new string) SourceEdit { return SourceEdit{file, old, new} }

// Variant builds a supervisord from edited source and returns its path: a real binary that fails needs no hook in the
// code under test.
func Variant(t testing.TB, edits ...SourceEdit) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "variant")
	replace := map[string]string{}
	for i, e := range edits {
		source := Root(e.file)
		path := source
		if replace[source] != "" {
			path = replace[source]
		}
		text, err := os.ReadFile(path)
		Must(t, err)
		if strings.Count(string(text), e.old) != 1 {
			t.Fatalf("%s does not contain exactly one %q", e.file, e.old)
		}
		replace[source] = fmt.Sprintf("%s%d.go", name, i)
		Must(t, os.WriteFile(replace[source], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o644))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	Must(t, err)
	Must(t, os.WriteFile(name+".json", overlay, 0o644))
	command := exec.Command("go", "build", "-overlay", name+".json", "-o", name, "./cmd/supervisord")
	command.Dir = Root("")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the variant: %v\n%s", err, out)
	}
	return name
}

// Works fails unless a failed upgrade changed nothing: the worker serves, a reload works, and an upgrade works.
func (m *Supervisord) Works(worker int) {
	m.T.Helper()
	if now := m.PIDs(); !slices.Equal(now, []int{worker}) {
		m.T.Errorf("the worker was %d and is %v", worker, now)
	}
	address := m.Address()
	Ask(m.T, address, "/")
	last := m.Reload()
	m.Await(After(last), Says(GenerationServes), Gen(2))
	m.Await(After(last), Says(GenerationGone), Gen(1))
	m.Replace(Built.Supervisord)
	m.Upgrade(Upgraded)
	if said := Ask(m.T, address, "/"); !strings.Contains(said, "generation=2") {
		m.T.Errorf("after all that, %q serves", said)
	}
}
