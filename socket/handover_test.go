package socket

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// steered opens a listener whose generations have lanes of their own.
func steered(t testing.TB, s Spec) (*Table, Want) {
	t.Helper()
	s.Handover, s.NonBlock = Steer, true
	if s.Name == "" {
		s.Name = "web"
	}
	table := newTable(t)
	w := want(t, s)
	w.Slots = 1
	apply(t, table, w)
	return table, w
}

// arrivals makes connections and says how many reached each of the sockets; -1: none of them.
func arrivals(t testing.TB, address string, connections int, fds ...int) map[int]int {
	t.Helper()
	got := map[int]int{}
	for range connections {
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		got[acceptor(t, fds)]++
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // no TIME_WAIT, so that there are enough ports
		}
		_ = client.Close()
	}
	return got
}

// acceptor accepts the connection that waits in one of the sockets; -1: there is none.
func acceptor(t testing.TB, fds []int) int {
	t.Helper()
	polled := pollAll(fds)
	if n, err := unix.Poll(polled, 5000); n <= 0 {
		t.Error("no connection arrived: ", err)
		return -1
	}
	for _, p := range polled {
		if p.Revents == 0 {
			continue
		}
		conn, _, err := unix.Accept4(int(p.Fd), unix.SOCK_CLOEXEC)
		if err != nil {
			t.Error(err)
			return -1
		}
		_ = unix.Close(conn)
		return int(p.Fd)
	}
	return -1
}

func mustServe(t testing.TB, table *Table, lanes []*Lane) {
	t.Helper()
	if err := serve(table, lanes); err != nil {
		t.Fatal(err)
	}
}

func TestSteeredGenerationsHaveSocketsOfTheirOwn(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
	var fds []int
	old := held(t, table, w)
	mustServe(t, table, old)
	for range 3 {
		next := held(t, table, w)
		a, b := old[0].FD(0), next[0].FD(0)
		if a == b || !next[0].Own() || len(Left(old, nil)) != 0 {
			t.Fatalf("sockets %d and %d, own %v, left %v", a, b, next[0].Own(), Left(old, nil))
		}
		if got := arrivals(t, table.Address(w.Key()), 200, a, b); got[a] != 200 {
			t.Errorf("before the flip: %v, want all at %d", got, a)
		}
		mustServe(t, table, next)
		if got := arrivals(t, table.Address(w.Key()), 200, a, b); got[b] != 200 {
			t.Errorf("after the flip: %v, want all at %d", got, b)
		}
		if left := Left(old, nil); len(left) != 1 || len(left[0].Queues) != 1 ||
			left[0].Queues[0] != inodeOf(t, a) || left[0].Port == 0 {
			t.Errorf("left: %v", left)
		}
		table.Release(old)
		old, fds = next, append(fds, a)
	}
	if slices.Sort(fds); len(slices.Compact(fds)) != 2 || len(table.FDs(w.Key())) != 2 {
		t.Errorf("sockets %v were used, %v are open: want two in turn", fds, table.FDs(w.Key()))
	}
}

func pollAll(fds []int) (polled []unix.PollFd) {
	for _, fd := range fds {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return polled
}

// reaches checks that a probe reaches this socket and no other.
func reaches(t testing.TB, table *Table, claim *Lane, slot int, others ...int) {
	t.Helper()
	p, err := claim.Probe(slot)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := p.Dial(ctx)
	if err != nil {
		t.Fatalf("probe of slot %d: %v", slot, err)
	}
	fd := claim.FD(slot)
	if got := acceptor(t, append([]int{fd}, others...)); got != fd {
		t.Errorf("a probe reached %d, not %d", got, fd)
	}
	_ = conn.Close()
	p.End()
	p.End()
}

func TestProbeReachesATrialThatClientsDoNotReach(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", ":0", "[::1]:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			if address[0] != '1' && address[0] != '0' {
				needIPv6(t)
			}
			table, w := steered(t, Spec{Address: addr(address)})
			old := held(t, table, w)
			mustServe(t, table, old)
			trial := held(t, table, w)
			a, b := old[0].FD(0), trial[0].FD(0)
			to := table.listeners[w.Key()].reachedAt().String()
			for range 20 {
				reaches(t, table, trial[0], 0, a)
				reaches(t, table, old[0], 0, b)
			}
			if got := arrivals(t, to, 200, a, b); got[a] != 200 {
				t.Errorf("clients reached %v, want all at %d", got, a)
			}
			if len(table.listeners[w.Key()].probes) != 0 {
				t.Error("a probe is left")
			}
		})
	}
}
