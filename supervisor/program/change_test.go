package program

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

func watched() *config.Program {
	c := testConfig(1, config.All)
	c.Reload.MaxDraining, c.Watch = 0, []string{"/srv/web"}
	return c
}

// change reports a changed watched file and brings the following generation, if any, into service.
func (s *script) change() {
	s.send(Reload{Reason: "watched file changed", By: Changed})
	s.ready()
}

func (s *script) ready() {
	if s.p.Trial != nil {
		s.prepared()
		s.allReady()
	}
}

func TestWorkerWritingIntoWatchedFolderIsReloadedLessOften(t *testing.T) {
	s := newScript(t, watched())
	s.up()
	last, idle := s.p.LastGeneration, 0
	for range 10 * 60 * 2 { // ten minutes, with a change 500 ms after each generation
		s.after(500 * time.Millisecond)
		s.ready()
		if s.p.LastGeneration != last || idle == 0 {
			last = s.p.LastGeneration
			s.change()
		}
		idle++
	}
	if n := s.p.LastGeneration; n < 15 || n > 35 {
		t.Errorf("%d generations in ten minutes", n)
	}
	said := 0
	for _, r := range s.reports {
		if r.Kind == ReloadDamped {
			said++
			if !strings.Contains(r.Reason, "/srv/web") {
				t.Errorf("it says %q", r.Reason)
			}
		}
	}
	if said != 1 {
		t.Errorf("it was logged %d times", said)
	}
}

func TestOccasionalChangesReloadAtOnce(t *testing.T) {
	s := newScript(t, watched())
	s.up()
	for n := 2; n < 20; n++ {
		s.after(changeSoon + time.Second)
		s.change()
		if s.p.LastGeneration != n {
			t.Fatalf("after %d changes there are %d generations", n-1, s.p.LastGeneration)
		}
	}
}
