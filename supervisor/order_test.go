package supervisor

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor/program"
)

// after returns a program without a listener that comes after others.
func after(t *testing.T, name string, others ...string) *config.Program {
	c := testProgram(t, name)
	c.Listen, c.Command, c.After = nil, []string{name}, others
	return c
}

// of returns the workers of a program that were started and live.
func (s *stage) of(name string) (list []*fakeWorker) {
	for _, w := range s.workers() {
		if !w.gone && slices.Contains(w.spec.Environment, "SUPERVISORD_PROGRAM="+name) {
			list = append(list, w)
		}
	}
	return list
}

// lives checks which programs have a worker, one each.
func (s *stage) lives(want ...string) {
	s.Helper()
	var got []string
	for _, name := range s.super.programs.names() {
		for range s.of(name) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		s.Fatalf("workers of %q live, want %q", got, want)
	}
}

// stops checks which programs have a worker that was told to stop.
func (s *stage) stops(want ...string) {
	s.Helper()
	var got []string
	for _, name := range s.super.programs.names() {
		for _, w := range s.of(name) {
			if len(w.signals()) > 0 {
				got = append(got, name)
			}
		}
	}
	if !slices.Equal(got, want) {
		s.Fatalf("workers of %q were told to stop, want %q", got, want)
	}
}

func (s *stage) summary(name string) string { return s.super.Describe().Program(name).Summary }

func (s *stage) act(name string, e program.Event) {
	s.Helper()
	if _, err := s.super.Act(s.Context(), name, e); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

func TestProgramsStartInOrder(t *testing.T) {
	onStage(t, func(s *stage) {
		s.lives("cache", "db")
		if got, want := s.summary("api"), "api waiting, waits for cache and db"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		s.of("db")[0].ready()
		s.lives("cache", "db")
		if got, want := s.summary("api"), "api waiting, waits for cache"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		s.of("db")[0].crash() // both must serve at one time
		s.of("cache")[0].ready()
		s.lives("cache", "db")
		s.of("db")[0].ready()
		s.lives("api", "cache", "db")
		s.of("api")[0].ready()
		s.lives("api", "cache", "db", "web")
		if n := s.logged("the start waits"); n != 2 {
			t.Errorf("%d lines say that a start waits, want one for each program", n)
		}
	}, after(t, "api", "cache", "db"), after(t, "cache"), after(t, "db"), after(t, "web", "api"))
}

// TestReloadNeedsNoOrder: only the first start waits.
func TestReloadNeedsNoOrder(t *testing.T) {
	onStage(t, func(s *stage) {
		s.of("db")[0].ready()
		s.of("web")[0].ready()
		s.hup()
		s.lives("db", "db", "web", "web")
	}, after(t, "db"), after(t, "web", "db"))
}

func TestReloadWhileAStartWaitsKeepsTheOrder(t *testing.T) {
	db, web := after(t, "db"), after(t, "web", "db")
	onStage(t, func(s *stage) {
		s.hup()
		s.lives("db")
		web.After = nil
		s.conf = configOf(db, web)
		s.hup()
		s.lives("db", "web")
	}, db, web)
}

// TestNewProgramsStartInOrder: those that a reload adds, the first of which has the later name.
func TestNewProgramsStartInOrder(t *testing.T) {
	web := after(t, "web")
	onStage(t, func(s *stage) {
		s.of("web")[0].ready()
		s.conf = configOf(after(t, "api", "db", "web"), after(t, "db"), web)
		s.hup()
		s.lives("db", "web", "web")
		s.of("db")[0].ready()
		s.lives("api", "db", "web", "web")
	}, web)
}

func TestNobodyWaitsForAProgramThatIsStopped(t *testing.T) {
	onStage(t, func(s *stage) {
		s.lives("db")
		s.act("db", program.Stop{AskedBy: "alice"})
		s.lives("db", "web")
		s.act("web", program.Stop{AskedBy: "alice"})
		s.of("db")[0].exit()
		s.of("web")[0].exit()
		s.act("db", program.Start{AskedBy: "alice"})
		s.act("web", program.Start{AskedBy: "alice"})
		s.lives("db")
		s.of("db")[0].ready()
		s.lives("db", "web")
	}, after(t, "db"), after(t, "web", "db"))
}

// TestNobodyWaitsForAProgramThatHasDoneItsWork: one that is not to be started again.
func TestNobodyWaitsForAProgramThatHasDoneItsWork(t *testing.T) {
	migrate := after(t, "migrate")
	migrate.Restart.When = config.Never
	onStage(t, func(s *stage) {
		s.of("migrate")[0].ready()
		s.lives("migrate", "web")
		s.act("web", program.Stop{AskedBy: "alice"})
		s.of("web")[0].exit()
		s.of("migrate")[0].exit()
		s.act("web", program.Start{AskedBy: "alice"})
		s.lives("web")
	}, migrate, after(t, "web", "migrate"))
}

func TestStartWaitsForAProgramThatFails(t *testing.T) {
	onStage(t, func(s *stage) {
		s.of("db")[0].crash()
		s.lives()
		if !strings.Contains(s.summary("web"), "waits for db") || !strings.Contains(s.summary("db"), "1 failed start") {
			t.Errorf("got %q and %q", s.summary("web"), s.summary("db"))
		}
		s.act("web", program.Stop{AskedBy: "alice"}) // a stop ends the wait
		if got := s.summary("web"); got != "web down" {
			t.Errorf("got %q", got)
		}
	}, after(t, "db"), after(t, "web", "db"))
}

// stopInOrder runs play after TERM to a supervisor whose programs serve, but for one that is called never, and waits
// for the end.
func stopInOrder(t *testing.T, play func(*stage), programs ...*config.Program) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, programs...)
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		s.run()
		for i := 0; i < len(s.workers()); i++ { // one that is ready brings the next
			if unready := slices.Contains(s.started[i].spec.Command, "never"); !unready {
				s.started[i].ready()
			}
		}
		s.stop <- siginfo.Caught{Number: syscall.SIGTERM}
		synctest.Wait()
		play(s)
		if err := <-s.done; err != nil {
			t.Error(err)
		}
	})
}

