package socket

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// settings are what can be read of a socket: options and flags.
func settings(t *testing.T, fd int, at bindAddr) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, l := range levels(at) {
		for _, o := range l.options() {
			var buf [64]byte
			name := fmt.Sprintf("option %d of level %d", o, l.level)
			if value, known := rawOption(fd, l.level, o, &buf); known && name != "option 57 of level 1" { // SO_COOKIE
				all[name] = bytes.Clone(value)
			}
		}
	}
	for name, what := range map[string]int{"flags": unix.F_GETFL, "owner": unix.F_GETOWN, "signal": unix.F_GETSIG} {
		n, err := unix.FcntlInt(uintptr(fd), what, 0)
		if err != nil {
			t.Fatal(err)
		}
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
		{Address: addr("[::]:0"), Handover: Steer, NonBlock: true, Backlog: 77},
		{Address: addr("127.0.0.1:0"), Handover: Steer, TCPOptions: TCPOptions{DeferAccept: 5e9, FastOpen: 9,
			KeepAlive: 60e9}},
		{Address: addr("127.0.0.1:0"), Handover: Steer, Interface: "lo"},
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
