package tests

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// The tests of this file do not run in parallel: they put the machine under load.

func TestNoRequestIsLostWithAHUPEachSecond(t *testing.T) {
	m := lab.Start(t, lab.Hello)
	m.Serves(1)
	m.ReloadUnderLoad(m.Address(), 200, time.Second, 4)
}

func TestNoRequestIsLostWithAHUPEvery100Milliseconds(t *testing.T) {
	m := lab.Start(t, lab.Hello)
	m.Serves(1)
	m.ReloadUnderLoad(m.Address(), 200, 100*time.Millisecond, 30)
}

func TestNoRequestIsLostOnAUnixSocket(t *testing.T) {
	m := lab.Prepare(t)
	m.Start(strings.Replace(lab.Hello, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.Serves(1)
	m.ReloadUnderLoad("unix:"+m.Path("s"), 50, 200*time.Millisecond, 8)
}

func TestLoadFailsWithABadWorker(t *testing.T) {
	// Shows that the load of these tests can fail: a worker is killed during it.
	m := lab.Start(t, strings.Replace(lab.Hello, "workers = 2", "workers = 1", 1))
	m.Serves(1)
	l := lab.Press(t, m.Address(), 20, time.Millisecond)
	lost := func() int {
		n, _ := l.Attempts().Lost()
		return n
	}
	for n := 1; n <= 20 && lost() == 0; n++ {
		last := m.AwaitN(n, lab.Says(lab.WorkerReady))[n-1]
		m.Until("requests are answered", func() bool {
			_, err := lab.Get(m.Address(), "/")
			return err == nil || errors.Is(err, syscall.ECONNRESET)
		})
		lab.Must(t, syscall.Kill(last.PID, syscall.SIGKILL))
		m.Await(lab.Says(lab.WorkerDied), lab.After(last))
	}
	l.Stop()
	if lost() == 0 {
		t.Error("no request was lost, although workers were killed")
	}
}