func TestProgramsStopInReverseOrder(t *testing.T) {
	stopInOrder(t, func(s *stage) {
		s.stops("mail", "web")
		if got, want := s.summary("db"),
			"db up, generation 1 (1 worker), stops when these have stopped: api, web"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		s.of("web")[0].exit()
		s.stops("api", "mail")
		s.of("mail")[0].exit()
		s.of("api")[0].exit()
		s.stops("db")
		s.of("db")[0].exit()
	}, after(t, "api", "db"), after(t, "db"), after(t, "mail"), after(t, "web", "api", "db"))
}

// TestProgramThatOthersNeedIsReplacedWhileTheyStop: it is not told to stop yet.
func TestProgramThatOthersNeedIsReplacedWhileTheyStop(t *testing.T) {
	stopInOrder(t, func(s *stage) {
		s.of("db")[0].crash()
		s.lives("db", "web")
		s.of("web")[0].exit()
		s.stops("db")
		s.of("db")[0].exit()
	}, after(t, "db"), after(t, "web", "db"))
}

func TestSecondSignalStopsEveryProgramNow(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT} {
		stopInOrder(t, func(s *stage) {
			s.stops("web")
			s.stop <- siginfo.Caught{Number: sig}
			synctest.Wait()
			s.stops("db", "web")
			s.of("db")[0].exit()
			s.of("web")[0].exit()
		}, after(t, "db"), after(t, "web", "db"))
	}
}

func TestStopEndsTheWaitForAStart(t *testing.T) {
	stopInOrder(t, func(s *stage) {
		s.lives("never")
		s.stops("never")
		s.of("never")[0].exit()
		s.lives()
	}, after(t, "never"), after(t, "web", "never"))
}

