package supervisor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
)

// canaryAsked requests a canary and returns a channel with the answer.
func (s *stage) canaryAsked(programs ...string) chan error {
	answered := make(chan error, 1)
	go func() {
		_, err := s.super.Reload(s.Context(), ReloadOptions{Programs: programs, Canary: 1, For: time.Hour})
		answered <- err
	}()
	synctest.Wait()
	return answered
}

func testPair(t *testing.T) (web, other *config.Program) {
	web, other = testProgram(t, "web"), testProgram(t, "other")
	web.Workers, other.Listen = 2, nil
	return web, other
}

func TestCanaryIsRefusedIfConfigChangesAnythingElse(t *testing.T) {
	for why, change := range map[string]func(t *testing.T, web, other *config.Program) []*config.Program{
		"program other: its configuration has changed, too": func(_ *testing.T, web,
			other *config.Program) []*config.Program {
			other.Command = []string{"changed"}
			return []*config.Program{web, other}
		},
		"program other: it is no longer configured": func(_ *testing.T, web, _ *config.Program) []*config.Program {
			return []*config.Program{web}
		},
		"program third: it is new": func(t *testing.T, web, other *config.Program) []*config.Program {
			third := testProgram(t, "third")
			third.Listen = nil
			return []*config.Program{web, other, third}
		},
		"program web: its listeners have changed": func(t *testing.T, web, other *config.Program) []*config.Program {
			web.Listen = slices.Clone(testProgram(t, "web").Listen)
			web.Listen[0].Name = "https"
			return []*config.Program{web, other}
		},
		"program web: 1 of its 1 worker would be the whole generation": func(_ *testing.T, web,
			other *config.Program) []*config.Program {
			web.Workers = 1
			return []*config.Program{web, other}
		},
	} {
		t.Run(why, func(t *testing.T) {
			web, other := testPair(t)
			onStage(t, func(s *stage) {
				for _, w := range s.workers() {
					w.ready()
				}
				w, o := *web, *other
				s.conf = configOf(change(t, &w, &o)...)
				err := <-s.canaryAsked("web")
				if !errors.Is(err, ErrCanary) || !strings.Contains(err.Error(), why) {
					t.Errorf("answered %v", err)
				}
				s.count(3)
				if len(s.super.programs) != 2 {
					t.Error("the configuration was applied")
				}
			}, web, other)
		})
	}
}

func TestCanaryOfAllProgramsLeavesStoppedOnesStopped(t *testing.T) {
	web, other := testPair(t)
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		if _, err := s.super.Act(s.Context(), "other", program.Stop{}); err != nil {
			t.Fatal(err)
		}
		s.workers()[slices.IndexFunc(s.workers(), func(w *fakeWorker) bool { return w.spec.Command[0] == "./other" })].exit()
		if err := <-s.canaryAsked("other"); !errors.Is(err, ErrCanary) || !strings.Contains(err.Error(), "it is stopped") {
			t.Errorf("answered %v", err)
		}
		if err := <-s.canaryAsked(); err != nil {
			t.Errorf("answered %v", err)
		}
		s.count(4)
		s.workers()[3].ready()
		s.count(4)
	}, web, other)
}

// Without -race this holds little: what prepares a generation must not read what scale changes.
func TestScaleWhileCanaryIsPrepared(t *testing.T) {
	web := testProgram(t, "web")
	web.Workers = 3
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		if _, err := s.super.Reload(s.Context(), ReloadOptions{Programs: []string{"web"}, Canary: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.super.Act(s.Context(), "web", program.Scale{Workers: 2}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.count(4)
		for _, w := range s.workers()[2:] {
			w.exit()
		}
	}, web)
}

// reading blocks every load of the configuration until the test releases it.
func (s *stage) reading() (letGo func()) {
	gate := make(chan struct{})
	load := s.super.Load
	s.super.Load = func() (*config.Config, error) {
		<-gate
		return load()
	}
	return func() {
		gate <- struct{}{}
		synctest.Wait()
	}
}

func TestRequestsDuringConfigReadKeepTheirKind(t *testing.T) {
	web := testProgram(t, "web")
	web.Workers = 2
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		letGo := s.reading()
		first := s.canaryAsked("web")
		s.hup()
		s.hup() // these two become one reload
		second := s.canaryAsked("web")
		s.hup()
		letGo()
		if err := <-first; err != nil {
			t.Errorf("the first canary: %v", err)
		}
		s.count(3)
		letGo()
		letGo()
		if err := <-second; !errors.Is(err, ErrCanary) {
			t.Errorf("the second canary: %v", err)
		}
		if s.logged(program.ReloadQueued.Sentence()) != 1 {
			t.Error("the HUPs behind the canary were not one reload")
		}
		letGo()
		s.workers()[2].ready()
		s.count(3) // still a canary of one worker
		if r := s.super.reader.pending(); r != nil {
			t.Errorf("%+v is still pending", r)
		}
		if _, err := s.super.Act(s.Context(), "web", program.Abort{ThenReload: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.count(5)
		s.workers()[2].exit()
	}, web)
}

func TestReloadWaitingOverUpgradeIsNeverCanary(t *testing.T) {
	web := testProgram(t, "web")
	web.Workers = 2
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		letGo := s.reading()
		canary := s.canaryAsked("web")
		if r := s.super.reader.pending(); r != nil {
			t.Errorf("a canary is pending: %+v", r)
		}
		s.hup()
		if r := s.super.reader.pending(); r == nil || !r.All || r.Reason != "HUP" {
			t.Errorf("%+v is pending, want the HUP", r)
		}
		letGo()
		<-canary
		letGo()
	}, web)
}
