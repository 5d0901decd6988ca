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
		"one that need not run forever":   {config.OnFailure, server, nil, false},
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
