package program

import (
	"fmt"
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

func TestLastReloadsAreRememberedAndAllThatDrain(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.Steps[0].Wait, c.Reload.MaxDraining = config.Forever, 0
	for drains, want := range map[bool]int{true: keptReloads + 5, false: keptReloads} {
		s := newTranscript(t, c)
		s.plays("start; prepared; ready all")
		for old := range keptReloads + 5 {
			s.plays("reload; prepared; ready all")
			if !drains {
				s.plays(fmt.Sprint("exits ", old+1))
			}
		}
		if n := len(s.p.Reloads); n != want || s.p.Reloads[n-1].Generation != s.p.LastGeneration {
			t.Errorf("%d are remembered, the last is %+v", n, s.p.Reloads[n-1])
		}
	}
}

func TestCanaryConfigIsUsedOnlyByTheCanaryUntilPromoted(t *testing.T) {
	tried := testConfig(3, config.All)
	tried.Command = []string{"new"}
	begun := func(strategy config.ReplacementPolicy, commands string) *transcript {
		c := testConfig(3, config.All)
		c.Restart.Generation = strategy
		s := newTranscript(t, c)
		s.plays("start; prepared; ready all")
		s.step(Reload{Config: tried, Canary: 1})
		s.plays("prepared; ready all; " + commands)
		return s
	}
	if s := begun(config.Same, "promote"); s.p.Config != tried {
		t.Error("promoted: the next generation has another configuration")
	}
	if g := begun(config.New, "abort; wait for=1m; exits 1").p.Trial; g == nil || g.Config == tried {
		t.Errorf("aborted, then a worker died: the next generation is %+v", g)
	}
	if s := begun(config.Same, "new-master; promote"); s.p.Config.Command[0] != "new" {
		t.Error("a promotion after an upgrade keeps the old configuration")
	}
	s := begun(config.Same, "abort")
	again, other := *tried, *tried
	if !s.p.Knows(&again) || !s.p.Knows(s.p.Config) {
		t.Error("the configuration of the canary or of the program counts as changed")
	}
	other.Command, other.Workers = []string{"newer"}, 1
	s.step(Reload{Config: &other, Canary: 1}) // which would be the whole generation, so it is refused
	if s.p.Knows(&other) {
		t.Error("a change is not detected")
	}
}

func TestSourceIsTheKindOfWhoAsks(t *testing.T) {
	for by, want := range map[string]Origin{
		"":                                        askedNobody,
		"alice (uid 1000, pid 4711)":              askedControl,
		"root (uid 0, pid 4711, login alice)":     askedControl,
		"uid 1000 (pid 4711)":                     askedControl,
		"uid 1000":                                askedControl,
		"signal HUP (uid 1000, pid 4711)":         askedControl, // the name of a user
		"token holder from x (uid 1000, pid 47)":  askedControl,
		"unknown":                                 askedControl,
		ByTokenHolder("192.0.2.7"):                askedPage,
		BySignal("HUP", "bash (pid 4711, uid 0)"): askedSignal,
		BySignal("TERM", "x (pid 4711, uid 0) of worker 3 of program web"): askedSignal,
		ByWatch("/srv/app/current"):                                        askedWatch,
		ByWatch("/srv/root (uid 0, pid 1)"):                                askedWatch,
		byTimer("reload.every"):                                            askedTimer,
	} {
		if got := OriginOf(by); got != want {
			t.Errorf("%q is %s, want %s", by, got, want)
		}
	}
}

func TestStatusFileLinesAreInNumericOrder(t *testing.T) {
	c := testConfig(2, config.All)
	c.Reload.MaxDraining = 0
	s := newTranscript(t, c)
	s.plays("start; prepared; ready all" + strings.Repeat("; reload; prepared; ready all", 10))
	pid := 1000
	for w := range s.p.Workers() {
		s.step(Did{w.Number, life.Spawned{PID: pid}})
		pid--
	}
	if got, want := s.p.Lines(), "8:983\n8:984\n9:981\n9:982\n10:979\n10:980\n11:999\n11:1000\n"; !strings.HasSuffix(got,
		want) {
		t.Errorf("the status is\n%swant\n%s", got, want)
	}
}
