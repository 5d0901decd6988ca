package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/socket/inherit"
)

var everyKind = []Spec{
	{Address: addr("127.0.0.1:0")}, {Address: addr("[::1]:0")}, {Address: addr(":0")}, {Address: addr("udp:127.0.0.1:0")},
	{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{ReusePort: true}}, {Address: addr("127.0.0.1:0"), PerSlot: true,
		Handover: Steer},
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

// inet6 makes a socket of IPv6, which RestrictAddressFamilies= of systemd may deny.
var inet6 = unit.Call{Number: unix.SYS_SOCKET, Value: unix.AF_INET6}

func TestWithoutIPv6ThePortAloneIsIPv4(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Address: addr(":0"), PerSlot: true, Handover: Steer})
	w.Slots = 2
	unit.Refusing(t, inet6, unix.EAFNOSUPPORT, func() {
		apply(t, table, w)
		for slot := range w.Slots {
			if a := addressOf(t, table.FD(w.Key(), slot)); a != table.Address(w.Key()) || !strings.HasPrefix(a, "0.0.0.0:") {
				t.Errorf("slot %d is at %s", slot, a)
			}
		}
		refuses(t, table, want(t, Spec{Address: addr("[::1]:0")}), "address family not supported", "use an IPv4 address")
		refuses(t, table, want(t, Spec{Address: addr(":0"), Name: "six", Sockopts: Sockopts{IPv6Only: "true"}}),
			"use an IPv4 address")
	})
}

func backlog(t testing.TB, fd int) int {
	t.Helper()
	info := must.Get(unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO))(t)
	return int(info.Sacked) // of a listening socket: sk_max_ack_backlog
}

func TestOptionsReachTheKernel(t *testing.T) {
	needIPv6(t)
	for _, c := range []struct {
		address             string
		of                  Sockopts
		level, option, want int
	}{
		{"127.0.0.1:0", Sockopts{}, unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP}, // never MPTCP
		{"127.0.0.1:0", Sockopts{}, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{"127.0.0.1:0", Sockopts{}, unix.SOL_SOCKET, unix.SO_REUSEPORT, 0},
		{"127.0.0.1:0", Sockopts{ReusePort: true}, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
		{"127.0.0.1:0", Sockopts{FastOpen: 17}, unix.IPPROTO_TCP, unix.TCP_FASTOPEN, 17},
		{"127.0.0.1:0", Sockopts{DeferAccept: 1500 * time.Millisecond}, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 3},
		{":0", Sockopts{}, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0},
		{":0", Sockopts{IPv6Only: "true"}, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
		{"[::]:0", Sockopts{}, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
		{"[::]:0", Sockopts{IPv6Only: "false"}, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0},
		{"[::1]:0", Sockopts{}, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
	} {
		_, _, fd := opened(t, Spec{Address: addr(c.address), Sockopts: c.of})
		if n := option(t, fd, c.level, c.option); n != c.want {
			t.Errorf("%s with %+v: option %d of level %d is %d, want %d", c.address, c.of, c.option, c.level, n, c.want)
		}
	}
	for asked, want := range map[int]int{0: fullBacklog(), 7: 7} {
		if _, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), Backlog: asked}); backlog(t, fd) != want {
			t.Errorf("backlog %d instead of %d", backlog(t, fd), want)
		}
	}
}

func TestConnectionsInheritKeepAlive(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{KeepAlive: 31 * time.Second}})
	dial(t, "tcp", addressOf(t, fd))
	conn := accepted(t, fd)
	if option(t, conn, unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 1 ||
		option(t, conn, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE) != 31 ||
		option(t, conn, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL) != 31 {
		t.Error("the connection lacks the option")
	}
}

func TestSocketIsBoundToItsInterface(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{Interface: "lo"}})
	if name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil ||
		strings.TrimRight(name, "\x00") != "lo" {
		t.Errorf("interface %q, %v", name, err)
	}
}

func TestAddressInUseNamesWhoHasIt(t *testing.T) {
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
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
	_, w, _ := opened(t, Spec{Address: addr(freePort(t)), Sockopts: Sockopts{ReusePort: true}})
	apply(t, newTable(t), w)
}

func TestRefusalHasARemedy(t *testing.T) {
	for _, c := range []struct{ address, device, says, remedy string }{
		{"192.0.2.77:80", "", "cannot listen on tcp 192.0.2.77:80: cannot assign requested address", "ip address"},
		{"127.0.0.1:0", "nosuch0", "nosuch0", "ip link"},
		{"[fe80::1%nosuch0]:0", "", "nosuch0", "ip link"},
	} {
		refuses(t, newTable(t), want(t, Spec{Address: addr(c.address), Sockopts: Sockopts{Interface: c.device}}), c.says,
			c.remedy)
	}
}

func TestLowPortHasARemedy(t *testing.T) {
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil ||
		strings.TrimSpace(string(text)) != "1024" {
		t.Skip("an ordinary user may bind low ports here")
	}
	unit.AsOrdinaryUser(t, func() {
		refuses(t, NewTable(), want(t, Spec{Address: addr("127.0.0.1:1")}), "permission denied", "CAP_NET_BIND_SERVICE")
	})
}

