package supervisor

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/supervisord/internal/siginfo"
)

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
