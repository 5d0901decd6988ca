package bind

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
)

// What a program did not set is the listener's, whose configuration may have set it.
func TestBindLeavesOptionsThatTheProgramDidNotSet(t *testing.T) {
	socket, address := listening(t)
	set := map[option]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE}: 1, {unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT}: 3, {unix.IPPROTO_TCP,
			unix.TCP_FASTOPEN}: 16,
	}
	for o, value := range set {
		must.Do(t, unix.SetsockoptInt(socket, o.level, o.name, value))
	}
	filtered(t, offer(address, socket), func() { bindOnce(t, unix.SOCK_STREAM, address) })
	for o, value := range set {
		if got, err := unix.GetsockoptInt(socket, o.level, o.name); got != value || err != nil {
			t.Errorf("%+v is %d, %v, want %d", o, got, err, value)
		}
	}
}

func bindOnce(t *testing.T, kind int, address Claim) {
	fd := open(t, unix.AF_INET, kind)
	defer unix.Close(fd)
	if err := unix.Bind(fd, at4(address, address.At.Addr())); err != nil {
		t.Error(err)
	}
}

// Many servers bind first, and say only then that accept is not to wait.
func TestWorkerThatStartsDoesNotMakeTheAcceptOfAnotherWait(t *testing.T) {
	for name, c := range map[string]struct {
		alone         bool
		first, second int
		blocks        bool
	}{
		"two that wait":                        {false, 0, 0, true},
		"one that waits beside one that polls": {false, unix.SOCK_NONBLOCK, 0, false},
		"one that waits after a trial":         {true, unix.SOCK_NONBLOCK, 0, true},
		"one that polls":                       {true, 0, unix.SOCK_NONBLOCK, false},
	} {
		socket, address := listening(t)
		listeners := offer(address, socket)
		listeners[0].Alone = func() bool { return c.alone }
		filtered(t, listeners, func() {
			bindOnce(t, unix.SOCK_STREAM|c.first, address)
			bindOnce(t, unix.SOCK_STREAM|c.second, address)
		})
		flags, err := unix.FcntlInt(uintptr(socket), unix.F_GETFL, 0)
		if blocks := flags&unix.O_NONBLOCK == 0; err != nil || blocks != c.blocks {
			t.Errorf("%s: accept waits: %t, %v", name, blocks, err)
		}
	}
}

func TestSocketOfAnotherProtocolIsTheKernels(t *testing.T) {
	socket, address := listening(t)
	for name, kind := range map[string][2]int{"UDP-Lite": {unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		"SCTP": {unix.SOCK_STREAM, unix.IPPROTO_SCTP}} {
		for _, address.Network = range []string{"tcp", "udp"} {
			fd, err := unix.Socket(unix.AF_INET, kind[0]|unix.SOCK_CLOEXEC, kind[1])
			if err != nil {
				t.Log(name, "is not there:", err)
				continue
			}
			before, _ := ownInode(fd)
			filtered(t, offer(address, socket), func() {
				unix.Bind(fd, at4(address, address.At.Addr())) //nolint:errcheck // it may be in use
			})
			if after, _ := ownInode(fd); after != before {
				t.Errorf("a socket of %s got that of a listener of %s", name, address.Network)
			}
			unix.Close(fd)
		}
	}
}

func TestWrongCallIsTheProgramsOwnMistake(t *testing.T) {
	socket, address := listening(t)
	told := asks(t, offer(address, socket), func(fd int) {
		for _, pointer := range []uintptr{1, ^uintptr(0) >> 1} {
			if _, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), pointer, 16); !errors.Is(errno, unix.EFAULT) {
				t.Errorf("%#x: %v", pointer, errno)
			}
		}
		if err := unix.Bind(-1, &unix.SockaddrInet4{}); !errors.Is(err, unix.EBADF) {
			t.Errorf("no socket: %v", err)
		}
	})
	if len(told) > 0 {
		t.Error(told)
	}
}

// The thread that registers has a table of descriptors of its own, where the number may be anything, also one of the Go
// runtime's.
func TestListenerIsInEpollSetsUnderAnyNumber(t *testing.T) {
	socket, _ := listening(t)
	links := must.Get(proc.Descriptors(unix.Getpid()))(t)
	for number := range links {
		set := must.Get(unix.EpollCreate1(unix.EPOLL_CLOEXEC))(t)
		if err := move(socket, number, []registration{{set: set, events: unix.EPOLLIN, data: 7 << 32}}); err != nil {
			t.Errorf("%d, which is %s: %v", number, links[number], err)
		}
		runtime.GC()
		unix.Close(set)
	}
	after, err := proc.Descriptors(unix.Getpid())
	if err != nil || len(after) > len(links) { // the collector may close what earlier tests have left
		t.Errorf("there are %d descriptors, %v; there were %d", len(after), err, len(links))
	}
	for number, what := range links {
		if strings.HasPrefix(what, "anon_inode:[event") && after[number] != what {
			t.Errorf("%d, which was %s, is %q", number, what, after[number])
		}
	}
}

