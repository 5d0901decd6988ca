package systemd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

func TestAssignments(t *testing.T) {
	s := newServer(t)
	n := s.open()
	for want, send := range map[string]func() error{
		"READY=1":                     n.Ready,
		"STOPPING=1":                  n.Stopping,
		"WATCHDOG=1":                  n.Watchdog,
		"STATUS=web 3 of 3":           func() error { return n.Status("web 3 of 3") },
		"EXTEND_TIMEOUT_USEC=1500000": func() error { return n.ExtendTimeout(1500 * time.Millisecond) },
		"EXTEND_TIMEOUT_USEC=1":       func() error { return n.ExtendTimeout(0) },
		"FDSTOREREMOVE=1\nFDNAME=web": func() error { return n.RemoveFD("web") },
	} {
		if err := send(); err != nil {
			t.Errorf("%q: %v", want, err)
		}
		s.expect(want)
	}
}

func TestAbstractAddress(t *testing.T) {
	s := listen(t, fmt.Sprintf("@supervisord-test-%d", os.Getpid()))
	must.Do(t, s.open().Ready())
	s.expect("READY=1")
}

func TestWithoutSystemdNothingHappens(t *testing.T) {
	n := must.Get(Open(func(string) string { return "" }, nil))(t)
	if n.Enabled() {
		t.Error("enabled without NOTIFY_SOCKET")
	}
	if err := errors.Join(n.Ready(), n.Status("x"), n.StoreFD("x", 0), n.RemoveFD("x"), n.Close()); err != nil {
		t.Error(err)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for address, reason := range map[string]string{
		"vsock:2:1234":                 "vsock",
		"vsock-stream:2:1234":          "vsock",
		"relative":                     "absolute path",
		"@":                            "absolute path",
		"/" + strings.Repeat("x", 107): "longer than the 107 bytes",
		"/nowhere/at/all":              "cannot connect",
	} {
		n, err := Open(func(string) string { return address }, nil)
		if n != nil {
			n.Close()
		}
		if err == nil {
			t.Errorf("%s is accepted", address)
		} else if !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %q does not say %q", address, err, reason)
		}
	}
}

func TestStatusIsOneShortLineOfText(t *testing.T) {
	for text, want := range map[string]string{
		"fine":             "fine",
		"two\nlines\tend":  "two lines end",
		"bad \xff\xfe utf": "bad \uFFFD utf",
		"":                 "",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	long := oneLine(strings.Repeat("ü", maxStatus))
	if len(long) > maxStatus || !utf8.ValidString(long) || !strings.HasSuffix(long, "ü…") {
		t.Errorf("a long one is cut to %d bytes that end in %q", len(long), long[len(long)-6:])
	}
}

func TestFullQueueDelaysNoCallerAndKeepsTheOrder(t *testing.T) {
	s, n, filled := full(t)
	for i := range 100 {
		start := time.Now()
		must.Do(t, n.send(fmt.Sprintf("X_NUMBER_%d", i), "1"))
		if took := time.Since(start); took > time.Second {
			t.Fatalf("a message took %v", took)
		}
	}
	s.drain(filled)
	for i := range 100 {
		s.expect(fmt.Sprintf("X_NUMBER_%d=1", i))
	}
	s.quiet()
}

func TestOfWaitingStatesTheLastIsSent(t *testing.T) {
	s, n, filled := full(t)
	for i := range 1000 {
		must.Do(t, errors.Join(n.Status(strconv.Itoa(i)), n.Watchdog()))
	}
	n.Ready()
	s.drain(filled)
	s.expect("STATUS=999")
	s.expect("WATCHDOG=1")
	s.expect("READY=1")
	s.quiet()
}

func TestRecreatedSocketIsFound(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.conn.Close()
	must.Do(t, os.Remove(s.path))
	again := listen(t, s.path)
	must.Do(t, n.Ready())
	again.expect("READY=1")
}

func TestOpenWithoutAServerStillGivesANotify(t *testing.T) {
	s := newServer(t)
	s.conn.Close()
	must.Do(t, os.Remove(s.path))
	n, err := Open(s.environment, nil)
	if !errors.Is(err, ErrUnreachable) || n == nil {
		t.Fatalf("Open returns %v, %v", n, err)
	}
	defer n.Close()
	if err := n.Ready(); err == nil {
		t.Error("a message without a receiver returns no error")
	}
	again := listen(t, s.path)
	must.Do(t, n.Ready())
	again.expect("READY=1")
}

func TestExitedServerIsAnError(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.conn.Close()
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "cannot notify systemd") {
		t.Errorf("the error is %v", err)
	}
}

func TestExitOfTheServerIsReportedForQueuedMessages(t *testing.T) {
	s := newServer(t)
	failed := make(chan error, 10)
	n := must.Get(Open(s.environment, func(err error) { failed <- err }))(t)
	defer n.Close()
	s.fill(n)
	s.conn.Close()
	if err := <-failed; !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		t.Errorf("the error is %v", err)
	}
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	_, n, _ := full(t)
	before := descriptors(t)
	if err := n.StoreFD("x", int(os.Stdin.Fd())); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{"a state": n.Ready(), "a descriptor": n.StoreFD("x", int(os.Stdin.Fd()))} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s after it: %v", what, err)
		}
	}
	if after := descriptors(t); after != before-1 {
		t.Errorf("%d descriptors are open, want %d", after, before-1)
	}
}
