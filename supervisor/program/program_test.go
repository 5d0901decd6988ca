package program

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/life"
)

// testConfig returns a program with the defaults of the configuration, but without a crash budget.
func testConfig(workers int, strategy config.Strategy) *config.Program {
	c := &config.Program{Name: "web", Workers: workers}
	c.Ready.Timeout = time.Minute
	c.Reload = config.ReloadPolicy{Strategy: strategy, MaxSurge: 1, MaxDraining: 4}
	c.Stop = config.StopPolicy{Steps: []config.StopStep{{Signal: syscall.SIGTERM, Wait: 30 * time.Second}}}
	c.Restart = config.Restart{When: config.Always, BackoffMin: 200 * time.Millisecond, BackoffMax: 30 * time.Second,
		StableAfter: 10 * time.Second}
	return c
}

// script drives a program by hand: it keeps the clock and remembers the actions.
type script struct {
	t   *testing.T
	p   *Program
	now time.Time
	did []Action // since the last check
	was State    // at the last reset

	unsendable bool // signals cannot be sent

	reports []Report // all of them
}

func newScript(t *testing.T, c *config.Program) *script {
	s := &script{t: t, p: New(c), now: time.Unix(1_000_000, 0)}
	s.send(Start{Config: c})
	return s
}

func (s *script) send(e Event) {
	actions := s.p.Step(s.now, e)
	s.did = append(s.did, actions...)
	if !s.unsendable {
		sent(s.p, s.now, actions)
	}
	for _, a := range actions {
		if r, ok := a.(Report); ok {
			s.reports = append(s.reports, r)
		}
	}
}

// sent tells a program that its signals were sent.
func sent(p *Program, now time.Time, actions []Action) {
	for _, a := range actions {
		if s, is := a.(SendSignal); is {
			p.Step(now, Signalled{s})
		}
	}
}

// after advances the clock deadline by deadline, as the loop would.
func (s *script) after(d time.Duration) {
	end := s.now.Add(d)
	for next := s.p.Next(s.now); !next.IsZero() && !next.After(end); next = s.p.Next(s.now) {
		s.now = next
		s.send(Tick{})
	}
	s.now = end
}

func (s *script) prepared() { s.send(Prepared{Generation: s.p.Trial.Number}) }

// allReady reports every worker of the trial ready.
func (s *script) allReady() {
	for _, w := range s.p.Trial.Workers {
		s.send(Did{w.Number, life.ReadySaid{}})
	}
}

func (s *script) exit(worker int) {
	s.send(Did{worker, life.Exited{Known: true, Status: 1 << 8}})
}

// up brings the first generation into service.
func (s *script) up() {
	s.prepared()
	s.allReady()
	s.did = nil
}

// expect compares the actions since the last check in the short form of shorten, without reports.
func (s *script) expect(want string) {
	s.t.Helper()
	if got := shorten(s.did); got != want {
		s.t.Errorf("decided %q, want %q", got, want)
	}
	s.did = nil
}

func (s *script) state(want State) {
	s.t.Helper()
	if got := s.p.State(); got != want {
		s.t.Errorf("state is %s, want %s", got, want)
	}
}

// shorten writes actions as "prepare 2, spawn 2/0, TERM 1, forget 1".
func shorten(actions []Action) string {
	var words []string
	for _, a := range actions {
		switch a := a.(type) {
		case Prepare:
			words = append(words, fmt.Sprintf("prepare %d", a.Generation.Number))
		case Abandon:
			words = append(words, fmt.Sprintf("abandon %d", a.Generation))
		case Spawn:
			words = append(words, fmt.Sprintf("spawn %d/%d", a.Generation.Number, a.Worker.Slot))
		case SendSignal:
			name := map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGKILL: "KILL",
				syscall.SIGQUIT: "QUIT"}[a.Signal]
			words = append(words, fmt.Sprintf("%s %d", name, a.Worker))
		case Steer:
			words = append(words, steerWords(a.Shares))
		case SetPaused:
			words = append(words, map[bool]string{true: "pause", false: "resume"}[a.Paused])
		case Forget:
			words = append(words, fmt.Sprintf("forget %d", a.Generation))
		}
	}
	return strings.Join(words, ", ")
}

