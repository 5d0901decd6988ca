package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

var everyKind = []Spec{
	{Address: addr("127.0.0.1:0")}, {Address: addr("[::1]:0")}, {Address: addr(":0")}, {Address: addr("udp:127.0.0.1:0")},
	{Address: addr("127.0.0.1:0"), ReusePort: true}, {Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer},
}

func TestSocketIsBlockingAndCloseOnExec(t *testing.T) {
	kinds := append([]Spec{{Address: addr("unix:" + t.TempDir() + "/s")}, {Address: addr("unix:@" + t.Name())}},
		everyKind...)
	for _, nonblock := range []bool{false, true} {
		for _, spec := range kinds {
			spec.NonBlock = nonblock
			table, _, fd := opened(t, spec)
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s is not close-on-exec", spec.Address)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 != nonblock {
				t.Errorf("%s has flags %#x", spec.Address, flags)
			}
			_ = table.Close()
		}
	}
}

func TestSocketIsTCPAndNotMPTCP(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	if p := option(t, fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); p != unix.IPPROTO_TCP {
		t.Errorf("protocol %d", p)
	}
	if option(t, fd, unix.SOL_SOCKET, unix.SO_REUSEADDR) != 1 || option(t, fd, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0 {
		t.Error("want SO_REUSEADDR without SO_REUSEPORT")
	}
}

func TestSocketIsNotInThePoller(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	dial(t, "tcp", addressOf(t, fd)) // the poller exists now
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	polled := 0
	for _, f := range files {
		text, _ := os.ReadFile(f) // some are gone by now
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "tfd:" {
				polled++
				if fields[1] == strconv.Itoa(fd) {
					t.Errorf("%s polls it", f)
				}
			}
		}
	}
	if polled == 0 {
		t.Error("nothing is polled at all, so this test proves nothing")
	}
}

func addressOf(t testing.TB, fd int) string {
	t.Helper()
	_, bound, listens := inherit.Describe(fd)
	if !listens {
		t.Fatalf("descriptor %d does not listen", fd)
	}
	return bound
}

func TestPortAloneIsDualStack(t *testing.T) {
	needIPv6(t)
	_, _, fd := opened(t, Spec{Address: addr(":0")})
	port := strconv.Itoa(int(addrPort(t, addressOf(t, fd)).Port()))
	dial(t, "tcp4", "127.0.0.1:"+port)
	dial(t, "tcp6", "[::1]:"+port)
}

func TestIPv6OnlyUnlessThePortAlone(t *testing.T) {
	needIPv6(t)
	for _, c := range []struct {
		address, only string
		want          int
	}{{":0", "", 0}, {":0", "true", 1}, {"[::]:0", "", 1}, {"[::]:0", "false", 0}, {"[::1]:0", "", 1}} {
		_, _, fd := opened(t, Spec{Address: addr(c.address), IPv6Only: c.only})
		if n := option(t, fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY); n != c.want {
			t.Errorf("%s with ipv6_only=%q: IPV6_V6ONLY=%d", c.address, c.only, n)
		}
	}
}

func TestWithoutIPv6ThePortAloneIsIPv4(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Address: addr(":0"), PerSlot: true, Handover: Steer})
	w.Slots = 2
	withoutIPv6(t, func() {
		apply(t, table, w)
		for slot := range w.Slots {
			if a := addressOf(t, table.FD(w.Key(), slot)); a != table.Address(w.Key()) || !strings.HasPrefix(a, "0.0.0.0:") {
				t.Errorf("slot %d is at %s", slot, a)
			}
		}
		refuses(t, table, want(t, Spec{Address: addr("[::1]:0")}), "address family not supported", "use an IPv4 address")
		refuses(t, table, want(t, Spec{Address: addr(":0"), Name: "six", IPv6Only: "true"}), "use an IPv4 address")
	})
}

func backlog(t testing.TB, fd int) int {
	t.Helper()
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sacked) // of a listening socket: sk_max_ack_backlog
}

func TestBacklogIsTheKernelsLimitUnlessSet(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	if n := backlog(t, fd); n != fullBacklog() {
		t.Errorf("backlog %d instead of %d", n, fullBacklog())
	}
	_, _, fd = opened(t, Spec{Address: addr("127.0.0.1:0"), Backlog: 7})
	if n := backlog(t, fd); n != 7 {
		t.Errorf("backlog %d instead of 7", n)
	}
}

func TestTCPOptionsReachTheKernel(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"),
		TCPOptions: TCPOptions{DeferAccept: 1500 * time.Millisecond, FastOpen: 17, KeepAlive: 31 * time.Second}})
	if n := option(t, fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT); n < 2 {
		t.Errorf("TCP_DEFER_ACCEPT is %d", n)
	}
	if n := option(t, fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN); n != 17 {
		t.Errorf("TCP_FASTOPEN is %d", n)
	}
}

func TestConnectionsInheritKeepAlive(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), TCPOptions: TCPOptions{KeepAlive: 31 * time.Second}})
	dial(t, "tcp", addressOf(t, fd))
	conn := accepted(t, fd)
	if option(t, conn, unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 1 ||
		option(t, conn, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE) != 31 ||
		option(t, conn, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL) != 31 {
		t.Error("the connection lacks the option")
	}
}

func TestSocketIsBoundToItsInterface(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), Interface: "lo"})
	if name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil ||
		strings.TrimRight(name, "\x00") != "lo" {
		t.Errorf("interface %q, %v", name, err)
	}
}

func TestUDPSocketReceives(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("udp:127.0.0.1:0")})
	if _, err := dial(t, "udp", addressOf(t, fd)).Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if !readable(t, fd, 5*time.Second) {
		t.Error("nothing arrived")
	}
}

func TestAddressInUseNamesWhoHasIt(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, perSlot := range []bool{false, true} {
		err := refuses(t, newTable(t), want(t, Spec{Address: addr(l.Addr().String()), PerSlot: perSlot, Handover: Steer}),
			"cannot listen on tcp "+l.Addr().String()+": address already in use", "supervisord itself has it")
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Error("the kernel's error is not wrapped")
		}
	}
}

func TestPerSlotIsNotSharedWithAnotherProcess(t *testing.T) {
	_, w, _ := opened(t, Spec{Address: addr(freePort(t)), PerSlot: true, Handover: Steer})
	refuses(t, newTable(t), w, "address already in use")
}

func TestReusePortIsShared(t *testing.T) {
	_, w, _ := opened(t, Spec{Address: addr(freePort(t)), ReusePort: true})
	apply(t, newTable(t), w)
}

func TestAddressOfAnotherMachineHasARemedy(t *testing.T) {
	refuses(t, newTable(t), want(t, Spec{Address: addr("192.0.2.77:80")}),
		"cannot listen on tcp 192.0.2.77:80: cannot assign requested address", "ip address")
}

func TestUnknownInterfaceHasARemedy(t *testing.T) {
	refuses(t, newTable(t), want(t, Spec{Address: addr("127.0.0.1:0"), Interface: "nosuch0"}), "nosuch0", "ip link")
	refuses(t, newTable(t), want(t, Spec{Address: addr("[fe80::1%nosuch0]:0")}), "nosuch0", "ip link")
}

func TestLowPortHasARemedy(t *testing.T) {
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil ||
		strings.TrimSpace(string(text)) != "1024" {
		t.Skip("an ordinary user may bind low ports here")
	}
	asOrdinaryUser(t, func() {
		refuses(t, NewTable(), want(t, Spec{Address: addr("127.0.0.1:1")}), "permission denied", "CAP_NET_BIND_SERVICE")
	})
}
