package bind

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

// TestMain keeps the main thread for itself: what is to end with its goroutine would stay there.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	leftover.Main(m)
}

func at(network, address string) Claim {
	if network == "unix" {
		return Claim{Network: network, Path: address}
	}
	return Claim{Network: network, At: netip.MustParseAddrPort(address)}
}

func TestAddressFitsAListener(t *testing.T) {
	for _, c := range []struct {
		network, listener, program string
		fits                       bool
	}{
		{"tcp", "127.0.0.1:80", "127.0.0.1:80", true},
		{"tcp", "127.0.0.1:80", "0.0.0.0:80", true},
		{"tcp", "127.0.0.1:80", "[::]:80", true},
		{"tcp", "0.0.0.0:80", "127.0.0.1:80", true},
		{"tcp", "[::]:80", "[::1]:80", true},
		{"tcp", "127.0.0.1:80", "127.0.0.2:80", false},
		{"tcp", "127.0.0.1:80", "[::1]:80", false},
		{"tcp", "127.0.0.1:80", "127.0.0.1:81", false},
		{"udp", "127.0.0.1:53", "0.0.0.0:53", true},
		{"unix", "/run/a.sock", "/run/a.sock", true},
		{"unix", "/run/a.sock", "/run/b.sock", false},
		{"unix", "@a", "@a", true},
	} {
		if got := at(c.network, c.listener).matches(at(c.network, c.program)); got != c.fits {
			t.Errorf("%+v: %t", c, got)
		}
	}
	if at("tcp", "127.0.0.1:80").matches(at("udp", "127.0.0.1:80")) ||
		(Claim{Network: "tcp"}).matches(at("tcp", "0.0.0.0:0")) {
		t.Error("another network or port 0 fits")
	}
}

func TestExactAddressComesFirst(t *testing.T) {
	listeners := []Offer{{Name: "every", Binds: at("tcp", "0.0.0.0:80")},
		{Name: "one", Binds: at("tcp", "127.0.0.1:80")}, {Name: "other", Binds: at("tcp", "127.0.0.1:81")}}
	for address, want := range map[string]string{"127.0.0.1:80": "one", "127.0.0.2:80": "every", "127.0.0.1:81": "other",
		"127.0.0.1:82": ""} {
		name := ""
		if l := find(listeners, at("tcp", address)); l != nil {
			name = l.Name
		}
		if name != want {
			t.Errorf("%s fits %q, want %q", address, name, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{2, 0, 0, 80, 127, 0, 0, 1})
	f.Add(append([]byte{10, 0, 0, 80, 0, 0, 0, 0}, make([]byte, 20)...))
	f.Add([]byte("\x01\x00/run/x\x00y"))
	f.Add([]byte("\x01\x00\x00abstract"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		to, family, ok := parse(raw)
		if ok != (to != Claim{}) && to.At.Port() != 0 {
			t.Errorf("%x: %+v, %t", raw, to, ok)
		}
		if ok && family != int(binary.NativeEndian.Uint16(raw)) {
			t.Errorf("%x: family %d", raw, family)
		}
		to.resolve("/run")
	})
}

// filtered runs f on a thread whose bind(2) and listen(2) are answered, and returns what was told. The thread ends.
func filtered(t *testing.T, listeners []Offer, f func()) (told []error) {
	t.Helper()
	notifications, done := make(chan int, 1), make(chan struct{})
	go unit.Thread(func() {
		defer close(done)
		program := Filter()
		filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
		}
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
			uintptr(unsafe.Pointer(&filter)))
		if notifications <- int(fd); errno == 0 {
			f()
		}
	})
	fd := <-notifications
	if fd < 0 {
		t.Fatal("there is no filter")
	}
	defer unix.Close(fd)
	a := Answerer{FD: fd, Listeners: listeners, Looks: new(foreign.Looks), Key: t,
		Told: func(err error) { told = append(told, err) }}
	for {
		select {
		case <-done:
			return told
		default:
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10) //nolint:errcheck // it is looked at again
			a.Answer()
		}
	}
}

// asks is filtered of what is done with a new socket; others than TCP for IPv4 are of this domain and kind.
func asks(t *testing.T, listeners []Offer, f func(fd int), other ...int) (told []error) {
	t.Helper()
	other = append(other, unix.AF_INET, unix.SOCK_STREAM)
	return filtered(t, listeners, func() {
		fd := open(t, other[0], other[1])
		defer unix.Close(fd)
		f(fd)
	})
}

// at4 is a Claim as bind(2) has it; every address, if it is to be at none.
func at4(c Claim, ip ...netip.Addr) *unix.SockaddrInet4 {
	to := &unix.SockaddrInet4{Port: int(c.At.Port())}
	for _, a := range ip {
		to.Addr = a.As4()
	}
	return to
}

func listening(t *testing.T) (fd int, address Claim) {
	t.Helper()
	fd, address = bound(t, "tcp", unix.SOCK_STREAM)
	must.Do(t, unix.Listen(fd, 128))
	return fd, address
}

// bound returns a socket that has a port.
func bound(t *testing.T, network string, kind int) (fd int, address Claim) {
	t.Helper()
	fd = must.Get(unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	localhost := [4]byte{127, 0, 0, 1}
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: localhost}))
	name := must.Get(unix.Getsockname(fd))(t)
	port := uint16(name.(*unix.SockaddrInet4).Port)
	return fd, Claim{Network: network, At: netip.AddrPortFrom(netip.AddrFrom4(localhost), port)}
}

func offer(address Claim, socket int) []Offer {
	duplicate := func() int { fd, _ := unix.FcntlInt(uintptr(socket), unix.F_DUPFD_CLOEXEC, 0); return fd }
	return []Offer{{Name: "http", Binds: address, Socket: duplicate, Alone: func() bool { return true },
		Widen: func() error { return errors.New("it may not") }}}
}

// open makes a socket on any goroutine; -1: the test has failed.
func open(t *testing.T, domain, kind int) int {
	t.Helper()
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
	}
	return fd
}

func TestBindGetsTheListenersSocketWithFlagsAndOptions(t *testing.T) {
	socket, address := listening(t)
	told := asks(t, offer(address, socket), func(fd int) {
		err := errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.Bind(fd, at4(address)), unix.Listen(fd, 1))
		flags, wrong := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		own, also := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		nodelay, last := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		if err := errors.Join(err, wrong, also, last); err != nil || flags&unix.O_NONBLOCK == 0 || own&unix.FD_CLOEXEC == 0 ||
			nodelay == 0 {
			t.Errorf("%v, flags %#x, %#x, TCP_NODELAY %d", err, flags, own, nodelay)
		}
		mine, _ := ownInode(fd)
		if want, _ := ownInode(socket); mine != want {
			t.Errorf("it has the socket %d, want %d", mine, want)
		}
	}, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	if len(told) > 0 {
		t.Error(told)
	}
}

// A container below the worker has ports of its own.
func TestBindInAnotherNetworkNamespaceIsTheKernels(t *testing.T) {
	if exec.Command("unshare", "-n", "true").Run() != nil {
		t.Skip("network namespaces cannot be made here")
	}
	socket, address := listening(t)
	filtered(t, offer(address, socket), func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		fd := open(t, unix.AF_INET, unix.SOCK_STREAM)
		defer unix.Close(fd)
		before, _ := ownInode(fd)
		if err := unix.Bind(fd, at4(address)); err != nil {
			t.Error(err)
		}
		if after, _ := ownInode(fd); after != before {
			t.Error("it got the listener of another network namespace")
		}
	})
}