func (s *script) reported(kind ReportKind) (Report, bool) {
	for _, a := range s.did {
		if r, ok := a.(Report); ok && r.Kind == kind {
			return r, true
		}
	}
	return Report{}, false
}

func TestFirstStartSpawnsEverySlotOnceThePreflightHasPassed(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.expect("prepare 1")
	s.state(StartingUp)
	s.prepared()
	s.expect("steer 1, spawn 1/0, spawn 1/1")
	s.allReady()
	s.expect("")
	s.state(Up)
}

func TestReloadTouchesTheOldWorkersOnlyWhenEveryNewOneIsReady(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.expect("prepare 2, spawn 2/0, spawn 2/1")
	s.state(Reloading)
	s.send(Did{3, life.ReadySaid{}})
	s.expect("")
	s.send(Did{4, life.ReadySaid{}})
	s.expect("steer 2, TERM 1, TERM 2")
	s.state(Up)
	s.exit(1)
	s.exit(2)
	s.expect("forget 1")
}

func TestFailedTrialLeavesServingGenerationAlone(t *testing.T) {
	fail := map[string]func(*script){
		"preflight": func(s *script) {
			s.send(Prepared{Generation: 2, Failure: &Failure{Step: "preflight"}})
		},
		"start": func(s *script) { s.prepared(); s.exit(3) },
		"soak": func(s *script) {
			s.prepared()
			s.allReady()
			s.after(time.Second)
			s.exit(4)
		},
		"ready": func(s *script) { s.prepared(); s.send(Did{3, life.ReadySaid{}}); s.after(time.Minute) },
		"serve": func(s *script) {
			s.prepared()
			s.send(Did{3, life.ReadySaid{}})
			s.after(5 * time.Second)
			s.send(Replace{Worker: 3, Reason: "it said that it is stopping"})
		},
	}
	for step, how := range fail {
		t.Run(step, func(t *testing.T) {
			c := testConfig(2, config.All)
			c.Reload.Soak = 3 * time.Second
			s := newScript(t, c)
			s.prepared()
			s.allReady()
			s.after(3 * time.Second)
			s.send(Reload{Reason: "HUP"})
			how(s)
			r, ok := s.reported(TrialFailed)
			if !ok || r.Step != step || r.Generation != 2 || r.Serving != 1 {
				t.Errorf("reported %+v", r)
			}
			for _, a := range s.did {
				if sig, ok := a.(SendSignal); ok && sig.Worker <= 2 {
					t.Errorf("worker %d of the serving generation got %s", sig.Worker, sig.Signal)
				}
			}
			s.state(Up)
		})
	}
}

func TestReloadsDuringTrialMakeOneMoreWithNewestConfig(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	var newest *config.Program
	for range 100 {
		newest = testConfig(1, config.All)
		s.send(Reload{Config: newest, Reason: "HUP"})
	}
	s.expect("prepare 2")
	s.prepared()
	s.allReady()
	s.expect("spawn 2/0, steer 2, TERM 1, prepare 3")
	if s.p.Trial.Config != newest {
		t.Error("the second generation is not made from the newest configuration")
	}
	s.prepared()
	s.allReady()
	s.expect("spawn 3/0, steer 3, TERM 2")
	s.state(Up)
}

func TestDueReloadFollowsFailedTrial(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	s.send(Reload{Reason: "HUP"})
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.exit(2)
	s.expect("prepare 2, spawn 2/0, forget 2, prepare 3")
}

func TestReloadDuringDrainStartsAtOnce(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	s.send(Reload{})
	s.prepared()
	s.allReady()
	s.did = nil
	s.send(Reload{})
	s.expect("prepare 3")
}

