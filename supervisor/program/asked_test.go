package program

import (
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

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

func TestTimersSayThatTheyAsk(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Every, c.MaxAge = time.Hour, 10*time.Minute
	s := newScript(t, c)
	s.up()
	asked := func(kind ReportKind, want string) {
		t.Helper()
		if r, ok := s.reported(kind); !ok || r.AskedBy != want {
			t.Errorf("reported %+v, want that it was asked for by %q", r, want)
		}
		s.did = nil
	}
	s.after(12 * time.Minute)
	asked(WorkerLeaving, "timer: max_age")
	s.send(Did{2, life.ReadySaid{}})
	s.send(Pause{For: time.Second, AskedBy: "alice"})
	s.after(time.Second)
	asked(Resumed, "timer: pause")
	c.MaxAge = 0
	s.after(time.Hour)
	asked(TrialBegan, "timer: reload.every")
	if by := s.p.Reloads[1].AskedBy; by != "timer: reload.every" {
		t.Errorf("the record says %q", by)
	}
	s.prepared()
	s.allReady()
	s.p.Config = testConfig(2, config.All)
	s.send(Reload{AskedBy: "alice"})
	s.prepared()
	s.allReady()
	s.send(Reload{Canary: 1, For: time.Minute, AskedBy: "alice"})
	s.prepared()
	s.allReady()
	s.after(time.Minute)
	asked(CanaryPromoted, "timer: --for")
}
