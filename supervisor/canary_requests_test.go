package supervisor

import (
	"errors"
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