// A server that opens a UDP socket for each family gets the listener for the one, and keeps the other; it may open that
// again and again.
func TestUDPSocketForIPv6AloneIsBesideAListenerForIPv4(t *testing.T) {
	socket, address := bound(t, "udp", unix.SOCK_DGRAM)
	for _, only := range []int{1, 0} {
		var refusal error
		told := asks(t, offer(address, socket), func(fd int) {
			refusal = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only),
				unix.Bind(fd, &unix.SockaddrInet6{Port: int(address.At.Port())}))
			if mine, _ := ownInode(fd); refusal == nil && mine == 0 {
				t.Error("it has no socket")
			}
		}, unix.AF_INET6, unix.SOCK_DGRAM)
		if refused := only == 0; (refusal != nil) != refused || (len(told) > 0) != refused {
			t.Errorf("IPV6_V6ONLY %d: %v, %v", only, refusal, told)
		}
	}
}

// A program that is to be reached at one interface alone must not be reached at all.
func TestSocketOfAnInterfaceGetsNoListenerOfAll(t *testing.T) {
	socket, address := listening(t)
	bindAt := func(want error) []error {
		return asks(t, offer(address, socket), func(fd int) {
			err := errors.Join(unix.BindToDevice(fd, "lo"), unix.Bind(fd, at4(address)))
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	told := bindAt(unix.EADDRINUSE)
	if len(told) != 1 || !strings.Contains(told[0].Error(), `write interface = "lo" in the listener`) {
		t.Error(told)
	}
	must.Do(t, unix.BindToDevice(socket, "lo"))
	if told := bindAt(nil); len(told) > 0 {
		t.Error(told)
	}
}

// A server asks where it listens, listens again with another queue, and binds anew after a close.
func TestServerMayListenTwiceAndBindAnew(t *testing.T) {
	socket, address := listening(t)
	told := filtered(t, offer(address, socket), func() {
		for range 2 {
			for _, protocol := range []int{unix.IPPROTO_TCP, unix.IPPROTO_MPTCP} {
				fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
				if err != nil {
					t.Log(protocol, "is not there:", err)
					continue
				}
				err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
					unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0), unix.Bind(fd,
						&unix.SockaddrInet6{Port: int(address.At.Port())}),
					unix.Listen(fd, 1), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1), unix.Listen(fd, 4096))
				name, also := unix.Getsockname(fd)
				if err := errors.Join(err, also, unix.Close(fd)); err != nil {
					t.Error(protocol, err)
				} else if at, is := name.(*unix.SockaddrInet4); !is || at.Port != int(address.At.Port()) {
					t.Errorf("it is bound to %+v", name)
				}
			}
		}
	})
	if !isListening(socket) || len(told) > 0 {
		t.Errorf("the listener listens: %t; %v", isListening(socket), told)
	}
}

// A server that opens a TCP socket for each family gets the listener in place of its IPv4 socket only. A second
// descriptor of the listener would become readable with every connection, also after the first has accepted it.
func TestTCPSocketForIPv6AloneIsBesideAListenerForIPv4(t *testing.T) {
	socket, address := listening(t)
	mine := must.Get(ownInode(socket))(t)
	for name, c := range map[string]struct {
		only   int
		at     [16]byte
		shared bool
	}{
		"for IPv6 alone":    {only: 1},
		"for both families": {only: 0, shared: true},
		"at one address":    {only: 1, at: netip.IPv6Loopback().As16(), shared: true},
	} {
		listener := offer(address, socket)
		if c.at != [16]byte{} {
			listener[0].Binds.At = netip.AddrPortFrom(netip.IPv4Unspecified(), address.At.Port())
		}
		told := asks(t, listener, func(fd int) {
			err := errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, c.only), unix.SetNonblock(fd, true),
				unix.Bind(fd, &unix.SockaddrInet6{Addr: c.at, Port: int(address.At.Port())}), unix.Listen(fd, 1))
			inode, also := ownInode(fd)
			flags, wrong := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			err = errors.Join(err, also, wrong)
			if err != nil || (inode == mine) != c.shared || !isListening(fd) || flags&unix.O_NONBLOCK == 0 {
				t.Errorf("%s: socket %d, the listener's is %d; flags %#o, %v", name, inode, mine, flags, err)
			}
		}, unix.AF_INET6, unix.SOCK_STREAM)
		if len(told) > 0 {
			t.Error(name, told)
		}
	}
}
