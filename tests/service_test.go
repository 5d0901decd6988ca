package tests

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// The tests of this file do not run in parallel: they put the machine under load.

func TestNoRequestIsLostWithAHUPEachSecond(t *testing.T) {
	pressed(t, lab.Hello, 200, time.Second, 4)
}

func TestNoRequestIsLostWithAHUPEvery100Milliseconds(t *testing.T) {
	pressed(t, lab.Hello, 200, 100*time.Millisecond, 30)
}

func TestNoRequestIsLostByARollingReload(t *testing.T) {
	pressed(t, strings.Replace(lab.Hello, "workers = 2", "workers = 3", 1)+
		"[program.web.reload]\nstrategy = \"rolling\"\n", 50, 300*time.Millisecond, 8)
}

func TestNoRequestIsLostOnAUnixSocket(t *testing.T) {
	m := lab.Prepare(t)
	m.Start(strings.Replace(lab.Hello, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.Serves(1)
	m.ReloadUnderLoad("unix:"+m.Path("s"), 50, 200*time.Millisecond, 8)
}

func TestNoRequestIsLostWithASocketForEachSlot(t *testing.T) {
	m := lab.Prepare(t)
	at := lab.Reserve(t)
	m.Start(strings.Replace(lab.Hello, "127.0.0.1:0\"", at+"\"\nper_slot = true", 1))
	m.Serves(1)
	m.ReloadUnderLoad(at, 50, 200*time.Millisecond, 8)
}

func TestNoRequestIsLostWhileReloadsFail(t *testing.T) {
	m := lab.Prepare(t)
	m.Start(lab.Hello)
	m.Serves(1)
	at := m.Address()
	m.Write(strings.Replace(lab.Hello, "{hello}", `{hello}, "-fail"`, 1))
	l := lab.Press(t, at, 50, 2*time.Millisecond)
	for generation := 2; generation <= 9; generation++ {
		m.Reload()
		m.Await(lab.Says(lab.TrialFailed), lab.Gen(generation))
	}
	if n := l.Lossless(t); n != 1 {
		t.Errorf("%d generations answered, want 1", n)
	}
}

func TestNoRequestIsLostWhenAllOfTheConfigurationChanges(t *testing.T) {
	m := lab.Prepare(t)
	m.Start(lab.Hello)
	m.Serves(1)
	l := lab.Press(t, m.Address(), 50, 2*time.Millisecond)
	for generation := 2; generation <= 9; generation++ {
		m.Write(strings.Replace(lab.Hello+"accepts = false\n", "workers = 2",
			fmt.Sprintf("workers = %d\nenvironment = { N = \"%d\" }", 1+generation%3, generation), 1) +
			fmt.Sprintf("[[program.web.listen]]\naddress = %q\n", lab.Reserve(t)))
		m.Reload()
		m.Serves(generation)
	}
	l.Lossless(t)
}

func pressed(t *testing.T, config string, clients int, every time.Duration, times int) {
	t.Helper()
	m := lab.Start(t, config)
	m.Serves(1)
	m.ReloadUnderLoad(m.Address(), clients, every, times)
}

// If a spawn made the shared socket blocking, a Go worker would hang in accept and not see its TERM until the next
// client connects.
func TestSlowWorkerStopsInTimeWhileTheNextGenerationInitialises(t *testing.T) {
	m, gate := besideAGate(t)
	answer := lab.Promise(t, m.Address(), "/slow?d=1s") // a request in flight while the next generation starts
	lab.AwaitAccepted(t, m.Address())
	m.Open(gate)
	m.Serves(2)
	told := m.Await(lab.Says(lab.WorkerTold), lab.Gen(1))
	if got := answer(); !strings.Contains(got, "generation=1") {
		t.Errorf("the answer is %q", got)
	}
	stopped := m.Await(lab.Says(lab.WorkerStopped), lab.Gen(1))
	if took := stopped.Time.Sub(told.Time); took > 5*time.Second {
		t.Errorf("it took %v after TERM", took)
	}
	m.Never(lab.Says(lab.WorkerKilled))
}

// besideAGate starts hello with one worker, and a second generation that is spawned but waits at a gate.
func besideAGate(t *testing.T) (m *lab.Supervisord, gate string) {
	t.Helper()
	one := strings.Replace(lab.Hello, "workers = 2", "workers = 1", 1)
	m = lab.Prepare(t)
	gate = m.Gate("gate")
	m.Start(one)
	m.Serves(1)
	m.Write(strings.Replace(one, "{hello}", `"sh", "-c", "read x <`+gate+`; exec \"$@\"", "sh", {hello}`, 1))
	m.Reload()
	m.WorkerPID(2)
	return m, gate
}

func TestOldGenerationServesWhileTheNextOneInitialises(t *testing.T) {
	m, gate := besideAGate(t)
	for range 20 {
		if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1") {
			t.Fatalf("the answer is %s", got)
		}
	}
	m.Open(gate)
	m.Serves(2)
}

func TestIdleKeepAliveConnectionIsServedAcrossAReload(t *testing.T) {
	m := lab.Start(t, strings.Replace(lab.Hello, "{hello}", `{hello}, "-linger", "5s"`, 1))
	m.Serves(1)
	c := &lab.Connection{Address: m.Address()}
	t.Cleanup(c.Close)
	if _, err := c.Get("/"); err != nil {
		t.Fatal(err)
	}
	m.Reload()
	m.Serves(2)
	m.AwaitN(2, lab.Says(lab.WorkerTold), lab.Gen(1))
	m.Until("an answer on the connection says Connection: close", func() bool {
		if _, err := c.Get("/"); err != nil {
			t.Fatalf("the next request on the connection: %v", err)
		}
		return c.Conn == nil
	})
	m.Gone(1)
}

func TestKeepAliveClientWithARequestInFlightIsSentAway(t *testing.T) {
	m := lab.Start(t, lab.Hello)
	m.Serves(1)
	c := &lab.Connection{Address: m.Address()}
	t.Cleanup(c.Close)
	lab.Must(t, c.Connect())
	answered := make(chan error)
	go func() {
		_, err := c.Get("/slow?d=3s") // longer than the next generation takes to serve
		answered <- err
	}()
	lab.AwaitAccepted(t, c.Address)
	m.Reload()
	m.AwaitN(2, lab.Says(lab.WorkerTold), lab.Gen(1))
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if c.Conn != nil {
		t.Error("the client was not told to close the connection")
	}
	c.Close()
	m.Gone(1)
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
