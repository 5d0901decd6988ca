package program

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/life"
)

// steeredConfig is a configuration whose generations have sockets of their own.
func steeredConfig(workers int) *config.Program {
	c := testConfig(workers, config.All)
	c.Drain.Timeout = 10 * time.Second
	return c
}

// newSteered returns a program whose first generation serves and has sockets of its own.
func newSteered(t *testing.T, c *config.Program) *script {
	s := newScript(t, c)
	s.lane()
	s.allReady()
	s.did = nil
	return s
}

// lane reports the trial prepared, with sockets of its own.
func (s *script) lane() { s.send(Prepared{Generation: s.p.Trial.Number, Steered: true}) }

// replaced brings one more generation into service.
func (s *script) replaced() {
	s.send(Reload{Reason: "HUP"})
	s.lane()
	s.allReady()
}

func (s *script) quiet(generation, idle int) {
	s.send(Quieted{generation, -1, Look{Idle: idle}})
}

// states compares what the workers do: "1 finishing, 2 ready".
func (s *script) states(want string) {
	s.t.Helper()
	var words []string
	for w := range s.p.Workers() {
		words = append(words, fmt.Sprintf("%d %s", w.Number, w.State))
	}
	slices.Sort(words)
	if got := strings.Join(words, ", "); got != want {
		s.t.Errorf("the workers are %q, want %q", got, want)
	}
}

func TestOldWorkersAreStoppedWhenTheyHaveNothingInHand(t *testing.T) {
	s := newSteered(t, steeredConfig(2))
	s.replaced()
	s.expect("prepare 2, spawn 2/0, spawn 2/1, steer 2")
	s.states("1 finishing, 2 finishing, 3 ready, 4 ready")
	s.now = s.now.Add(40 * time.Millisecond)
	s.quiet(1, 0)
	s.expect("TERM 1, TERM 2")
	if r := s.p.reloadOf(2); r.Quiet != 40*time.Millisecond || r.Left != nil || !r.Flipped.Equal(r.Decided) {
		t.Errorf("the record is %+v", r)
	}
	s.quiet(1, 0) // too late
	s.expect("")
}

func TestOldWorkersAreStoppedAtTheDeadlineAndTheRecordSaysWhatWasLeft(t *testing.T) {
	s := newSteered(t, steeredConfig(2))
	s.replaced()
	s.did = nil
	s.send(Looked{1, -1, Look{Answering: 9}})
	s.send(Looked{1, -1, Look{Unread: 2, Answering: 3, Idle: 4}})
	s.after(10 * time.Second)
	busy, ok := s.reported(GenerationBusy)
	if !ok || busy.Generation != 1 || busy.Reason != "2 unread, 3 being answered, 4 idle" {
		t.Errorf("reported %+v", busy)
	}
	s.expect("TERM 1, TERM 2")
	if r := s.p.reloadOf(2); r.Quiet != 10*time.Second || r.Left == nil ||
		*r.Left != (Look{Unread: 2, Answering: 3, Idle: 4}) {
		t.Errorf("the record is %+v", r)
	}
}

func TestWorkerIsStoppedAtOnceIfNothingCanBeWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*config.Program)
		steers bool
		before func(*script)
		want   string
	}{
		"drain.timeout is 0":   {func(c *config.Program) { c.Drain.Timeout = 0 }, true, func(*script) {}, "steer 2, TERM 1"},
		"the socket is shared": {func(*config.Program) {}, false, func(*script) {}, "steer 2, TERM 1"},
		"it was never ready":   {func(*config.Program) {}, true, func(s *script) { s.exit(1) }, "spawn 1/0, steer 2, TERM 3"},
		// said again when it is steered
		"it drains itself": {func(*config.Program) {}, true, func(s *script) { s.send(Did{1, life.DrainsItself{}}) },
			"steer 2"},
	} {
		t.Run(name, func(t *testing.T) {
			config := steeredConfig(1)
			c.edit(config)
			s := newScript(t, config)
			s.send(Prepared{Generation: 1, Steered: c.steers})
			s.allReady()
			s.did = nil
			s.send(Reload{Reason: "HUP"})
			s.send(Prepared{Generation: 2, Steered: c.steers})
			s.did = nil
			c.before(s)
			s.allReady()
			s.expect(c.want)
			if name == "it drains itself" {
				s.send(Did{1, life.DrainsItself{}})
				s.expect("TERM 1")
			}
		})
	}
}