func TestFirstStartIsRetriedForeverWithBackoff(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	var waits []time.Duration
	for range 12 {
		s.prepared()
		s.exit(s.p.LastWorker)
		s.state(Waiting)
		r, _ := s.reported(StartRetry)
		s.did = nil
		waits = append(waits, r.After)
		s.after(r.After)
		s.state(StartingUp)
	}
	if waits[0] > 200*time.Millisecond || waits[0] < 160*time.Millisecond {
		t.Errorf("first wait %s", waits[0])
	}
	if last := waits[11]; last > 30*time.Second || last < 24*time.Second {
		t.Errorf("twelfth wait %s", last)
	}
	for i := 1; i < 7; i++ {
		if waits[i] <= waits[i-1] {
			t.Errorf("waits do not grow: %v", waits)
		}
	}
}

func TestReloadWhileWaitingStartsAtOnce(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.prepared()
	s.exit(1)
	s.did = nil
	s.send(Reload{Reason: "HUP"})
	s.expect("prepare 2")
}

func TestCrashedWorkerIsReplacedInSlotFromSameSnapshot(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.after(time.Hour)
	old := s.p.Serving.Config
	s.send(Did{2, life.Exited{Known: true, Status: 11}})
	s.expect("spawn 1/1")
	if s.p.Serving.Config != old {
		t.Error("the configuration changed")
	}
	s.exit(3)
	s.expect("")
	s.after(200 * time.Millisecond)
	s.expect("spawn 1/1")
}

func TestBackoffOfSlotIsResetAfterStableWorker(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	for range 5 {
		s.exit(s.p.LastWorker)
		s.after(time.Minute)
		s.send(Did{s.p.LastWorker, life.ReadySaid{}})
	}
	s.did = nil
	s.after(10 * time.Second)
	s.exit(s.p.LastWorker)
	s.expect("spawn 1/0")
}

func TestSuccessExitCodesAreNoFailure(t *testing.T) {
	for what, c := range map[string]struct {
		x       life.Exited
		success bool
	}{
		"one of them":           {life.Exited{Known: true, Status: 3 << 8}, true},
		"another":               {life.Exited{Known: true, Status: 4 << 8}, false},
		"128+15":                {life.Exited{Known: true, Status: 143 << 8}, true},
		"TERM, which is 128+15": {life.Exited{Known: true, Status: syscall.WaitStatus(syscall.SIGTERM)}, true},
		"INT":                   {life.Exited{Known: true, Status: syscall.WaitStatus(syscall.SIGINT)}, false},
		"KILL, of the kernel's": {life.Exited{Known: true, Status: syscall.WaitStatus(syscall.SIGKILL), OOM: true},
			false},
		"a status that nobody knows": {life.Exited{Status: 3 << 8}, false},
	} {
		conf := testConfig(1, config.All)
		conf.Restart.When, conf.Restart.Budget, conf.SuccessCodes = config.OnFailure, 0, []int{3, 137, 143}
		s := newScript(t, conf)
		s.up()
		s.send(Did{1, c.x})
		if got := s.p.State(); (got == Down) != c.success {
			t.Errorf("%s: %s; a success: %v", what, got, c.success)
		}
		if crashed := s.p.LastCrash != nil; crashed == c.success {
			t.Errorf("%s: counted as a crash: %v", what, crashed)
		}
	}
}

func TestExitWithZeroOfAServerThatShouldRunIsACrash(t *testing.T) {
	server := []socket.Spec{{Name: "http"}}
	for what, c := range map[string]struct {
		when    config.When
		listen  []socket.Spec
		success []int
		crashed bool
	}{
		"a server":                        {config.Always, server, []int{143}, true},
		"one that may end with 0":         {config.Always, server, []int{0}, false},
		"one that need not run for ever":  {config.OnFailure, server, nil, false},
		"a program that serves no client": {config.Always, nil, nil, false},
	} {
		conf := testConfig(1, config.All)
		conf.Restart.When, conf.Listen, conf.SuccessCodes = c.when, c.listen, c.success
		s := newScript(t, conf)
		s.up()
		s.send(Did{1, life.Exited{Known: true}})
		if crashed := s.p.LastCrash != nil; crashed != c.crashed {
			t.Errorf("%s: counted as a crash: %v", what, crashed)
		}
	}
}

