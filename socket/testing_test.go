package socket

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// resolved returns a Spec as the supervisor would resolve it; the name defaults to the address.
func resolved(t testing.TB, s Spec) Resolved {
	t.Helper()
	if s.Name == "" {
		s.Name = s.Address.String()
	}
	r, err := s.Resolve(context.Background())
	must(t, err)
	return r
}

func want(t testing.TB, s Spec) Want { return Want{Resolved: resolved(t, s)} }

// newTable returns a table. At the end of the test it closes the table and checks that no descriptor is left.
func newTable(t testing.TB) *Table {
	t.Helper()
	before := openFDs(t)
	table := NewTable()
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		for fd, what := range openFDs(t) {
			if _, known := before[fd]; !known && strings.HasPrefix(what, "socket:") {
				t.Errorf("descriptor %s (%s) is left", fd, what)
			}
		}
	})
	return table
}

func openFDs(t testing.TB) map[string]string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	open := make(map[string]string)
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			open[e.Name()] = link
		}
	}
	return open
}

// opened returns a table with one listener, and its descriptor.
func opened(t testing.TB, s Spec) (*Table, Want, int) {
	t.Helper()
	table := newTable(t)
	w := want(t, s)
	apply(t, table, w)
	return table, w, table.FD(w.Key(), 0)
}

func apply(t testing.TB, table *Table, wants ...Want) {
	t.Helper()
	must(t, table.Update(wants))
}

// refuses checks that Update fails with all these words in its error.
func refuses(t testing.TB, table *Table, w Want, words ...string) error {
	t.Helper()
	err := table.Update([]Want{w})
	if err == nil {
		t.Fatalf("%s was not refused", w.Key())
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	return err
}

func option(t testing.TB, fd, level, name int) int {
	t.Helper()
	n, err := unix.GetsockoptInt(fd, level, name)
	must(t, err)
	return n
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func inodeOf(t testing.TB, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	return st.Ino
}

// accepted accepts one connection from a blocking listener and closes it when the test ends.
func accepted(t testing.TB, fd int) int {
	t.Helper()
	if !readable(t, fd, patience) {
		t.Fatal("no connection arrived")
	}
	conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(conn) })
	return conn
}

func readable(t testing.TB, fd int, wait time.Duration) bool {
	t.Helper()
	return polledFor(t, []int{fd}, unix.POLLIN, wait)[0].Revents != 0
}

// patience is how long something may take that must happen.
const patience = 30 * time.Second

// polledFor says which of these events descriptors have, and waits for the first.
func polledFor(t testing.TB, fds []int, events int16, wait time.Duration) (polled []unix.PollFd) {
	t.Helper()
	for _, fd := range fds {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: events})
	}
	for {
		_, err := unix.Poll(polled, int(wait.Milliseconds()))
		switch {
		case err == nil:
			return polled
		case !errors.Is(err, unix.EINTR):
			t.Fatal(err)
		}
	}
}

func dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// freePort returns a port that is free on 127.0.0.1 at this moment.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// umask returns the umask of this process.
func umask() int {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return mask
}

func needIPv6(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	if err != nil || strings.TrimSpace(string(text)) != "0" {
		t.Skip("this machine has IPv6 switched off")
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// onThreadOfItsOwn runs f in a thread that ends with it, and never in the main one: /proc/self shows that one's
// network namespace.
func onThreadOfItsOwn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onThreadOfItsOwn(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// asOrdinaryUser runs f in a thread of an ordinary user, or directly if the tests do not run as root.
func asOrdinaryUser(t testing.TB, f func()) {
	t.Helper()
	var errno unix.Errno
	onThreadOfItsOwn(func() {
		const nobody = 65534
		if os.Geteuid() == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		}
		if errno == 0 {
			f()
		}
	})
	if errno != 0 {
		t.Fatal(errno)
	}
}

func addrPort(t testing.TB, s string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(s)
	must(t, err)
	return a
}

// withoutIPv6 runs f in a thread for which the kernel denies IPv6, as with RestrictAddressFamilies= of systemd.
func withoutIPv6(t testing.TB, f func()) {
	t.Helper()
	op := func(code int, k uint32) unix.SockFilter { return unix.SockFilter{Code: uint16(code), K: k} }
	skip := func(value uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: otherwise}
	}
	const number, family = 0, 16 // the number of the call, and its first argument, in struct seccomp_data
	filter := []unix.SockFilter{
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, number), skip(unix.SYS_SOCKET, 3),
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, family), skip(unix.AF_INET6, 1),
		op(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(unix.EAFNOSUPPORT)),
		op(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var err error
	onThreadOfItsOwn(func() {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if err == nil {
			f()
		}
	})
	if err != nil {
		t.Skip("no seccomp here: ", err)
	}
}

// addr parses a valid address.
func addr(s string) Address {
	a, err := ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

// held holds listeners for a generation.
func held(t testing.TB, table *Table, wants ...Want) []*Lane {
	t.Helper()
	var listeners []Resolved
	for _, w := range wants {
		listeners = append(listeners, w.Resolved)
	}
	lanes, err := table.Hold(listeners, 0)
	must(t, err)
	return lanes
}

// recorded is a lane as the next supervisor reads it.
func recorded(t testing.TB, lanes ...*Lane) (copies []*Lane) {
	t.Helper()
	text, err := json.Marshal(lanes)
	if err == nil {
		err = json.Unmarshal(text, &copies)
	}
	must(t, err)
	return copies
}

// unclaimed closes the sockets that nobody has taken, and returns how many these were.
func unclaimed(table *Table) int {
	left := table.Unclaimed()
	for _, l := range left {
		_ = unix.Close(l.FD)
	}
	return len(left)
}

// FD returns the descriptor that the next generation gets, or the one that serves, for a slot; -1: there is none.
func (t *Table) FD(key string, slot int) int {
	l := t.listeners[key]
	if l == nil {
		return -1
	}
	return (&Lane{Listener: l.r, slots: l.current()}).FD(slot)
}

// serve sends all new connections to a generation.
func serve(table *Table, lanes []*Lane) error {
	return table.Steer([]Part{{Lanes: lanes, Weight: 1}})
}
