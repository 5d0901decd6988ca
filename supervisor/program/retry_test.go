package program

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

func TestFailedReloadIsRetriedUntilOneServes(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Retry = 5 * time.Second
	s := newScript(t, c)
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.exit(2)
	if r, ok := s.reported(ReloadRetry); !ok || r.After != 5*time.Second || r.Serving != 1 {
		t.Errorf("reported %+v", r)
	}
	s.state(Up)
	s.did = nil
	s.after(4900 * time.Millisecond)
	s.expect("")
	s.after(200 * time.Millisecond)
	s.expect("prepare 3")
	if s.p.Trial.Reason != "HUP" {
		t.Errorf("the reason is %q", s.p.Trial.Reason)
	}
	s.prepared()
	s.allReady()
	s.expect("spawn 3/0, steer 3, TERM 1")
	s.exit(1)
	s.did = nil
	s.after(time.Hour)
	s.expect("")
}

func TestRequestedReloadTakesPlaceOfRetry(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Retry = 5 * time.Second
	s := newScript(t, c)
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.send(Prepared{Generation: 2, Failure: &Failure{Step: "preflight"}})
	s.did = nil
	s.send(Reload{Reason: "HUP"})
	s.expect("prepare 3")
	s.prepared()
	s.allReady()
	s.exit(1)
	s.did = nil
	s.after(time.Hour)
	s.expect("")
}

func TestAbortedReloadIsNotRetried(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Retry = 5 * time.Second
	s := newScript(t, c)
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.send(Abort{Reason: "requested"})
	s.did = nil
	s.after(time.Hour)
	s.expect("")
}

func TestGenerationServesNoLongerThanReloadEvery(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Every = time.Hour
	s := newScript(t, c)
	s.up()
	s.after(59 * time.Minute)
	s.expect("")
	s.after(2 * time.Minute)
	s.expect("prepare 2")
	s.prepared()
	s.allReady()
	s.exit(1)
	s.did = nil
	s.after(30 * time.Minute)
	s.send(Reload{Reason: "HUP"}) // counts, too
	s.prepared()
	s.allReady()
	s.exit(2)
	s.did = nil
	s.after(59 * time.Minute)
	s.expect("")
	s.after(2 * time.Minute)
	s.expect("prepare 4")
}

func TestReloadEveryWaitsTwiceAsLongDuringDrain(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Every = time.Minute
	c.Stop.Steps[0].Wait = config.Forever
	s := newScript(t, c)
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.allReady()
	s.did = nil
	s.after(119 * time.Second)
	s.expect("")
	s.after(2 * time.Second)
	s.expect("prepare 3")
	s.send(Prepared{Generation: 3, Failure: &Failure{Step: "prepare"}})
	s.did = nil
	s.after(110 * time.Second) // a failed one is not retried at once
	s.expect("")
	s.exit(1)
	s.expect("forget 1, prepare 4") // the draining generation is gone
}

func TestCrashedWorkerIsReplacedByNewGenerationIfConfigured(t *testing.T) {
	c := testConfig(1, config.All)
	c.Restart.Generation = config.New
	s := newScript(t, c)
	s.up()
	s.exit(1)
	s.expect("forget 1, prepare 2")
	s.state(StartingUp)
	s.prepared()
	s.exit(2)
	s.state(Waiting)
	s.after(time.Second)
	s.prepared()
	s.allReady()
	s.state(Up)
	if s.p.Serving.Number != 3 {
		t.Errorf("generation %d serves", s.p.Serving.Number)
	}
	s.did = nil
	s.exit(3) // the second exit soon after ready: now with a delay
	s.expect("forget 3")
	s.state(Waiting)
	s.after(time.Second)
	s.expect("prepare 4")
}

func TestNewGenerationReplacesOtherWorkersToo(t *testing.T) {
	c := testConfig(2, config.All)
	c.Restart.Generation = config.New
	s := newScript(t, c)
	s.up()
	s.exit(1)
	s.expect("prepare 2")
	s.prepared()
	s.exit(3)
	s.expect("spawn 2/0, spawn 2/1, TERM 4")
	s.exit(4)
	s.expect("forget 2")
	s.after(time.Second)
	s.expect("prepare 3")
	s.prepared()
	s.allReady()
	s.expect("spawn 3/0, spawn 3/1, steer 3, TERM 2")
}

func TestReloadSignalDiffersFromStopSignal(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.ReloadSignal = syscall.SIGQUIT
	s := newScript(t, c)
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.allReady()
	s.expect("prepare 2, spawn 2/0, steer 2, QUIT 1")
	s.send(Stop{Reason: "TERM"})
	s.expect("TERM 1, TERM 2") // the stop includes the worker that is being replaced
}

func TestIntSignalIsSentOnINT(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.Steps[0].Signal, c.Stop.IntSignal = syscall.SIGQUIT, syscall.SIGTERM
	s := newScript(t, c)
	s.up()
	s.send(Stop{Reason: "INT", Interrupted: true})
	s.expect("TERM 1")
}

func TestEndlessStopStepIsFollowedOnlyBySecondStop(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.Steps[0].Wait = config.Forever
	s := newScript(t, c)
	s.up()
	s.send(Stop{})
	s.expect("TERM 1")
	s.after(1000 * time.Hour)
	s.expect("")
	s.send(Kill{})
	s.expect("KILL 1")
}

func TestAnyNumberOfGenerationsDrainWithoutMaxDraining(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.MaxDraining = 0
	s := newScript(t, c)
	s.up()
	for range 20 {
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
	}
	if n := len(s.p.Draining); n != 20 {
		t.Errorf("%d drain", n)
	}
	if _, killed := s.reported(WorkerKilled); killed {
		t.Error("one was killed")
	}
}

func TestStatusFileLinesAreInNumericOrder(t *testing.T) {
	c := testConfig(2, config.All)
	c.Reload.MaxDraining = 0
	s := newScript(t, c)
	s.up()
	for range 10 {
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
	}
	pid := 1000
	for w := range s.p.Workers() {
		s.send(Did{w.Number, life.Spawned{PID: pid}})
		pid--
	}
	if got, want := s.p.Lines(), "8:983\n8:984\n9:981\n9:982\n10:979\n10:980\n11:999\n11:1000\n"; !strings.HasSuffix(got,
		want) {
		t.Errorf("the status is\n%swant\n%s", got, want)
	}
}
