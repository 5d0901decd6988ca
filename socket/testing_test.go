package socket

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// resolved returns a Spec as the supervisor would resolve it; the name defaults to the address.
func resolved(t testing.TB, s Spec) Resolved {
	t.Helper()
	if s.Name == "" {
		s.Name = s.Address.String()
	}
	return must.Get(s.Resolve(context.Background()))(t)
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
	entries := must.Get(os.ReadDir("/proc/self/fd"))(t)
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
	must.Do(t, table.Update(wants))
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
	return must.Get(unix.GetsockoptInt(fd, level, name))(t)
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func inodeOf(t testing.TB, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, unix.Fstat(fd, &st))
	return st.Ino
}

// accepted accepts one connection from a blocking listener and closes it when the test ends.
func accepted(t testing.TB, fd int) int {
	t.Helper()
	if !readable(t, fd, patience) {
		t.Fatal("no connection arrived")
	}
	conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	must.Do(t, err)
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
	conn := must.Get(net.Dial(network, address))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// freePort returns a port that is free on 127.0.0.1 at this moment.
func freePort(t testing.TB) string {
	t.Helper()
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
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
	return must.Get(table.Hold(listeners, 0, nil))(t)
}

// recorded is a lane as the next supervisor reads it.
func recorded(t testing.TB, lanes ...*Lane) (copies []*Lane) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(lanes))(t), &copies))
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
