package tests

import (
	"os"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// onUnix is web on the unix socket "s".
var onUnix = lab.WebAt("unix:{dir}/s")

var pathRestored = lab.Says("the path of listener is put back")

func TestPathThatIsRemovedWithoutEndIsPutBackSlowly(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	const often = 100
	for m.Count(pathRestored) < often {
		n := m.Count(pathRestored)
		if err := os.Remove(m.Path("s")); err == nil {
			m.AwaitN(n+1, pathRestored)
		}
	}
	began := time.Now()
	for m.Count(pathRestored) < often+2 {
		n := m.Count(pathRestored)
		if err := os.Remove(m.Path("s")); err == nil {
			m.AwaitN(n+1, pathRestored)
		}
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("the path was put back twice within %s", took)
	}
	lab.Ask(t, "unix:"+m.Path("s"), "/")
}

// TestFilesBesideAUnixSocketWakeNobody: what happens in the folder of a socket is not supervisord's business.
func TestFilesBesideAUnixSocketWakeNobody(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, onUnix)
	m.Serves(1)
	lab.Ask(t, "unix:"+m.Path("s"), "/")
	m.Settle()
	before := lab.Switches(t, m.PID())
	for range 1000 {
		lab.Must(t, os.WriteFile(m.Path("upload"), nil, 0o600))
		lab.Must(t, os.Remove(m.Path("upload")))
	}
	if n := lab.Switches(t, m.PID()) - before; n > 200 {
		t.Errorf("supervisord woke %d times for 1000 files", n)
	}
}