func TestRestartPolicyDecidesWhichExitsAreFinal(t *testing.T) {
	for _, c := range []struct {
		when  config.When
		clean bool
		want  State
	}{{config.Always, true, Waiting}, {config.OnFailure, true, Down}, {config.OnFailure, false, Waiting}, {config.Never,
		false, Down}} {
		conf := testConfig(1, config.All)
		conf.Restart.When = c.when
		s := newScript(t, conf)
		s.up()
		s.exit(1) // before it was stable, so the restart has to wait
		if conf.Restart.When == config.Always || !c.clean && c.when == config.OnFailure {
			s.after(time.Minute)
			s.send(Did{s.p.LastWorker, life.ReadySaid{}})
			s.send(Did{s.p.LastWorker, life.Exited{Known: c.clean}})
		}
		if c.when == config.OnFailure && c.clean {
			s = newScript(t, conf)
			s.up()
			s.send(Did{1, life.Exited{Known: true}})
		}
		if got := s.p.State(); got != c.want {
			t.Errorf("%s, clean %v: %s, want %s", c.when, c.clean, got, c.want)
		}
	}
}

func TestReloadStartsFinishedProgramAgain(t *testing.T) {
	c := testConfig(1, config.All)
	c.Restart.When = config.Never
	s := newScript(t, c)
	s.up()
	s.exit(1)
	s.state(Down)
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.expect("prepare 2, spawn 2/0")
}

func TestStopPlanEndsWithKill(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.Steps = []config.StopStep{{Signal: syscall.SIGQUIT, Wait: 20 * time.Second},
		{Signal: syscall.SIGTERM, Wait: 5 * time.Second}}
	s := newScript(t, c)
	s.up()
	s.send(Stop{})
	s.expect("QUIT 1")
	s.state(ShuttingOff)
	s.after(20 * time.Second)
	s.expect("TERM 1")
	s.after(5 * time.Second)
	s.expect("KILL 1")
	s.after(time.Hour)
	s.expect("")
	s.exit(1)
	s.expect("forget 1")
	s.state(Down)
}

func TestKillIsNotRepeatedAndNeedsNoDeadline(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Stop{})
	s.send(Kill{})
	s.send(Kill{})
	s.expect("TERM 1, TERM 2, KILL 1, KILL 2")
	if next := s.p.Next(s.now); !next.IsZero() {
		t.Errorf("a timer is left for %s", next.Sub(s.now))
	}
}

func TestStopDuringPreflightAbandonsIt(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.did = nil
	s.send(Stop{})
	s.expect("abandon 1, forget 1")
	s.send(Prepared{Generation: 1})
	s.expect("")
	s.state(Down)
}

func TestReloadDoesNotStartStoppedProgram(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	s.send(Stop{})
	s.did = nil
	s.send(Reload{Reason: "HUP"})
	s.expect("")
	s.send(Start{Config: s.p.Config})
	s.expect("prepare 2")
}

func TestRollingReplacesSlotBySlotWithinTheSurge(t *testing.T) {
	s := newScript(t, testConfig(3, config.Rolling))
	s.up()
	s.send(Reload{})
	s.prepared()
	s.expect("prepare 2, spawn 2/0")
	s.send(Did{4, life.ReadySaid{}})
	s.expect("TERM 1")
	s.exit(1)
	s.expect("spawn 2/1")
	s.send(Did{5, life.ReadySaid{}})
	s.exit(2)
	s.expect("TERM 2, spawn 2/2")
	s.send(Did{6, life.ReadySaid{}})
	s.expect("steer 2, TERM 3")
	s.state(Up)
}

func TestFailedRollingReloadRestoresReplacedSlots(t *testing.T) {
	s := newScript(t, testConfig(3, config.Rolling))
	s.up()
	s.send(Reload{})
	s.prepared()
	s.send(Did{4, life.ReadySaid{}})
	s.exit(1)
	s.did = nil
	s.exit(5) // the second new worker fails
	s.expect("spawn 1/0")
	s.send(Did{6, life.ReadySaid{}})
	s.expect("TERM 4")
	s.exit(4)
	s.expect("forget 2")
	s.state(Up)
}