// settings are what can be read of a socket: options and flags.
func settings(t *testing.T, fd int, at bindAddr) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, l := range levels(at) {
		for _, o := range l.options() {
			var buf [64]byte
			name := fmt.Sprintf("option %d of level %d", o, l.level)
			value, known := rawOption(fd, l.level, o, &buf)
			if own := l.level == unix.SOL_SOCKET && (o == unix.SO_COOKIE || o == unix.SO_MEMINFO); known && !own {
				all[name] = bytes.Clone(value)
			}
		}
	}
	for name, what := range map[string]int{"flags": unix.F_GETFL, "owner": unix.F_GETOWN, "signal": unix.F_GETSIG} {
		n := must.Get(unix.FcntlInt(uintptr(fd), what, 0))(t)
		all[name] = fmt.Append(nil, n)
	}
	if info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO); at.isTCP() && err == nil {
		all["state and backlog"] = fmt.Append(nil, info.State, info.Sacked)
	}
	return all
}

// mangle sets what a worker can set.
func mangle(t *testing.T, fd int, at bindAddr) {
	t.Helper()
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 7})
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 8})
	for _, o := range []int{unix.SO_KEEPALIVE, unix.SO_OOBINLINE, unix.SO_TIMESTAMP, unix.SO_PRIORITY, unix.SO_MARK,
		unix.SO_BUSY_POLL, unix.SO_ZEROCOPY} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 5000)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 6000)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 0)
	_ = unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo")
	_ = setProgram(fd, unix.SO_ATTACH_FILTER, []unix.SockFilter{result(0)})
	if at.isTCP() {
		for o, value := range map[int]int{
			unix.TCP_DEFER_ACCEPT: 30, unix.TCP_MAXSEG: 500, unix.TCP_NODELAY: 1, unix.TCP_USER_TIMEOUT: 1000,
			unix.TCP_KEEPIDLE: 9, unix.TCP_KEEPINTVL: 9, unix.TCP_KEEPCNT: 2,
			unix.TCP_FASTOPEN: 5, unix.TCP_LINGER2: 3, unix.TCP_SYNCNT: 2, unix.TCP_NOTSENT_LOWAT: 1000,
			unix.TCP_WINDOW_CLAMP: 3000, unix.TCP_SAVE_SYN: 1,
		} {
			_ = unix.SetsockoptInt(fd, unix.SOL_TCP, o, value)
		}
		_ = unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_CONGESTION, "reno")
		_ = unix.Listen(fd, 1)
	}
	for o, value := range map[int]int{unix.IP_TOS: 16, unix.IP_TTL: 9, unix.IP_MTU_DISCOVER: 3, unix.IP_RECVERR: 1} {
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, o, value)
	}
	if at.ip.Is6() {
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TCLASS, 16)
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, 9)
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, unix.Getpid())
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK|unix.O_ASYNC)
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGURG))
}

func native(n int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }

func differences(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	for name, value := range a {
		if !bytes.Equal(value, b[name]) {
			t.Errorf("%s: %v, not %v", name, b[name], value)
		}
	}
}

// TestSocketIsAsNewWhenAGenerationGetsIt has workers that set all that they can, and configurations that set some
// of the same.
func TestSocketIsAsNewWhenAGenerationGetsIt(t *testing.T) {
	path, _ := onDisk(t)
	for _, s := range []Spec{
		{Address: addr("127.0.0.1:0"), Handover: Steer},
		{Address: addr("[::]:0"), Handover: Steer, Sockopts: Sockopts{NonBlock: true}, Backlog: 77},
		{Address: addr("127.0.0.1:0"), Handover: Steer, Sockopts: Sockopts{DeferAccept: 5e9, FastOpen: 9,
			KeepAlive: 60e9}},
		{Address: addr("127.0.0.1:0"), Handover: Steer, Sockopts: Sockopts{Interface: "lo"}},
		{Address: addr("127.0.0.1:0")},
		{Address: addr("udp:127.0.0.1:0")},
		path,
	} {
		t.Run(s.Address.String(), func(t *testing.T) {
			table, w, _ := opened(t, s)
			lanes := held(t, table, w)
			fd := lanes[0].FD(0)
			before := settings(t, fd, w.at)
			table.Release(lanes)
			lanes = held(t, table, w)
			differences(t, before, settings(t, fd, w.at))
			mangle(t, fd, w.at)
			table.Release(lanes)
			again := held(t, table, w)
			if again[0].FD(0) != fd {
				t.Fatal("it is another socket")
			}
			after := settings(t, fd, w.at)
			if clamp := "option 10 of level 6"; w.at.isTCP() && bytes.Equal(after[clamp], native(widest)) {
				after[clamp] = native(0)
			}
			differences(t, before, after)
		})
	}
}
