package socket

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hears sends a datagram to an address and returns which of these descriptors gets it.
func hears(t *testing.T, address string, fds ...int) int {
	t.Helper()
	if _, err := dial(t, "udp4", address).Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	var polled []unix.PollFd
	for _, fd := range fds {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if _, err := unix.Poll(polled, 5000); err != nil {
		t.Fatal(err)
	}
	for _, p := range polled {
		if p.Revents&unix.POLLIN != 0 {
			_, _, err := unix.Recvfrom(int(p.Fd), make([]byte, 8), 0)
			if err != nil {
				t.Fatal(err)
			}
			return int(p.Fd)
		}
	}
	t.Fatal("nobody hears it")
	return -1
}

// A worker keeps the descriptor that it inherited, and must not swallow what the one of IPv6 is to get.
func TestWidenedSocketHearsInPlaceOfTheOneThatAWorkerHas(t *testing.T) {
	needIPv6(t)
	for _, address := range []string{"udp:127.0.0.1:0", "udp:0.0.0.0:0"} {
		table := newTable(t)
		w := want(t, Spec{Address: addr(address)})
		apply(t, table, w)
		lanes := held(t, table, w)
		fd, at, before := lanes[0].FD(0), table.Address(w.Key()), table.Export()[0].Name
		inherited, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(inherited)
		for range 2 {
			if err := lanes[0].Widen(0); err != nil {
				t.Fatal(err)
			}
		}
		family, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if now := table.Address(w.Key()); family != unix.AF_INET6 || now != at || lanes[0].FD(0) != fd {
			t.Errorf("its family is %d, its address %s, was %s", family, now, at)
		}
		if got := hears(t, at, inherited, fd); got != fd {
			t.Errorf("%s: the socket of before hears", address)
		}
		if name := table.Export()[0].Name; name == before || !Exported(name) {
			t.Errorf("the store knows it as %s, as before", name)
		}
		for _, fd := range []int{inherited, fd} {
			if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR); on != 0 || err != nil {
				t.Errorf("others may bind to %s: %d, %v", address, on, err)
			}
		}
		table.Release(lanes)
	}
}

func TestSocketThatAnotherGenerationHasIsNotWidened(t *testing.T) {
	needIPv6(t)
	table := newTable(t)
	udp, tcp := want(t, Spec{Address: addr("udp:127.0.0.1:0")}), want(t, Spec{Address: addr("127.0.0.1:0")})
	apply(t, table, udp, tcp)
	old, next := held(t, table, udp), held(t, table, udp, tcp)
	if err := next[0].Widen(0); err == nil || !strings.Contains(err.Error(), "another generation") {
		t.Errorf("it is widened: %v", err)
	}
	if err := next[1].Widen(0); err == nil {
		t.Error("TCP is widened")
	}
	fd := old[0].FD(0)
	if got := hears(t, table.Address(udp.Key()), fd); got != fd {
		t.Error("the old generation hears nothing")
	}
	table.Release(old)
	if err := next[0].Widen(0); err != nil {
		t.Error(err)
	}
	table.Release(next)
}

func TestAllLanesOfAWidenedListenerAreOfIPv6(t *testing.T) {
	needIPv6(t)
	table, w := udpTable(t, "udp:127.0.0.1:0")
	old := held(t, table, w)
	if err := old[0].Widen(0); err != nil {
		t.Fatal(err)
	}
	reach(t, table, w, old[0])
	next := held(t, table, w)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	reach(t, table, w, next[0])
	second := newTable(t)
	second.Offer(handedOver(t, table))
	lanes := recorded(t, old[0], next[0])
	if errs := second.Resume(lanes); len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := serve(second, lanes[1:]); err != nil {
		t.Fatal(err)
	}
	apply(t, second, w)
	for range lanesOfUDP { // more than there were
		third := held(t, second, w)
		if family := option(t, third[0].FD(0), unix.SOL_SOCKET, unix.SO_DOMAIN); family != unix.AF_INET6 {
			t.Errorf("a lane is of family %d", family)
		}
		if err := serve(second, third); err != nil {
			t.Fatal(err)
		}
		reach(t, second, w, third[0])
	}
}