func TestDeathOfRollingWorkerThatTookOverFailsTrial(t *testing.T) {
	s := newScript(t, testConfig(2, config.Rolling))
	s.up()
	s.send(Reload{})
	s.prepared()
	s.send(Did{3, life.ReadySaid{}})
	s.exit(1)
	s.did = nil
	s.exit(3)
	s.expect("TERM 4, spawn 1/0")
}

func TestStopFirstNeverRunsTwoGenerations(t *testing.T) {
	s := newScript(t, testConfig(1, config.StopFirst))
	s.up()
	s.send(Reload{})
	s.prepared()
	s.expect("prepare 2, steer 2, TERM 1")
	s.exit(1)
	s.expect("spawn 2/0")
	s.exit(2)
	s.expect("steer 1, forget 2, spawn 1/0")
	s.send(Did{3, life.ReadySaid{}})
	s.state(Up)
}

func TestStopFirstPreflightFailureStopsNothing(t *testing.T) {
	s := newScript(t, testConfig(1, config.StopFirst))
	s.up()
	s.send(Reload{})
	s.send(Prepared{Generation: 2, Failure: &Failure{Step: "preflight"}})
	s.expect("prepare 2, forget 2")
}

func TestReplacedWorkerServesUntilSuccessorIsReady(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Replace{Worker: 1, Reason: "unhealthy"})
	s.expect("spawn 1/0")
	s.send(Did{3, life.ReadySaid{}})
	s.expect("TERM 1")
}

func TestOnlyTheDeathOfAWorkerThatIsBeingReplacedIsExpected(t *testing.T) {
	for want, replaced := range map[bool]int{true: 1, false: 2} {
		s := newScript(t, testConfig(2, config.All))
		s.up()
		s.send(Replace{Worker: replaced, Reason: "unhealthy"})
		s.exit(1)
		if r, ok := s.reported(WorkerDied); !ok || r.Worker != 1 || r.Expected != want {
			t.Errorf("worker %d is replaced, worker 1 died: %+v", replaced, r)
		}
	}
}

func TestLateEventsOfGoneWorkerDoNothing(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	s.after(time.Minute)
	s.exit(1)
	s.did = nil
	for _, e := range []Event{Did{1, life.Spawned{PID: 7}}, Did{1, life.ReadySaid{}}, Replace{Worker: 1},
		Did{1, life.Extend{Duration: time.Hour}}, Did{1, life.Exited{}}, Prepared{Generation: 1}} {
		s.send(e)
	}
	if len(s.did) != 0 {
		t.Errorf("decided %v", s.did)
	}
}

func TestExtendMovesReadyDeadlineButNotKillDeadline(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.prepared()
	s.after(59 * time.Second)
	s.send(Did{1, life.Extend{Duration: 30 * time.Second}})
	s.after(29 * time.Second)
	s.send(Did{1, life.ReadySaid{}})
	s.state(Up)
	s.send(Stop{})
	s.did = nil
	s.send(Did{1, life.Extend{Duration: time.Hour}})
	s.after(30 * time.Second)
	s.expect("KILL 1")
}

func TestCanaryIsHeldBesideServingGenerationUntilPromoted(t *testing.T) {
	for _, strategy := range []config.Strategy{config.All, config.Rolling} {
		s := newScript(t, testConfig(3, strategy))
		s.up()
		s.send(Reload{Canary: 1})
		s.prepared()
		s.expect("prepare 2, spawn 2/0")
		s.send(Did{4, life.ReadySaid{}})
		if _, ok := s.reported(CanaryHeld); !ok {
			t.Error("not reported as held")
		}
		s.after(time.Hour)
		s.expect("")
		s.send(Promote{})
		s.exit(1) // rolling makes room first
		if len(s.p.Trial.Workers) < 2 {
			t.Errorf("%s: %d workers on trial after the promotion", strategy, len(s.p.Trial.Workers))
		}
	}
}

