package socket

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// perSlot opens a listener with a socket for each slot.
func perSlot(t testing.TB, slots int) (*Table, Want) {
	t.Helper()
	table := newTable(t)
	// Non-blocking, because two generations accept from one socket and the other one may be faster.
	w := Want{Resolved: resolved(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), PerSlot: true,
		Sockopts: Sockopts{NonBlock: true},
		Handover: Steer}), Slots: slots}
	apply(t, table, w)
	return table, w
}

func resize(t testing.TB, table *Table, w Want, slots int) {
	t.Helper()
	w.Slots = slots
	apply(t, table, w)
}

// worker accepts on its own copy of a socket, as a process would, and answers each connection with one byte. Before
// it stops, it empties its queue for a moment.
type worker struct {
	fd   int
	stop [2]int
	done chan struct{}
}

func startWorker(t testing.TB, fd int) *worker {
	t.Helper()
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{fd: own, done: make(chan struct{})}
	if err := unix.Pipe2(w.stop[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	go w.run()
	return w
}

func (w *worker) run() {
	defer close(w.done)
	polled := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}, {Fd: int32(w.stop[0]), Events: unix.POLLIN}}
	var end time.Time
	for {
		timeout := -1
		if !end.IsZero() {
			timeout = max(0, int(time.Until(end).Milliseconds()))
		}
		n, err := unix.Poll(polled, timeout)
		if n == 0 || timeout == 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if len(polled) == 2 && polled[1].Revents != 0 {
			polled, end = polled[:1], time.Now().Add(50*time.Millisecond)
		}
		if polled[0].Revents == 0 {
			continue
		}
		if conn, _, err := unix.Accept4(w.fd, unix.SOCK_CLOEXEC); err == nil { // another generation may have been faster
			_, _ = unix.Write(conn, []byte("y"))
			_ = unix.Close(conn)
		}
	}
}

func (w *worker) end() {
	_, _ = unix.Write(w.stop[1], []byte("x"))
	<-w.done
	for _, fd := range []int{w.fd, w.stop[0], w.stop[1]} {
		_ = unix.Close(fd)
	}
}

// clients connect and wait for an answer repeatedly until they are stopped.
func clients(address string, n int) (end func() (answered, lost int64)) {
	var answered, lost atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for !over.Load() {
				if ask(address) == nil {
					answered.Add(1)
				} else {
					lost.Add(1)
				}
			}
		})
	}
	return func() (int64, int64) {
		over.Store(true)
		all.Wait()
		return answered.Load(), lost.Load()
	}
}

func ask(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// generation starts a worker for each slot.
func generation(t testing.TB, table *Table, w Want, slots int) (lanes []*Lane, workers []*worker) {
	t.Helper()
	lanes = held(t, table, w)
	for slot := range slots {
		workers = append(workers, startWorker(t, lanes[0].FD(slot)))
	}
	return lanes, workers
}

func TestNoConnectionIsLostAsSlotsComeAndGo(t *testing.T) {
	table, w := perSlot(t, 4)
	key := w.Key()
	lanes, serving := generation(t, table, w, 4)
	end := clients(table.Address(key), 4)
	for _, slots := range []int{2, 6, 1, 5, 3, 8, 4, 4, 1, 2, 7, 3} {
		resize(t, table, w, slots)
		next, trial := generation(t, table, w, slots)
		time.Sleep(20 * time.Millisecond) // a trial, as long as a worker takes to boot; no event to wait for
		if err := serve(table, next); err != nil {
			t.Fatal(err)
		}
		for _, worker := range serving {
			worker.end()
		}
		table.Release(lanes)
		lanes, serving = next, trial
	}
	answered, lost := end()
	for _, worker := range serving {
		worker.end()
	}
	t.Logf("%d answered, %d lost", answered, lost)
	if lost != 0 || answered < 100 {
		t.Errorf("%d of %d connections were lost", lost, answered+lost)
	}
}

func TestWorkersOfASteeredListenerAreSpreadOverSockets(t *testing.T) {
	for _, c := range []struct {
		spec           Spec
		workers, wants int
	}{
		{Spec{Address: addr("127.0.0.1:0")}, 1, 1},
		{Spec{Address: addr("127.0.0.1:0")}, SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0")}, SlotsOfSocket + 1, 2},
		{Spec{Address: addr("127.0.0.1:0")}, 10 * SlotsOfSocket, 10},
		{Spec{Address: addr("127.0.0.1:0"), Single: true}, 10 * SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer}, 40, 40},
		{Spec{Address: addr("unix:" + t.TempDir() + "/s")}, 10 * SlotsOfSocket, 1},
	} {
		table, w := steered(t, c.spec)
		lanes, err := table.Hold([]Resolved{w.Resolved}, c.workers)
		if err != nil {
			t.Fatal(err)
		}
		if got := lanes[0].Sockets(); got != c.wants {
			t.Errorf("%d workers of %+v have %d sockets, want %d", c.workers, c.spec, got, c.wants)
		}
		for slot := range c.workers + 5 {
			fd := lanes[0].FD(slot)
			if want := lanes[0].FD(slot % c.wants); fd != want && !(c.spec.PerSlot && slot >= c.workers) || fd < 0 &&
				slot < c.workers {
				t.Errorf("of %d sockets, slot %d has %d, want %d", c.wants, slot, fd, want)
			}
		}
		_ = table.Close()
	}
}

func TestSharedListenerKeepsOneSocketForManyWorkers(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	w.Slots = 10 * SlotsOfSocket
	apply(t, table, w)
	lanes, err := table.Hold([]Resolved{w.Resolved}, w.Slots)
	if err != nil || lanes[0].Sockets() != 1 || len(table.FDs(w.Key())) != 1 {
		t.Errorf("it has %d sockets (%v)", len(table.FDs(w.Key())), err)
	}
}

func TestFewDescriptorsMeanFewSockets(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	r := resolved(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer})
	for limit, want := range map[uint64]int{32: 1, 256: 4, 640: 10} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		if got := r.sockets(10 * SlotsOfSocket); got != want {
			t.Errorf("with room for %d descriptors there are %d sockets, want %d", limit, got, want)
		}
	}
}

func TestConnectionsGoToTheSocketsOfTheChosenSlots(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
	lanes, err := table.Hold([]Resolved{w.Resolved}, 3*SlotsOfSocket)
	if err != nil {
		t.Fatal(err)
	}
	fds := []int{lanes[0].FD(0), lanes[0].FD(1), lanes[0].FD(2)}
	for _, c := range []struct {
		slots []int
		want  []bool
	}{
		{nil, []bool{true, true, true}},
		{[]int{0, 4, 33}, []bool{true, true, false}},
		{[]int{95}, []bool{false, false, true}},
	} {
		if err := table.Steer([]Part{{Lanes: lanes, Slots: c.slots, Weight: 1}}); err != nil {
			t.Fatal(err)
		}
		got := arrivals(t, table.Address(w.Key()), 100, fds...)
		for i, fd := range fds {
			if got[fd] > 0 != c.want[i] {
				t.Errorf("slots %v: socket %d got %d of 100 connections", c.slots, i, got[fd])
			}
		}
		if left := Left(lanes, []int{94, 95}); len(left) > 0 != (c.slots != nil) {
			t.Errorf("slots %v: slots 94 and 95 are left with %v", c.slots, left)
		}
	}
}
