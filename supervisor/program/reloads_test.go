package program

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// tried returns a program with a serving generation and another on trial.
func tried(t *testing.T, strategy config.Strategy) *script {
	s := newScript(t, testConfig(1, strategy))
	s.up()
	s.now = s.now.Add(time.Second)
	s.send(Reload{Reason: "HUP", AskedBy: "alice"})
	return s
}

func TestReloadRecordHasOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		play func(*script)
		want Outcome
		goes int
	}{
		"on trial": {func(s *script) { s.prepared() }, Pending, 0},
		"serves":   {func(s *script) { s.prepared(); s.allReady() }, Serves, 1},
		"failed to be prepared": {func(s *script) {
			s.send(Prepared{Generation: 2, Failure: &Failure{Step: StepPrepare}})
		}, NotPrepared, 2},
		"failed its preflight": {func(s *script) {
			s.send(Prepared{Generation: 2, Failure: &Failure{Step: StepPreflight}})
		}, NotPrepared, 2},
		"not ready in time": {func(s *script) { s.prepared(); s.after(time.Hour) }, NotReady, 2},
		"could not be started": {func(s *script) {
			s.prepared()
			s.send(Did{2, life.Exited{Step: "exec", Err: errors.New("no such file")}})
		}, WorkerDown, 2},
		"ended too soon": {func(s *script) { s.prepared(); s.exit(2) }, WorkerDown, 2},
		"aborted":        {func(s *script) { s.prepared(); s.send(Abort{Reason: "no", AskedBy: "bob"}) }, Aborted, 2},
		"stopped":        {func(s *script) { s.prepared(); s.send(Stop{}) }, Stopped, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := tried(t, config.All)
			c.play(s)
			r := s.p.reloadOf(2)
			if r.Outcome != c.want || r.Goes() != c.goes || r.Replaced != 1 || r.Reason != "HUP" || r.AskedBy != "alice" {
				t.Errorf("the record is %+v", r)
			}
			if (r.Failure != nil) != (r.Outcome.Failed() || r.Outcome == Aborted) || r.Decided.IsZero() != r.Outcome.Open() {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

func TestLastReloadsAreRemembered(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	for range keptReloads + 5 {
		old := s.p.Serving.Workers[0].Number
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
		s.exit(old)
	}
	if n := len(s.p.Reloads); n != keptReloads || s.p.Reloads[n-1].Generation != s.p.LastGeneration ||
		s.p.reloadOf(1) != nil {
		t.Errorf("%d are remembered, the last is %+v", n, s.p.Reloads[n-1])
	}
}

func TestSummariesOfOlderReloadsAreKept(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	for range keptReloads + keptPast + 5 {
		old := s.p.Serving.Workers[0].Number
		s.send(Reload{Reason: "HUP", AskedBy: "signal HUP"})
		s.prepared()
		s.after(time.Second)
		s.allReady()
		s.exit(old)
	}
	n := len(s.p.Past)
	if first := s.p.Reloads[0].Generation; n != keptPast || s.p.Past[n-1].Generation != first-1 ||
		s.p.Past[0].Generation != first-keptPast {
		t.Fatalf("%d summaries, %+v to %+v", n, s.p.Past[0], s.p.Past[n-1])
	}
	if r := s.p.Past[n-1]; r.Replaced != r.Generation-1 || r.Outcome != Serves || r.AskedBy != "signal HUP" ||
		r.Took != time.Second || r.Decided.IsZero() || r.RolledBack {
		t.Errorf("the summary is %+v", r)
	}
	text, err := json.Marshal(s.p.Past)
	if most := 200 * keptPast; err != nil || len(text) > most {
		t.Errorf("they take %d bytes, %v", len(text), err)
	}
}

func TestSummaryIsShort(t *testing.T) {
	r := ReloadRecord{Reason: strings.Repeat("ü", 99), Passage: Passage{RolledBack: time.Unix(1, 0)},
		Failure: &Failure{Step: "start", Reason: strings.Repeat("x", 1000)}}
	s := r.Summary()
	if !utf8.ValidString(s.AskedBy) || len(s.AskedBy) > pastText || len(s.Failure) != pastText ||
		!strings.HasPrefix(s.Failure, "start: xxx") || !strings.HasSuffix(s.AskedBy, "ü…") || !s.RolledBack {
		t.Errorf("the summary is %+v", s)
	}
}

func TestDrainingReloadIsNotForgotten(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.Steps[0].Wait, c.Reload.MaxDraining = config.Forever, 0
	s := newScript(t, c)
	s.up()
	for range keptReloads + 5 {
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
	}
	if n := len(s.p.Reloads); n != keptReloads+5 {
		t.Errorf("%d are remembered", n)
	}
}