func TestRemovedProgramsStopInReverseOrder(t *testing.T) {
	db, web := after(t, "db"), after(t, "web", "db")
	mail := after(t, "mail")
	onStage(t, func(s *stage) {
		s.of("db")[0].ready()
		s.of("mail")[0].ready()
		s.of("web")[0].ready()
		s.conf = configOf(mail)
		s.hup()
		s.of("mail")[1].ready()
		s.of("mail")[0].exit()
		s.stops("web")
		s.of("web")[0].exit()
		s.stops("db")
		s.of("db")[0].exit()
		if names := s.super.programs.names(); !slices.Equal(names, []string{"mail"}) {
			t.Errorf("programs %q are left", names)
		}
	}, db, mail, web)
}

// TestProgramThatIsConfiguredAgainBeforeItStopsIsReloaded: it was removed, and those that need it have not stopped yet.
func TestProgramThatIsConfiguredAgainBeforeItStopsIsReloaded(t *testing.T) {
	db, web, mail := after(t, "db"), after(t, "web", "db"), after(t, "mail")
	onStage(t, func(s *stage) {
		s.of("db")[0].ready()
		s.of("web")[0].ready()
		s.conf = configOf(mail)
		s.hup()
		s.stops("web")
		s.conf = configOf(db, mail)
		s.hup()
		s.of("web")[0].exit()
		s.stops()
		if n := len(s.of("db")); n != 2 {
			t.Errorf("%d workers of db, want the old one and the one of the reload", n)
		}
	}, db, mail, web)
}

// delayed plays with a supervisor whose stop_delay is 10 s, and whose only worker is ready.
func delayed(t *testing.T, play func(s *stage, signal func(syscall.Signal))) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, testProgram(t, "web"))
		s.conf.Supervisor.StopDelay = 10 * time.Second
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		s.run()
		s.workers()[0].ready()
		play(s, func(sig syscall.Signal) {
			s.stop <- siginfo.Caught{Number: sig}
			synctest.Wait()
		})
		s.end()
	})
}

// received fails unless these are the signals that the first worker has received.
func (s *stage) received(signals ...syscall.Signal) {
	s.Helper()
	if got := s.workers()[0].signals(); !slices.Equal(got, signals) {
		s.Errorf("the worker received %v, want %v", got, signals)
	}
}

func TestTERMStopsAfterStopDelay(t *testing.T) {
	delayed(t, func(s *stage, signal func(syscall.Signal)) {
		signal(syscall.SIGTERM)
		if st, err := s.super.Status(s.Context()); err != nil || !st.Stopping || !st.Programs[0].Serves() {
			t.Errorf("in the delay: %+v, %v", st, err)
		}
		if got := time.Duration(s.launcher.systemd.extension.Load()); got < 10*time.Second {
			t.Errorf("systemd is told to wait for %v", got)
		}
		time.Sleep(9 * time.Second)
		s.received()
		time.Sleep(time.Second)
		synctest.Wait()
		s.received(syscall.SIGTERM)
		s.workers()[0].exit()
	})
}

func TestWorkerThatCrashesInStopDelayIsReplaced(t *testing.T) {
	delayed(t, func(s *stage, signal func(syscall.Signal)) {
		signal(syscall.SIGTERM)
		s.workers()[0].crash()
		time.Sleep(time.Second)
		synctest.Wait()
		s.count(2)
	})
}

func TestSecondTERMEndsStopDelay(t *testing.T) {
	delayed(t, func(s *stage, signal func(syscall.Signal)) {
		signal(syscall.SIGTERM)
		signal(syscall.SIGTERM)
		s.received(syscall.SIGTERM)
		signal(syscall.SIGTERM)
		s.received(syscall.SIGTERM, syscall.SIGKILL)
	})
}

func TestINTAndQUITDoNotWaitForStopDelay(t *testing.T) {
	for sig, want := range map[syscall.Signal]syscall.Signal{syscall.SIGINT: syscall.SIGTERM,
		syscall.SIGQUIT: syscall.SIGKILL} {
		delayed(t, func(s *stage, signal func(syscall.Signal)) {
			signal(sig)
			s.received(want)
		})
	}
}