func TestTimedCanaryIsPromotedAfterItsTime(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Reload{Canary: 1, For: 5 * time.Minute})
	s.prepared()
	s.allReady()
	s.after(5*time.Minute - time.Second)
	s.expect("prepare 2, spawn 2/0")
	s.after(time.Second)
	s.expect("spawn 2/1")
	s.allReady()
	s.expect("steer 2, TERM 1, TERM 2")
}

func TestTimedRollingCanaryIsPromotedAfterItsTime(t *testing.T) {
	s := newScript(t, testConfig(2, config.Rolling))
	s.up()
	s.send(Reload{Canary: 1, For: time.Minute})
	s.prepared()
	s.allReady()
	s.after(time.Minute)
	s.expect("prepare 2, spawn 2/0, TERM 1")
	s.exit(1)
	s.allReady()
	s.exit(2)
	s.expect("spawn 2/1, steer 2, TERM 2, forget 1")
	s.state(Up)
}

func TestStopFirstProgramRestartsOnceFailedTrialIsGone(t *testing.T) {
	s := newScript(t, testConfig(1, config.StopFirst))
	s.up()
	s.send(Reload{Config: testConfig(2, config.All)})
	s.prepared()
	s.exit(1)
	s.expect("prepare 2, steer 2, TERM 1, spawn 2/0, spawn 2/1")
	s.send(Did{2, life.ReadySaid{}})
	s.exit(3)
	s.expect("steer 1, TERM 2")
	s.exit(2)
	s.expect("forget 2, spawn 1/0")
}

func TestFailedOrAbortedCanaryLeavesServingGenerationAlone(t *testing.T) {
	for _, how := range []func(*script){func(s *script) { s.exit(3) },
		func(s *script) { s.send(Abort{Reason: "requested"}) }} {
		s := newScript(t, testConfig(2, config.Rolling))
		s.up()
		s.send(Reload{Canary: 1})
		s.prepared()
		s.allReady()
		how(s)
		s.state(Up)
		for _, w := range s.p.Serving.Workers {
			if w.State != Ready {
				t.Errorf("worker %d is %s", w.Number, w.State)
			}
		}
	}
}

func TestScaleAddsAndRemovesSlotsInPlace(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Scale{Workers: 3})
	s.expect("spawn 1/2")
	s.send(Did{3, life.ReadySaid{}})
	s.send(Scale{Workers: 1})
	s.expect("TERM 2, TERM 3")
	s.exit(2)
	s.exit(3)
	s.after(time.Hour)
	s.expect("")
	s.state(Up)
}

func TestSmallerNextGenerationLeavesNoWorkerBehind(t *testing.T) {
	for _, strategy := range []config.Strategy{config.All, config.Rolling} {
		s := newScript(t, testConfig(3, strategy))
		s.up()
		s.send(Reload{Config: testConfig(1, strategy)})
		s.prepared()
		s.allReady()
		for n := 1; n <= 3; n++ {
			s.exit(n)
		}
		if s.p.Live() != 1 || len(s.p.Draining) != 0 {
			t.Errorf("%s: %d workers live", strategy, s.p.Live())
		}
	}
}

func TestStopOfWaitingProgramIsReported(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.prepared()
	s.send(Did{1, life.Exited{}})
	if s.p.State() != Waiting {
		t.Fatalf("it is %s", s.p.State())
	}
	for _, a := range s.p.Step(s.now, Stop{}) {
		if r, ok := a.(Report); ok && r.Kind == StopEnded {
			return
		}
	}
	t.Error("the report is missing")
}

// steerWords writes shares as "steer 2", or "steer 1:9500 2:500", or "steer 1[0 1]:2 2[2]:1".
func steerWords(shares []Share) string {
	words := "steer"
	for _, s := range shares {
		words += fmt.Sprintf(" %d", s.Generation)
		if s.Slots != nil {
			words += fmt.Sprint(s.Slots)
		}
		if len(shares) > 1 || s.Weight != Whole {
			words += fmt.Sprintf(":%d", s.Weight)
		}
	}
	return words
}
