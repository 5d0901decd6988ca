package program

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
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
	s.send(Looked{generation, -1, true, Look{Idle: idle}})
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

func keptConfig(workers int) *config.Program {
	c := steeredConfig(workers)
	c.Reload.Keep = time.Minute
	return c
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
	if why := s.p.Refuses(Rollback{}); !strings.HasPrefix(why, "generation 1 has been on its way out since ") {
		t.Error(why)
	}
	s.quiet(1, 0)
	s.exit(1)
	if why := s.p.Refuses(Rollback{}); !strings.HasPrefix(why, "generation 1 has been gone since ") {
		t.Error(why)
	}
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
