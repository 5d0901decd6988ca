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
)

// What the log says of an upgrade in place.
const (
	Upgraded       = "supervisord goes on in the place of the image before"
	UpgradeRefused = "upgrade refused; this supervisord goes on"
	UpgradeFailed  = "upgrade failed: the new binary could not go on; this one is back"
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

// Replace replaces the binary of WithOwnBinary by another program, atomically.
func (m *Supervisord) Replace(path string) {
	m.T.Helper()
	text, err := os.ReadFile(path)
	Must(m.T, err)
	m.ReplaceBy(string(text), 0o755)
}

// ReplaceBy is Replace with the text of the new file.
func (m *Supervisord) ReplaceBy(text string, mode os.FileMode) {
	m.T.Helper()
	Must(m.T, os.WriteFile(m.Path("supervisord.new"), []byte(text), mode))
	Must(m.T, os.Rename(m.Path("supervisord.new"), m.Path("supervisord")))
}

// Upgrade sends USR2 and waits for the line in the log that answers it.
func (m *Supervisord) Upgrade(want string) LogLine {
	m.T.Helper()
	last := m.Last()
	m.Signal(syscall.SIGUSR2)
	return m.Await(After(last), Says(want))
}

// SourceEdit replaces one text in a file of the source. Edit makes one.
type SourceEdit struct{ file, old, new string }

// Edit replaces old, which must occur exactly once, by new in a file that is named from the root of the module.
func Edit(file, old, new string) SourceEdit { return SourceEdit{file, old, new} }

// Variant builds a supervisord from edited source and returns its path. It gives tests a real binary that fails, without a
// hook in the code under test.
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
			t.Fatalf("%s has %q not once", e.file, e.old)
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

// Works fails unless everything is as before a failed upgrade: the worker serves, a reload works, and an upgrade works.
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
		m.T.Errorf("after it all %q serves", said)
	}
}
