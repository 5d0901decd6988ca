package supervisor

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// became returns how a connection ended: 0, or the error of a read.
func (c *client) became() error {
	c.Helper()
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 1000); n != 1 || err != nil {
		c.Fatal("nothing becomes of a connection")
	}
	_, err := unix.Read(c.fd, make([]byte, 100))
	return err
}

// lost is what the record of the newest reload says.
func (s *stage) lost() program.Lost {
	s.Helper()
	r := s.status().Reloads
	if l := r[len(r)-1].Lost; l != nil {
		return *l
	}
	return program.Lost{}
}

func TestRecordSaysWhatAWorkerHasLost(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		unread, unanswered, waits := s.connect(), s.connect(), s.connect()
		first, second := s.accept(1), s.accept(1)
		unread.sends("question")
		unanswered.sends("question")
		waits.sends("question")
		unix.Read(second.fd, make([]byte, 100))
		s.replaced()
		pass(10 * time.Second)
		if !s.told(1) {
			t.Fatal("not told at drain.timeout")
		}
		unix.Close(first.fd)
		unix.Close(second.fd)
		s.workers()[0].exit()
		synctest.Wait()
		if l := s.lost(); l != (program.Lost{Queued: 1, Unread: 1, Unanswered: 1}) {
			t.Errorf("lost %+v", l)
		}
		if err := waits.became(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the connection that waited ended with %v", err)
		}
	}, steeredProgram(t))
}

func TestAnswerUnderWayAtKILLIsInTheRecord(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		c := s.connect()
		a := s.accept(1)
		c.sends("question")
		unix.Read(a.fd, make([]byte, 100))
		unix.SetNonblock(a.fd, true)
		for err := error(nil); err == nil; {
			_, err = unix.Write(a.fd, make([]byte, 1<<20))
		}
		s.replaced()
		pass(10*time.Second + time.Minute)
		if !slices.Contains(s.workers()[0].signals(), syscall.SIGKILL) {
			t.Fatal("not killed")
		}
		unix.Close(a.fd)
		s.workers()[0].crash()
		synctest.Wait()
		if l := s.lost(); l != (program.Lost{Unsent: 1}) {
			t.Errorf("lost %+v", l)
		}
	}, steeredProgram(t))
}

// TestStopWithoutADrainLooksBeforeTERM has a program whose workers are told to stop at once.
func TestStopWithoutADrainLooksBeforeTERM(t *testing.T) {
	c := steeredProgram(t)
	c.Drain.Timeout = 0
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		asks := s.connect()
		a := s.accept(1)
		asks.sends("question")
		s.replaced()
		synctest.Wait()
		if !s.told(1) {
			t.Fatal("not told at once")
		}
		unix.Close(a.fd)
		s.workers()[0].exit()
		synctest.Wait()
		if l := s.lost(); l != (program.Lost{Unread: 1}) {
			t.Errorf("lost %+v", l)
		}
	}, c)
}

// TestSignalThatWaitsForALookIsSentOnce has the step of the stop plan performed again while the look is under way, as when a worker is adopted.
// A second TERM cuts off what a polite worker still has in hand.
func TestSignalThatWaitsForALookIsSentOnce(t *testing.T) {
	c := steeredProgram(t)
	c.Drain.Timeout = 0
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		synctest.Wait()
		s.hup()
		s.count(2)
		p := s.super.programs["web"]
		s.super.post(func() {
			p.workerDid(2, worker.ReadySaid{})
			p.resendAll()
		})
		synctest.Wait()
		if got := s.workers()[0].signals(); !slices.Equal(got, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("the old worker got %v", got)
		}
	}, c)
}

func TestSignalDoesNotWaitForALookThatTakesTooLong(t *testing.T) {
	c := steeredProgram(t)
	c.Drain.Timeout = 0
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		synctest.Wait()
		looks := make(chan struct{})
		s.looks(func(web *runner, _ *socket.Table) {
			web.generations[1].watches = map[int]*diag.Watch{everySlot: diag.NewWatchOf([]uint16{1}, func() map[uint64]bool {
				<-looks
				return nil
			})}
		})
		s.replaced()
		pass(lookPatience - time.Millisecond)
		if s.told(1) {
			t.Fatal("told before the look")
		}
		pass(time.Millisecond)
		if !s.told(1) {
			t.Fatal("not told when the look takes too long")
		}
		close(looks)
		synctest.Wait()
		if got := s.workers()[0].signals(); !slices.Equal(got, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("the old worker got %v", got)
		}
	}, c)
}

// TestGenerationSaysWhatItsDeadWorkersHaveLost has a worker that dies while it serves, with an answer under way.
func TestGenerationSaysWhatItsDeadWorkersHaveLost(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		asks := s.connect()
		a := s.accept(1)
		asks.sends("question")
		unix.Read(a.fd, make([]byte, 100))
		unix.SetNonblock(a.fd, true)
		for err := error(nil); err == nil; {
			_, err = unix.Write(a.fd, make([]byte, 1<<20))
		}
		unix.Close(a.fd)
		s.workers()[0].crash()
		synctest.Wait()
		if g := s.status().Generations[0]; g.Lost == nil || *g.Lost != (program.Lost{Unsent: 1}) {
			t.Errorf("lost %+v", g.Lost)
		}
	}, steeredProgram(t))
}
