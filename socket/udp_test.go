package socket

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// udpTable returns a table with a steered UDP listener at an address.
func udpTable(t *testing.T, address string) (*Table, Want) {
	t.Helper()
	table, w, _ := opened(t, Spec{Address: addr(address), Handover: Steer})
	return table, w
}

// sends sends a datagram from a socket of its own.
func sends(t *testing.T, table *Table, w Want, text string) {
	t.Helper()
	conn, err := net.Dial("udp", table.Address(w.Key()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// waiting reads all datagrams that wait in a lane. On the loopback device they are there when they have been sent.
func waiting(lane *Lane) (texts []string) {
	for {
		buffer := make([]byte, 64)
		n, _, err := unix.Recvfrom(lane.FD(0), buffer, unix.MSG_DONTWAIT)
		if err != nil {
			return texts
		}
		texts = append(texts, string(buffer[:n]))
	}
}

// reach sends many datagrams, each from its own port, and fails unless this lane gets all of them.
func reach(t *testing.T, table *Table, w Want, lane *Lane) {
	t.Helper()
	const many = 40
	for range many {
		sends(t, table, w, "hello")
	}
	if got := waiting(lane); len(got) != many {
		t.Fatalf("the serving lane gets %d of %d datagrams", len(got), many)
	}
}

func TestDatagramsGoToTheServingGeneration(t *testing.T) {
	for _, address := range []string{"udp:127.0.0.1:0", "udp:[::1]:0", "udp::0"} {
		t.Run(address, func(t *testing.T) {
			if strings.Contains(address, "[") {
				needIPv6(t)
			}
			table, w := udpTable(t, address)
			var before []*Lane
			for range 3 * lanesOfUDP { // each lane is used several times
				next := held(t, table, w)
				if len(before) > 0 {
					reach(t, table, w, before[0])
				}
				if len(before) > 0 {
					sends(t, table, w, "queued")
				}
				if err := serve(table, next); err != nil {
					t.Fatal(err)
				}
				reach(t, table, w, next[0])
				if len(before) > 0 {
					if got := waiting(before[0]); !slices.Equal(got, []string{"queued"}) {
						t.Fatalf("the old generation has %q", got)
					}
					table.Release(before)
				}
				before = next
			}
			if n := len(table.FDs(w.Key())); n != lanesOfUDP {
				t.Errorf("the listener has %d sockets", n)
			}
		})
	}
}

func TestDatagramsStayWithoutAGenerationForTheNextOne(t *testing.T) {
	table, w := udpTable(t, "udp:127.0.0.1:0")
	first := held(t, table, w)
	sends(t, table, w, "one")
	table.Release(first)
	sends(t, table, w, "two")
	if got := waiting(held(t, table, w)[0]); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the next generation gets %q", got)
	}
}

// A server may open a socket for each client, beside its listener. These come and go behind the lanes.
func TestSocketsThatWorkersBindAndCloseMoveNoLane(t *testing.T) {
	table, w := udpTable(t, "udp:127.0.0.1:0")
	old := held(t, table, w)
	at, err := unix.Getsockname(old[0].FD(0))
	if err != nil {
		t.Fatal(err)
	}
	beside := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}
		if err == nil {
			err = unix.Bind(fd, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	one, two := beside(), beside()
	defer unix.Close(two)
	next := held(t, table, w)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	reach(t, table, w, next[0])
	unix.Close(one)
	reach(t, table, w, next[0])
}

func TestDatagramsOfAGenerationThatIsGoneReachNoOther(t *testing.T) {
	table, w := udpTable(t, "udp:127.0.0.1:0")
	old := held(t, table, w)
	sends(t, table, w, "late")
	next := held(t, table, w)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	fd := old[0].FD(0)
	table.Release(old)
	third := held(t, table, w)
	if third[0].FD(0) != fd {
		t.Fatal("the third generation has another lane")
	}
	if got := waiting(third[0]); len(got) > 0 {
		t.Errorf("it gets %q", got)
	}
}

func TestLaneThatAWorkerHasConnectedIsUsedNoMore(t *testing.T) {
	table, w := udpTable(t, "udp:127.0.0.1:0")
	old := held(t, table, w)
	if err := unix.Connect(old[0].FD(0), &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	next := held(t, table, w)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	reach(t, table, w, next[0])
	table.Release(old)
	third := held(t, table, w)
	if err := serve(table, third); err != nil {
		t.Fatal(err)
	}
	reach(t, table, w, third[0])
	if n := len(table.FDs(w.Key())); n >= lanesOfUDP {
		t.Errorf("the listener keeps %d sockets, also the one that hears one client", n)
	}
}

func TestNextSupervisorSteersDatagramsAsBefore(t *testing.T) {
	table, w := udpTable(t, "udp:127.0.0.1:0")
	old, next := held(t, table, w), held(t, table, w)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	sends(t, table, w, "queued")
	lanes := recorded(t, next[0], old[0])
	second := newTable(t)
	second.Offer(handedOver(t, table))
	if errs := second.Resume(lanes); len(errs) > 0 {
		t.Fatal(errs)
	}
	sends(t, second, w, "between")
	if err := serve(second, lanes[:1]); err != nil {
		t.Fatal(err)
	}
	apply(t, second, w)
	if got := waiting(lanes[0]); !slices.Equal(got, []string{"queued", "between"}) {
		t.Errorf("the serving generation has %q", got)
	}
	reach(t, second, w, lanes[0])
	third := held(t, second, w)
	if err := serve(second, third); err != nil {
		t.Fatal(err)
	}
	reach(t, second, w, third[0])
}

// orphans are the workers of generations whose supervisor has died, and nobody has kept its sockets.
func TestSupervisorAfterAKillTakesLanesOfOrphansAsOne(t *testing.T) {
	for _, set := range survivors(3) {
		table, w := udpTable(t, "udp:127.0.0.1:0")
		for range 3 {
			if err := serve(table, held(t, table, w)); err != nil {
				t.Fatal(err)
			}
		}
		address := "udp:" + table.Address(w.Key())
		var orphans []inherit.Socket
		for _, i := range set {
			orphans = append(orphans, keep(t, table.FDs(w.Key())[i]).orphan(t, 0))
		}
		die(table)
		second, now := newTable(t), want(t, Spec{Address: addr(address), Handover: Steer})
		second.Offer(orphans)
		apply(t, second, now)
		const many = 40
		for range many {
			sends(t, second, now, "hello")
		}
		got := 0
		for _, o := range orphans {
			got += len(waiting(&Lane{slots: []*sock{{fd: o.FD}}}))
		}
		if got != many {
			t.Errorf("%v: the orphans get %d of %d datagrams", set, got, many)
		}
		for range lanesOfUDP {
			next := held(t, second, now)
			if err := serve(second, next); err != nil {
				t.Fatal(err)
			}
			reach(t, second, now, next[0])
			second.OrphansGone()
		}
	}
}

// quicTable returns a table with a QUIC listener.
func quicTable(t *testing.T) (*Table, Want) {
	t.Helper()
	table, w, _ := opened(t, Spec{Address: addr("udp:127.0.0.1:0"), Handover: QUIC})
	return table, w
}

// ofLane is a datagram of a connection whose ID a worker with this lane has made.
func ofLane(t *testing.T, lane *Lane) string {
	t.Helper()
	number, is := lane.QUIC()
	if !is {
		t.Fatal("the lane has no number")
	}
	id := make([]byte, 7)
	id[LaneByte] = byte(number)
	return string(shortHeader(id))
}

func TestDatagramsOfQUICReachTheGenerationOfTheirConnection(t *testing.T) {
	table, w := quicTable(t)
	begin := string(longHeader(0, []byte("made up!")))
	var lanes []*Lane
	for range 2 * lanesOfUDP {
		if len(lanes) == 4 { // the oldest is gone
			gone := ofLane(t, lanes[0])
			table.Release(lanes[:1])
			lanes = lanes[1:]
			sends(t, table, w, gone)
			if got := waiting(lanes[2]); !slices.Equal(got, []string{gone}) {
				t.Fatalf("the serving generation gets %q of a connection whose generation is gone", got)
			}
		}
		next := held(t, table, w)
		if err := serve(table, next); err != nil {
			t.Fatal(err)
		}
		lanes = append(lanes, next...)
		sends(t, table, w, begin)
		for _, lane := range lanes {
			sends(t, table, w, ofLane(t, lane))
		}
		for i, lane := range lanes {
			want := []string{ofLane(t, lane)}
			if i == len(lanes)-1 {
				want = []string{begin, want[0]}
			}
			if got := waiting(lane); !slices.Equal(got, want) {
				t.Fatalf("lane %d of %d gets %q", i, len(lanes), got)
			}
		}
	}
}

func TestOldGenerationOfQUICIsQuietWhenNothingComesForIt(t *testing.T) {
	table, w := quicTable(t)
	old := held(t, table, w)
	first := ofLane(t, old[0])
	sends(t, table, w, first)
	waiting(old[0])
	if err := serve(table, held(t, table, w)); err != nil {
		t.Fatal(err)
	}
	silence := Left(old, nil)[0].Silences[0]
	sends(t, table, w, first)
	waiting(old[0])
	begun := time.Now()
	if s := silence(); s > time.Since(begun) {
		t.Errorf("a datagram has just come, and it is silent for %v", s)
	}
	before := silence()
	if s := silence(); s <= before {
		t.Errorf("it was silent for %v, and is for %v", before, s)
	}
	if err := unix.SetsockoptInt(old[0].FD(0), unix.SOL_SOCKET, unix.SO_TIMESTAMP, 1); err != nil {
		t.Fatal(err)
	}
	if s := silence(); s != 0 {
		t.Errorf("the worker asks for timestamps, and it is silent for %v", s)
	}
}
