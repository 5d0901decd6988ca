package attack

import (
	"os"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestWorkerThatWritesIntoItsWatchedFolderDoesNotReloadWithoutEnd(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("lib"), 0o755))
	m.Start("[program.web]\ncommand = [\"sh\", \"-c\", \"date +%N >{dir}/lib/$$; exec sleep 1000\"]\n" +
		"watch = [\"{dir}/lib\"]\nready = { method = \"delay\", delay = \"10ms\" }\n")
	warned := m.Await(lab.Says(lab.ReloadDamped), lab.Contains(m.Path("lib")))
	if warned.Level != "warn" || warned.Program != "web" {
		t.Errorf("the log says %s", warned.Text)
	}
	before := m.Count(lab.Says(lab.TrialBegan))
	time.Sleep(6 * time.Second) // three generations, after 1, 2 and 4 s; 30 without the delay
	if n := m.Count(lab.Says(lab.TrialBegan)) - before; n > 4 {
		t.Errorf("%d generations in 6 s", n)
	}
	asked := m.Last()
	m.Signal(syscall.SIGHUP)
	began := m.Await(lab.Says(lab.TrialBegan), lab.After(asked), lab.Contains(`"reason":"HUP"`))
	if hup := m.Await(lab.Says(lab.HUP)); began.Time.Sub(hup.Time) > time.Second {
		t.Errorf("a HUP was delayed by %s", began.Time.Sub(hup.Time))
	}
	if n := m.Count(lab.Says(lab.ReloadDamped)); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
}
