package supervisor

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"example.org/supervisord/supervisor/program"
)

// deafSystemd accepts no message while err is set.
type deafSystemd struct {
	fakeSystemd
	err error
}

func (s *deafSystemd) Status(string) error { return s.err }

func TestDeafSystemdIsReportedOnce(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	systemd := &deafSystemd{fakeSystemd: fakeSystemd{fakeStore: fakeStore{}, TB: t}, err: errors.New("no such file")}
	s := New(Options{Systemd: systemd, Log: zap.New(core)})
	tell := func() {
		s.notifier.status, s.notifier.changed = "something else", true
		s.tell()
	}
	s.notifier.ready = true
	for range 3 {
		tell()
	}
	if got := len(logs.TakeAll()); got != 1 {
		t.Errorf("three messages that were not taken make %d warnings, want 1", got)
	}
	systemd.err = nil
	tell()
	systemd.err = errors.New("no such file")
	tell()
	if got := len(logs.TakeAll()); got != 1 {
		t.Errorf("after an accepted message there are %d warnings, want 1", got)
	}
}

func TestOverviewIsOfEveryProgramAfterItsLastStep(t *testing.T) {
	s := New(Options{Systemd: &fakeSystemd{fakeStore: fakeStore{}, TB: t, unchecked: true}, Log: zap.NewNop()})
	t.Cleanup(s.cancel)
	line := func() string {
		s.attend()
		_, _, line := s.overview()
		return line
	}
	if got := line(); got != "no programs" {
		t.Errorf("at first: %q", got)
	}
	for _, name := range []string{"web", "mail"} {
		c := testProgram(t, name)
		s.programs[name] = s.newRunner(program.New(c))
		s.programs[name].core.Step(time.Now(), program.Start{Config: c})
		s.stepped[s.programs[name]] = time.Now()
	}
	if got := line(); !strings.HasPrefix(got, "mail starting") || !strings.Contains(got, "; web starting") {
		t.Errorf("with two programs: %q", got)
	}
	if started, end, _ := s.overview(); started || end.IsZero() {
		t.Errorf("started: %t, until %s", started, end)
	}
	mail := s.programs["mail"]
	mail.core.Step(time.Now(), program.Stop{})
	mail.core.Step(time.Now(), program.Prepared{Generation: 1, Failure: &program.Failure{}})
	mail.removed, s.stepped[mail] = true, time.Now()
	if got := line(); strings.Contains(got, "mail") || !strings.HasPrefix(got, "web starting") {
		t.Errorf("without the removed program: %q", got)
	}
	for i := range 100 {
		name := fmt.Sprintf("p%d", i)
		s.programs[name] = s.newRunner(program.New(testProgram(t, name)))
		s.stepped[s.programs[name]] = time.Now()
	}
	if got := line(); len(got) < maxOverview || len(got) > maxOverview+100 {
		t.Errorf("of a hundred programs it has %d bytes", len(got))
	}
}

// watchedSystemd has a watchdog.
type watchedSystemd struct {
	deafSystemd
	fed int
}

func (s *watchedSystemd) Watchdog() error                 { s.fed++; return nil }
func (s *watchedSystemd) WatchdogInterval() time.Duration { return time.Hour }

// An image that is replaced before its first tick must have fed the watchdog, too.
func TestNewImageFeedsTheWatchdogAtOnce(t *testing.T) {
	to := &watchedSystemd{}
	n := newServiceNotifier(to, zap.NewNop())
	n.ticker.Stop()
	if to.fed != 1 {
		t.Errorf("it was fed %d times, want once", to.fed)
	}
}

func TestProgramServesWhileAWorkerAnswers(t *testing.T) {
	of := func(role program.Role, state program.WorkerState) bool {
		p := ProgramStatus{Generations: []GenerationStatus{{Role: role,
			Workers: []WorkerStatus{{Standing: program.Standing{State: state}}}}}}
		return p.Serves()
	}
	for state, want := range map[program.WorkerState]bool{program.Ready: true, program.Soaking: true,
		program.Leaving: true, program.Starting: false, program.Stopping: false} {
		if got := of(program.RoleServing, state); got != want {
			t.Errorf("serving and %s: %v", state, got)
		}
	}
	if of(program.RoleTrial, program.Ready) || !of(program.RoleDraining, program.Leaving) {
		t.Error("a trial serves, or a leaving worker does not")
	}
}

func TestStatusSaysWhereAndHowOftenWorkersCrashed(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.workers()[0].crash()
		s.count(2)
		st := s.super.programs["web"].status()
		if c := st.LastCrash; st.Restarts != 1 || c == nil || c.Worker != 1 || c.Generation != 1 || c.At.IsZero() ||
			c.Reason == "" {
			t.Errorf("%d restarts, last crash %+v", st.Restarts, st.LastCrash)
		}
		if name, _ := os.Hostname(); name == "" || s.super.Describe().Host != name {
			t.Errorf("host %q, want %q", s.super.Describe().Host, name)
		}
	}, testProgram(t, "web"))
}

// TestNothingIsWatchedByDefault: without health check, limit or log there is no timer.
func TestNothingIsWatchedByDefault(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		pass(time.Hour)
		p := s.super.programs["web"]
		if p.alarm != nil || p.samples || p.workers[1].pulse != nil || p.capture.log != nil {
			t.Errorf("%+v", p)
		}
	}, testProgram(t, "web"))
}
