package socket

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// inet6 makes a socket of IPv6, which RestrictAddressFamilies= of systemd may deny.
var inet6 = unit.SystemCall{Number: unix.SYS_SOCKET, Value: unix.AF_INET6}

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

// value is an option of a socket, as the kernel has it.
type value struct{ level, option, is int }

// TestOptionsReachTheKernel when a socket is opened, and those that may, while it is open, and are taken back.
func TestOptionsReachTheKernel(t *testing.T) {
	needIPv6(t)
	has := func(fd int, c Spec, all []value) {
		t.Helper()
		for _, v := range all {
			if n := option(t, fd, v.level, v.option); n != v.is {
				t.Errorf("%+v: option %d of level %d is %d, want %d", c, v.option, v.level, n, v.is)
			}
		}
		if want := cmp.Or(c.Backlog, fullBacklog()); backlog(t, fd) != want {
			t.Errorf("%+v: the backlog is %d, want %d", c, backlog(t, fd), want)
		}
	}
	bare := []value{{unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP}, // never MPTCP
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}, {unix.SOL_SOCKET, unix.SO_REUSEPORT, 0},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0}, {unix.IPPROTO_TCP, unix.TCP_FASTOPEN, 0},
		{unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 0}}
	for _, c := range []struct {
		of  Sockopts
		has []value
	}{
		{Sockopts{ReusePort: true}, []value{{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1}}},
		{Sockopts{FastOpen: 17}, []value{{unix.IPPROTO_TCP, unix.TCP_FASTOPEN, 17}}},
		{Sockopts{DeferAccept: 1500 * time.Millisecond}, []value{{unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 3}}},
		{Sockopts{KeepAlive: 31 * time.Second}, []value{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 31}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 31}}},
	} {
		spec := Spec{Name: "web", Address: addr("127.0.0.1:0"), Sockopts: c.of, Backlog: 7}
		_, _, fd := opened(t, spec)
		has(fd, spec, c.has)
		table, w, fd := opened(t, Spec{Name: "web", Address: spec.Address})
		has(fd, w.Spec, bare)
		w.Spec = spec
		apply(t, table, w)
		has(fd, spec, c.has)
		if shares := canBind(t, table.Address(w.Key()), true); shares != c.of.ReusePort {
			t.Errorf("%+v: another process can bind it: %v", c.of, shares)
		}
		w.Sockopts, w.Backlog = Sockopts{}, 0
		apply(t, table, w)
		has(table.FD(w.Key(), 0), w.Spec, bare)
		if arriveAt(t, table.Address(w.Key()), fd, 5); canBind(t, table.Address(w.Key()), false) {
			t.Error("another process can still bind it")
		}
	}
	for _, c := range []struct {
		address string
		of      Sockopts
		only    int
	}{{":0", Sockopts{}, 0}, {":0", Sockopts{IPv6Only: "true"}, 1}, {"[::]:0", Sockopts{}, 1},
		{"[::]:0", Sockopts{IPv6Only: "false"}, 0}, {"[::1]:0", Sockopts{}, 1}} {
		_, w, fd := opened(t, Spec{Address: addr(c.address), Sockopts: c.of})
		has(fd, w.Spec, []value{{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, c.only}})
	}
	_, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{Interface: "lo"}})
	name := must.Get(unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE))(t)
	if strings.TrimRight(name, "\x00") != "lo" {
		t.Errorf("the interface is %q", name)
	}
}

// TestRefusalHasARemedy: of a port that this process has itself, and of what is not there.
func TestRefusalHasARemedy(t *testing.T) {
	_, own, _ := opened(t, Spec{Address: addr(freePort(t)), PerSlot: true, Handover: Steer})
	_, abstract, _ := opened(t, Spec{Address: addr("unix:@supervisord-test-" + filepath.Base(t.TempDir()))})
	inUse := []string{"cannot listen on " + own.Key() + ": address already in use", "supervisord itself has it"}
	for _, c := range []struct {
		Spec
		says []string
	}{
		{own.Spec, inUse}, {Spec{Address: own.Address}, inUse},
		{abstract.Spec, []string{"address already in use", "ss -xlp"}},
		{Spec{Address: addr("192.0.2.77:80")},
			[]string{"cannot listen on tcp 192.0.2.77:80: cannot assign requested address", "ip address"}},
		{Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{Interface: "nosuch0"}}, []string{"nosuch0", "ip link"}},
		{Spec{Address: addr("[fe80::1%nosuch0]:0")}, []string{"nosuch0", "ip link"}},
	} {
		err := refuses(t, newTable(t), want(t, c.Spec), c.says...)
		if strings.Contains(c.says[0], "in use") != errors.Is(err, unix.EADDRINUSE) {
			t.Error("the kernel's error is not wrapped")
		}
	}
	_, shared, _ := opened(t, Spec{Address: addr(freePort(t)), Sockopts: Sockopts{ReusePort: true}})
	apply(t, newTable(t), shared)
	if text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); string(text) == "1024\n" {
		unit.AsOrdinaryUser(t, func() {
			refuses(t, NewTable(), want(t, Spec{Address: addr("127.0.0.1:1")}), "permission denied", "CAP_NET_BIND_SERVICE")
		})
	}
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
	for level, options := range map[int]map[int]int{
		unix.SOL_SOCKET: {unix.SO_KEEPALIVE: 1, unix.SO_OOBINLINE: 1, unix.SO_TIMESTAMP: 1, unix.SO_PRIORITY: 1,
			unix.SO_MARK: 1, unix.SO_BUSY_POLL: 1, unix.SO_ZEROCOPY: 1, unix.SO_RCVBUF: 5000, unix.SO_SNDBUF: 6000,
			unix.SO_REUSEPORT: 0},
		unix.SOL_TCP: {unix.TCP_DEFER_ACCEPT: 30, unix.TCP_MAXSEG: 500, unix.TCP_NODELAY: 1, unix.TCP_USER_TIMEOUT: 1000,
			unix.TCP_KEEPIDLE: 9, unix.TCP_KEEPINTVL: 9, unix.TCP_KEEPCNT: 2, unix.TCP_FASTOPEN: 5, unix.TCP_LINGER2: 3,
			unix.TCP_SYNCNT: 2, unix.TCP_NOTSENT_LOWAT: 1000, unix.TCP_WINDOW_CLAMP: 3000, unix.TCP_SAVE_SYN: 1},
		unix.SOL_IP:   {unix.IP_TOS: 16, unix.IP_TTL: 9, unix.IP_MTU_DISCOVER: 3, unix.IP_RECVERR: 1},
		unix.SOL_IPV6: {unix.IPV6_TCLASS: 16, unix.IPV6_UNICAST_HOPS: 9},
	} {
		for o, value := range options { // where the socket has it
			_ = unix.SetsockoptInt(fd, level, o, value)
		}
	}
	_ = unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo")
	_ = setProgram(fd, unix.SO_ATTACH_FILTER, []unix.SockFilter{result(0)})
	if at.isTCP() {
		_ = unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_CONGESTION, "reno")
		_ = unix.Listen(fd, 1)
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