func TestSpreadTellsOldWorkersOneAfterTheOther(t *testing.T) {
	c := steeredConfig(4)
	c.Drain.Spread = 8 * time.Second
	s := newSteered(t, c)
	s.replaced()
	s.did = nil
	s.quiet(1, 100)
	s.expect("TERM 1")
	for want := 2; want <= 4; want++ {
		s.now = s.now.Add(2*time.Second - time.Millisecond)
		s.quiet(1, 100)
		s.expect("")
		s.now = s.now.Add(time.Millisecond)
		s.quiet(1, 100)
		s.expect(fmt.Sprintf("TERM %d", want))
	}
}

func TestShareCanaryGetsItsShareOnlyWhileItIsHeld(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.send(Reload{Reason: "requested", Share: 500})
	s.lane()
	s.expect("prepare 2, spawn 2/0")
	s.allReady()
	s.expect("steer 1:9500 2:500")
	s.state(Reloading)
	if got := s.p.Summary(); got != "web reloading, generation 1 (1 worker), canary generation 2 (1/1 ready) with 5% "+
		"of the new connections: promote or abort it" {
		t.Error(got)
	}
	s.send(Promote{Share: 2500})
	s.expect("steer 1:7500 2:2500")
	s.send(Promote{Share: 100})
	s.expect("steer 1:9900 2:100")
	if r := s.p.reloadOf(2); r.Share != 100 || r.Outcome != Held {
		t.Errorf("the record is %+v", r)
	}
	s.send(Promote{})
	s.expect("steer 2")
	s.states("1 finishing, 2 ready")
}

func TestAbortedShareCanaryFinishesWhatItHas(t *testing.T) {
	for name, end := range map[string]func(*script){
		"aborted":       func(s *script) { s.send(Abort{}) },
		"a worker died": func(s *script) { s.exit(3) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSteered(t, steeredConfig(2))
			s.send(Reload{Share: 500})
			s.lane()
			s.allReady()
			s.did = nil
			end(s)
			s.expect("steer 1")
			if w, _ := s.p.Find(4); w.State != Finishing {
				t.Errorf("the worker of the canary is %s", w.State)
			}
			s.quiet(2, 0)
			s.expect(map[string]string{"aborted": "TERM 3, TERM 4", "a worker died": "TERM 4"}[name])
		})
	}
}

func TestFailedShareCanaryFinishesThoughAServingWorkerIsMissing(t *testing.T) {
	s := newSteered(t, steeredConfig(2))
	s.send(Reload{Share: 500})
	s.lane()
	s.allReady()
	s.exit(1)
	s.send(Abort{})
	s.states("2 ready, 3 finishing, 4 finishing, 5 starting")
}

func TestFailedTrialWithoutConnectionsIsStoppedAtOnce(t *testing.T) {
	c := steeredConfig(2)
	c.Reload.Soak = time.Minute
	s := newSteered(t, c)
	s.send(Reload{Reason: "HUP"})
	s.lane()
	s.allReady() // and soaking
	s.did = nil
	s.exit(3)
	s.expect("TERM 4")
}

func TestTimeOfShareCanaryBeginsAnewWithItsShare(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.send(Reload{Share: 500, For: time.Minute})
	s.lane()
	s.allReady()
	s.after(50 * time.Second)
	s.send(Promote{Share: 2500})
	s.after(50 * time.Second)
	s.state(Reloading)
	s.did = nil
	s.after(10 * time.Second)
	s.expect("steer 2")
}

func TestServingWorkersDieBesideHeldShareCanary(t *testing.T) {
	for policy, want := range map[config.ReplacementPolicy]string{config.Same: "spawn 1/0", config.New: "steer 2"} {
		t.Run(string(policy), func(t *testing.T) {
			c := steeredConfig(1)
			c.Restart.Generation = policy
			s := newSteered(t, c)
			s.send(Reload{Share: 500})
			s.lane()
			s.allReady()
			s.did = nil
			s.exit(1)
			s.expect(strings.Replace(want, "steer 2", "steer 2, forget 1", 1))
		})
	}
}

func TestShareCanaryIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*script) Reload
		reason string
	}{
		"of everything": {func(*script) Reload { return Reload{Share: Whole} }, "100% would be the whole generation"},
		"a listener": {func(*script) Reload { return Reload{Share: 1, Unsteered: "its listener http is shared"} },
			"its listener http is shared: ask for a number"},
		"the old sockets": {func(s *script) Reload { s.p.Serving.Steered = false; return Reload{Share: 1} },
			"generation 1 shares its sockets"},
		"rolling": {func(s *script) Reload {
			return Reload{Share: 1, Config: testConfig(1, config.Rolling)}
		}, `reload.strategy = "rolling"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSteered(t, steeredConfig(1))
			s.send(c.edit(s))
			s.refused(c.reason)
		})
	}
	s := newSteered(t, steeredConfig(1))
	s.send(Reload{Share: 500})
	s.did = nil
	s.send(Prepared{Generation: 2}) // the sockets turn out to be shared
	if r, ok := s.reported(TrialFailed); !ok || !strings.Contains(r.Reason, "shared") {
		t.Errorf("reported %+v", r)
	}
}

func TestWorkerCanaryGetsAsManyConnectionsAsItHasWorkers(t *testing.T) {
	s := newSteered(t, steeredConfig(3))
	s.send(Reload{Canary: 1})
	s.lane()
	s.did = nil
	s.allReady()
	s.expect("steer 1:3 2:1")
	s.send(Promote{})
	s.expect("spawn 2/1, spawn 2/2")
	s.send(Did{5, life.ReadySaid{}})
	s.expect("steer 1:3 2:2")
	s.send(Did{6, life.ReadySaid{}})
	s.expect("steer 2")
}

func keptConfig(workers int) *config.Program {
	c := steeredConfig(workers)
	c.Reload.Keep = time.Minute
	return c
}

func TestRollbackSwitchesBackWithoutStartingAnything(t *testing.T) {
	s := newSteered(t, keptConfig(2))
	first := s.p.Config
	next := keptConfig(2)
	s.send(Reload{Config: next, Reason: "HUP"})
	s.lane()
	s.allReady()
	s.states("1 kept, 2 kept, 3 ready, 4 ready")
	if r := s.p.reloadOf(2); !r.KeptTill.Equal(s.now.Add(time.Minute)) || s.p.Role(s.p.Generation(1)) != RoleKept {
		t.Errorf("the record is %+v", r)
	}
	s.did = nil
	s.now = s.now.Add(30 * time.Second)
	s.send(Rollback{AskedBy: "alice"})
	s.expect("steer 1")
	s.states("1 ready, 2 ready, 3 finishing, 4 finishing")
	if s.p.Serving.Number != 1 || s.p.Config != first {
		t.Errorf("generation %d serves", s.p.Serving.Number)
	}
	s.quiet(2, 0)
	s.expect("TERM 3, TERM 4")
	s.exit(3)
	s.exit(4)
	r := s.p.reloadOf(2)
	if r.Outcome != Serves || r.RolledBackBy != "alice" || r.RolledBack.IsZero() || !r.Ended.Equal(s.now) ||
		!r.KeptTill.IsZero() {
		t.Errorf("the record is %+v", r)
	}
	if r := s.p.reloadOf(1); !r.Retired.IsZero() || !r.Gone.IsZero() {
		t.Errorf("the record of the one that serves again is %+v", r)
	}
	if why := s.p.RefusesRollback(); !strings.HasPrefix(why, "generation 2 was rolled back already, at ") ||
		!strings.HasSuffix(why, "none before generation 1 is kept; reload with the old version") {
		t.Error(why)
	}
}

func TestRefusedRollbackSaysWhatToDo(t *testing.T) {
	c := keptConfig(1)
	c.Reload.Keep = 0
	s := newSteered(t, c)
	if why := s.p.RefusesRollback(); why != "no generation before it is kept; reload with the old version, and set "+
		"reload.keep for the next time" {
		t.Error(why)
	}
	s.send(Reload{Reason: "deploy"})
	if why := s.p.RefusesRollback(); why != "generation 2 does not serve yet, and generation 1 still does: abort the "+
		"reload" {
		t.Error(why)
	}
}

func TestWhatWasRolledBackDoesNotComeBackByItself(t *testing.T) {
	c := keptConfig(1)
	c.Reload.Every = time.Hour
	s := newSteered(t, c)
	bad := keptConfig(1)
	bad.Command = []string{"bad"}
	s.send(Reload{Config: bad, Reason: "HUP"})
	s.lane()
	s.allReady()
	s.send(Rollback{})
	again := *bad
	if !s.p.Knows(&again) { // else the reload of another program would start it
		t.Error("the configuration that was rolled back counts as changed")
	}
	s.did = nil
	s.after(100 * time.Hour)
	if s.p.Serving.Number != 1 || s.p.Trial != nil {
		t.Errorf("after reload.every: %s", s.p.Summary())
	}
	if got := s.p.Summary(); !strings.Contains(got, "generation 1 (1 worker), rolled back from 2") {
		t.Error(got)
	}
	s.replaced()
	s.after(3 * time.Hour)
	if s.p.Trial == nil {
		t.Error("reload.every does not begin again with the next reload")
	}
}

func TestKeptGenerationGoesWhenItsTimeIsOver(t *testing.T) {
	s := newSteered(t, keptConfig(1))
	s.replaced()
	s.after(time.Minute - time.Second)
	s.did = nil
	s.after(time.Second)
	s.states("1 finishing, 2 ready")
	if r := s.p.reloadOf(2); !r.KeptTill.IsZero() {
		t.Errorf("the record is %+v", r)
	}
	s.send(Rollback{})
	s.expect("")
	if why := s.p.RefusesRollback(); !strings.HasPrefix(why, "generation 1 has been on its way out since ") {
		t.Error(why)
	}
	s.quiet(1, 0)
	s.exit(1)
	if why := s.p.RefusesRollback(); !strings.HasPrefix(why, "generation 1 has been gone since ") {
		t.Error(why)
	}
}

func TestNewGenerationEndsTheKeepingOfTheOneBefore(t *testing.T) {
	c := keptConfig(1)
	c.Reload.MaxDraining = 1
	s := newSteered(t, c)
	s.replaced()
	s.replaced() // it does not wait: a kept generation does not drain
	s.states("1 finishing, 2 kept, 3 ready")
	s.send(Rollback{})
	s.states("1 finishing, 2 ready, 3 finishing")
}

func TestRollbackWhileTheNewGenerationCrashes(t *testing.T) {
	for policy := range map[config.ReplacementPolicy]bool{config.Same: true, config.New: true} {
		t.Run(string(policy), func(t *testing.T) {
			c := keptConfig(1)
			c.Restart.Generation = policy
			s := newSteered(t, c)
			s.replaced()
			s.exit(2)
			s.send(Reload{Reason: "HUP"})
			s.did = nil
			if policy == config.Same {
				s.send(Abort{}) // the trial of the reload
			}
			s.send(Rollback{AskedBy: "bob"})
			if s.p.Serving == nil || s.p.Serving.Number != 1 || s.p.Trial != nil || s.p.Again != nil {
				t.Fatalf("after the rollback: %+v", s.p)
			}
			s.state(Up)
			s.after(time.Hour)
			if s.p.Serving.Number != 1 {
				t.Errorf("generation %d serves", s.p.Serving.Number)
			}
		})
	}
}

func TestKeptGenerationStandsByWhileTheNewOneCrashes(t *testing.T) {
	c := keptConfig(1)
	c.Restart.Generation = config.New
	s := newSteered(t, c)
	s.replaced()
	s.exit(2)
	s.lane()
	s.allReady() // 3 serves, and replaced nothing
	s.states("1 kept, 3 ready")
	s.send(Rollback{AskedBy: "alice"})
	s.states("1 ready, 3 finishing")
	for _, number := range []int{2, 3} {
		if r := s.p.reloadOf(number); r.RolledBackBy != "alice" || r.Ended.IsZero() {
			t.Errorf("the record of generation %d is %+v", number, r)
		}
	}
}

func TestKeptGenerationDoesNotDelayRenewal(t *testing.T) {
	c := keptConfig(1)
	c.Reload.Keep, c.Reload.Every = time.Hour, time.Minute
	s := newSteered(t, c)
	s.replaced()
	s.did = nil
	s.after(time.Minute)
	s.expect("prepare 3")
}

func TestRollbackIsRefusedBesideTrial(t *testing.T) {
	s := newSteered(t, keptConfig(1))
	s.replaced()
	s.send(Reload{Reason: "HUP"})
	if why := s.p.RefusesRollback(); why != "generation 3 does not serve yet: abort it first" {
		t.Error(why)
	}
}

func TestWorkerThatDiedWhileKeptIsReplacedAfterRollback(t *testing.T) {
	s := newSteered(t, keptConfig(2))
	s.replaced()
	s.exit(1)
	s.did = nil
	s.send(Rollback{})
	s.expect("steer 1, spawn 1/0")
}

// perSlotConfig is rolling, with a socket for each slot.
func perSlotConfig(workers int) *config.Program {
	c := testConfig(workers, config.Rolling)
	c.Drain.Timeout = 10 * time.Second
	c.Listen = []socket.Spec{{PerSlot: true}}
	return c
}

func TestRollingSwitchesSlotBySlot(t *testing.T) {
	c := perSlotConfig(2)
	c.Reload.MaxSurge = 2
	s := newSteered(t, c)
	s.send(Reload{Reason: "HUP"})
	s.lane()
	s.did = nil
	s.send(Did{3, life.ReadySaid{}})
	s.expect("steer 2[0]:1 1[1]:1")
	s.states("1 finishing, 2 ready, 3 ready, 4 starting")
	s.send(Quieted{1, 1, Look{}}) // not this slot
	s.expect("")
	s.send(Quieted{1, 0, Look{}})
	s.expect("TERM 1")
	s.send(Did{4, life.ReadySaid{}})
	s.expect("steer 2")
	s.states("1 stopping, 2 finishing, 3 ready, 4 ready")
}

func TestFailedRollingTrialGivesItsSlotsBack(t *testing.T) {
	s := newSteered(t, perSlotConfig(2))
	s.send(Reload{Reason: "HUP"})
	s.lane()
	s.send(Did{3, life.ReadySaid{}})
	s.send(Quieted{1, 0, Look{}})
	s.exit(1)
	s.did = nil
	s.exit(4)
	s.expect("steer 1[1]:1 2[0]:1, spawn 1/0")
	s.states("2 ready, 3 leaving, 5 starting")
	s.send(Did{5, life.ReadySaid{}})
	s.expect("steer 1")
	s.states("2 ready, 3 finishing, 5 ready")
}

func TestFailedRollingTrialBringsKeptWorkersBack(t *testing.T) {
	c := perSlotConfig(2)
	c.Reload.Keep = 40 * time.Second
	s := newSteered(t, c)
	s.send(Reload{Reason: "HUP"})
	s.lane()
	s.send(Did{3, life.ReadySaid{}})
	s.states("1 kept, 2 ready, 3 ready, 4 starting")
	s.after(59 * time.Second)
	s.did = nil
	s.after(2 * time.Second) // worker 4 is not ready in time; nor does the keeping end before the trial
	s.expect("steer 1, TERM 4")
	s.states("1 ready, 2 ready, 3 finishing, 4 stopping")
}

func TestWorkerThatFinishesDuringRollingReloadIsNotStartedAgain(t *testing.T) {
	s := newSteered(t, perSlotConfig(2))
	s.send(Reload{Reason: "HUP"})
	s.lane()
	s.send(Did{3, life.ReadySaid{}})
	s.did = nil
	s.exit(1)
	if r, ok := s.reported(WorkerDied); !ok || !r.Expected {
		t.Errorf("reported %+v", r)
	}
	if r, ok := s.reported(SlotRetry); ok {
		t.Errorf("reported %+v", r)
	}
	s.expect("spawn 2/1")
}

func TestFailedRollingTrialDoesNotEndTheKeepingOfAnEarlierGeneration(t *testing.T) {
	c := perSlotConfig(1)
	c.Reload.Keep = time.Hour
	s := newSteered(t, c)
	s.replaced()
	s.send(Reload{Canary: 0, Config: scaledTo(c, 2)})
	s.lane()
	s.send(Did{s.p.Trial.Workers[0].Number, life.ReadySaid{}})
	s.send(Abort{})
	if g := s.p.Generation(1); g == nil || g.count(Kept) != 1 {
		t.Errorf("generation 1 is %+v", g)
	}
}

func scaledTo(c *config.Program, n int) *config.Program {
	c = WithWorkers(c, n)
	c.Reload.MaxSurge = n
	return c
}

func TestRollbackTakesThePlaceOfAReloadThatWaits(t *testing.T) {
	s := newSteered(t, keptConfig(1))
	s.p.Config.Reload.Retry = time.Hour
	s.replaced()
	s.send(Reload{Reason: "HUP", AskedBy: "bob"})
	s.send(Prepared{Generation: 3, Failure: &Failure{Step: StepPreflight}}) // it is tried again in an hour
	promised := s.p.Awaited()
	s.send(Rollback{AskedBy: "alice"})
	if r := s.p.reloadOf(promised); promised != 4 || r == nil || r.Outcome != Superseded || s.p.Again != nil {
		t.Errorf("generation %d was promised, and its record is %+v", promised, r)
	}
}

func TestSlotOfDeadWorkerGetsNoConnections(t *testing.T) {
	s := newSteered(t, perSlotConfig(2))
	s.exit(1)
	s.expect("steer 1[1]:1, spawn 1/0")
	s.send(Did{3, life.ReadySaid{}})
	s.expect("steer 1")
}

func TestReplacedWorkerOfServingGenerationIsStoppedAtOnce(t *testing.T) {
	for name, c := range map[string]*config.Program{"one socket": steeredConfig(2),
		"one for each slot": perSlotConfig(2)} {
		t.Run(name, func(t *testing.T) {
			s := newSteered(t, c)
			s.send(Replace{Worker: 1})
			s.send(Did{3, life.ReadySaid{}})
			s.expect("spawn 1/0, TERM 1")
		})
	}
}

func TestNewGenerationGetsWhatWaitsForADeadOne(t *testing.T) {
	c := steeredConfig(1)
	c.Restart.Generation = config.New
	s := newSteered(t, c)
	s.exit(1)
	s.expect("forget 1, prepare 2") // in this order: the new one takes the socket of the old one
	s.lane()
	s.expect("steer 2, spawn 2/0")
}

func TestTwoGenerationsFinishAtOnce(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.replaced()
	s.replaced()
	s.states("1 finishing, 2 finishing, 3 ready")
	s.did = nil
	s.quiet(2, 0)
	s.expect("TERM 2")
	s.quiet(1, 0)
	s.expect("TERM 1")
}

func TestStopDoesNotWaitForWhatIsInHand(t *testing.T) {
	s := newSteered(t, keptConfig(1))
	s.replaced()
	s.replaced()
	s.states("1 finishing, 2 kept, 3 ready")
	s.did = nil
	s.send(Stop{})
	s.expect("TERM 1, TERM 2, TERM 3")
	s.send(Kill{})
	s.expect("KILL 1, KILL 2, KILL 3")
}

func TestDeadlineSeenTooLateLeavesAMomentForALook(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.replaced()
	s.did = nil
	s.now = s.now.Add(time.Hour) // suspended
	s.p.Excuse(s.now)
	s.send(Tick{})
	s.expect("")
	s.quiet(1, 0)
	s.expect("TERM 1")
}

func TestConnectionsThatWereResetAddUpInTheRecordOfTheReload(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.replaced()
	s.send(Refused{1, 2})
	s.quiet(1, 0)
	s.exit(1)
	s.send(Refused{1, 3}) // after the generation is gone
	if r := s.p.reloadOf(2); r.Reset != 5 {
		t.Errorf("the record is %+v", r)
	}
	if r, ok := s.reported(ConnectionsReset); !ok || r.Generation != 1 || r.Reset != 2 || r.Reload == nil {
		t.Errorf("reported %+v", r)
	}
}

func TestConnectionsThatWereResetOutsideAReloadAreReported(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.send(Refused{1, 2})
	if r, ok := s.reported(ConnectionsReset); !ok || r.Reload != nil || r.Reset != 2 {
		t.Errorf("reported %+v", r)
	}
}

func TestPauseEndsByItself(t *testing.T) {
	s := newSteered(t, steeredConfig(1))
	s.send(Pause{For: 30 * time.Second, AskedBy: "alice"})
	s.expect("pause")
	s.after(20 * time.Second)
	s.replaced() // continues
	s.did = nil
	s.send(Pause{For: 20 * time.Second})
	s.after(19 * time.Second)
	s.send(Stop{})
	s.send(Start{Config: s.p.Config})
	if s.p.Paused.Until.IsZero() || !strings.HasSuffix(s.p.Summary(), ", paused") {
		t.Errorf("%s: %+v", s.p.Summary(), s.p.Paused)
	}
	s.did = nil
	s.after(time.Second)
	if r, ok := s.reported(Resumed); !ok || r.Took != 40*time.Second || !s.p.Paused.Until.IsZero() {
		t.Errorf("reported %+v", r)
	}
	s.did = nil
	s.send(Unpause{})
	s.expect("")
}

func TestHorizonKnowsFinishingWorkers(t *testing.T) {
	c := steeredConfig(1)
	c.Drain.Spread = 2 * time.Second
	s := newSteered(t, c)
	s.replaced()
	if got := s.p.Horizon().Sub(s.now); got != 42*time.Second {
		t.Errorf("everything has ended in %s", got)
	}
	s = newSteered(t, keptConfig(1))
	s.replaced()
	if got := s.p.Horizon(); !got.IsZero() {
		t.Errorf("a kept generation is waited for until %s", got)
	}
}

func TestStatusFileHasFinishingAndKeptWorkers(t *testing.T) {
	s := newSteered(t, keptConfig(1))
	s.replaced()
	s.replaced()
	for w := range s.p.Workers() {
		s.send(Did{w.Number, life.Spawned{PID: 100 + w.Number}})
	}
	if got := s.p.Lines(); got != "1:101\n2:102\n3:103\n" {
		t.Errorf("the status file is %q", got)
	}
}

func TestOrphansKeepNewConnectionsUntilAGenerationServes(t *testing.T) {
	s := newScript(t, steeredConfig(1))
	s.p.Orphaned = true
	s.lane()
	s.exit(1)
	s.after(time.Second)
	s.lane()
	s.did = nil
	s.allReady()
	s.expect("steer 2")
	s.p.Orphaned = false

	s = newScript(t, steeredConfig(1))
	s.p.Orphaned = true
	s.lane()
	s.did = nil
	s.p.Orphaned = false // they have ended
	s.send(Tick{})
	s.expect("steer 1")
}

func TestRollingFromOneSocketToSeveralDividesConnectionsByWorkers(t *testing.T) {
	for name, c := range map[string]struct{ before, after Prepared }{
		"to several": {Prepared{Generation: 1}, Prepared{Generation: 2, Steered: true, Sockets: 2}},
		"to one":     {Prepared{Generation: 1, Steered: true, Sockets: 2}, Prepared{Generation: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig(3, "rolling")
			config.Reload.MaxSurge = 1
			config.Drain.Timeout = 10 * time.Second
			config.Listen = make([]socket.Spec, 1)
			s := newScript(t, config)
			s.send(c.before)
			s.allReady()
			s.send(Reload{Reason: "HUP"})
			s.send(c.after)
			for taken := 1; taken < 3; taken++ {
				s.send(Did{3 + taken, life.ReadySaid{}})
				want := []Share{{Generation: 2, Slots: []int{0, 1}[:taken], Weight: taken},
					{Generation: 1, Slots: []int{1, 2}[taken-1:], Weight: 3 - taken}}
				if !slices.EqualFunc(s.p.Steering, want, Share.equal) {
					t.Errorf("with %d slots taken the shares are %+v, want %+v", taken, s.p.Steering, want)
				}
				s.send(Quieted{1, taken - 1, Look{}})
				s.exit(taken)
			}
			s.send(Did{6, life.ReadySaid{}})
			if want := []Share{{Generation: 2, Weight: Whole}}; !slices.EqualFunc(s.p.Steering, want, Share.equal) {
				t.Errorf("in the end the shares are %+v", s.p.Steering)
			}
		})
	}
}

func TestSocketWithoutAReadyWorkerGetsNothing(t *testing.T) {
	config := steeredConfig(3)
	config.Listen = make([]socket.Spec, 1)
	s := newScript(t, config)
	s.send(Prepared{Generation: 1, Steered: true, Sockets: 2})
	s.allReady()
	s.exit(2)
	if want := []Share{{Generation: 1, Slots: []int{0, 2}, Weight: 2}}; !slices.EqualFunc(s.p.Steering, want,
		Share.equal) {
		t.Errorf("the shares are %+v", s.p.Steering)
	}
}
