package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
)

// kept is a connection whose request is answered, and that its client keeps open.
func (s *stage) kept(generation int) (*client, *accepted) {
	s.Helper()
	c := s.connect()
	c.sends("question")
	a := s.accept(generation)
	if a == nil {
		s.Fatalf("generation %d has not got the connection", generation)
	}
	a.answers()
	unix.Read(c.fd, make([]byte, 100))
	return c, a
}

// settles lets both clocks pass until the kernel shows that keep-alive connections are idle.
func (s *stage) settles() {
	for range 2 {
		kernelTime(120)
		pass(time.Second)
	}
}

// TestAnswerInPartsIsNotCut has an answer whose parts are less than drain.silence apart, at a worker that ends on TERM.
func TestAnswerInPartsIsNotCut(t *testing.T) {
	web := steeredProgram(t)
	// Silence is of the kernel's time, which nobody can set: long enough for a busy machine.
	web.Drain.Silence, web.Drain.Timeout = 3*time.Second, time.Hour
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		c, a := s.kept(1)
		s.replaced()
		for range 8 {
			kernelTime(100)
			pass(time.Second)
			if s.told(1) {
				t.Fatal("told in the middle of an answer")
			}
			unix.Write(a.fd, []byte("part"))
			unix.Read(c.fd, make([]byte, 100))
		}
		pass(time.Second)
		if st := s.status().Generations[1]; st.InHand == nil || st.InHand.Active != 1 ||
			st.InHand.Within != web.Drain.Silence {
			t.Errorf("the status shows %+v in hand", st.InHand)
		}
		for range 600 { // of 100 ms
			if kernelTime(100); s.told(1) {
				return
			}
			pass(time.Second)
		}
		t.Error("not told when the connection was silent")
	}, web)
}

func TestOldWorkersWithConnectionsAreToldOneAfterTheOther(t *testing.T) {
	web := steeredProgram(t)
	web.Workers, web.Drain.Spread = 2, 20*time.Second
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		s.kept(1)
		s.hup()
		for _, w := range s.workers()[2:] {
			w.ready()
		}
		s.settles()
		if !s.told(1) || s.told(2) {
			t.Fatalf("told at first: %t, %t", s.told(1), s.told(2))
		}
		pass(10 * time.Second)
		if !s.told(2) {
			t.Error("the second is not told at half of drain.spread")
		}
	}, web)
}

func TestCanaryOfOneWorkerGetsAsMuchAsOneWorker(t *testing.T) {
	web := steeredProgram(t)
	web.Workers = 3
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		if _, err := s.super.Reload(s.Context(), ReloadOptions{Programs: []string{"web"}, Canary: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.count(4)
		s.workers()[3].ready()
		n := 0
		for range 400 {
			if s.reached() == 2 {
				n++
			}
		}
		if n < 60 || n > 140 {
			t.Errorf("%d of 400 connections reach the canary, want about 100", n)
		}
		if _, err := s.super.Act(s.Context(), "web", program.Abort{}); err != nil {
			t.Fatal(err)
		}
		pass(diag.First)
		if n := s.reached(); n != 1 || !s.told(4) || s.told(1) {
			t.Errorf("after the abort generation %d gets connections, and the workers are told: %t, %t", n, s.told(4), s.told(1))
		}
	}, web)
}

func TestRollingSwitchesSlotBySlot(t *testing.T) {
	web := steeredProgram(t)
	web.Workers, web.Reload.Strategy, web.Listen[0].PerSlot = 2, config.Rolling, true
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		reach := func() (first, second int) {
			for range 100 {
				if s.reached() == 1 {
					first++
				} else {
					second++
				}
			}
			return first, second
		}
		s.hup()
		s.count(3)
		if _, second := reach(); second > 0 {
			t.Fatalf("%d connections reach a worker that is not ready", second)
		}
		s.workers()[2].ready()
		if first, second := reach(); first < 25 || second < 25 {
			t.Errorf("half way, %d connections reach the old generation, %d the new one", first, second)
		}
		pass(diag.First)
		if !s.told(1) || s.told(2) {
			t.Errorf("half way, told: %t, %t", s.told(1), s.told(2))
		}
		s.workers()[0].exit()
		s.count(4)
		s.workers()[3].ready()
		first, _ := reach()
		if pass(diag.First); first > 0 || !s.told(2) {
			t.Errorf("at the end, %d connections reach the old generation; told: %t", first, s.told(2))
		}
	}, web)
}

func TestSlotOfCrashedWorkerGetsNoConnections(t *testing.T) {
	web := steeredProgram(t)
	web.Workers, web.Listen[0].PerSlot = 2, true
	onStage(t, func(s *stage) {
		for _, w := range s.workers() {
			w.ready()
		}
		s.workers()[0].exit()
		s.count(3)
		for range 20 {
			s.connect()
		}
		s.looks(func(p *runner, table *socket.Table) {
			lane := p.generations[1].lanes[0]
			if queued(lane.FD(0)) || !queued(lane.FD(1)) {
				t.Error("new connections wait for a worker that does not live")
			}
		})
		s.workers()[2].ready()
		for range 20 {
			s.connect()
		}
		s.looks(func(p *runner, table *socket.Table) {
			if !queued(p.generations[1].lanes[0].FD(0)) {
				t.Error("the replacement gets no connections")
			}
		})
	}, web)
}
