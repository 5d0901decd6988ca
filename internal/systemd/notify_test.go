package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
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
		"MAINPID=42":                  func() error { return n.MainPID(42) },
		"READY=1\nSTATUS=a=b":         func() error { return n.Send("READY=1", "STATUS=a=b") },
		"FDSTOREREMOVE=1\nFDNAME=web": func() error { return n.RemoveFD("web") },
	} {
		if err := send(); err != nil {
			t.Errorf("%q: %v", want, err)
		}
		s.expect(want)
	}
}

func TestReloadingCarriesTheMonotonicClock(t *testing.T) {
	s := newServer(t)
	var before, after unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	if err := s.open().Reloading(); err != nil {
		t.Fatal(err)
	}
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	value, found := strings.CutPrefix(s.read().text, "RELOADING=1\nMONOTONIC_USEC=")
	usec, err := strconv.ParseInt(value, 10, 64)
	if !found || err != nil || usec < before.Nano()/1000 || usec > after.Nano()/1000 {
		t.Errorf("the clock is %q, want between %d and %d", value, before.Nano()/1000, after.Nano()/1000)
	}
}

func TestAbstractAddress(t *testing.T) {
	s := listen(t, fmt.Sprintf("@supervisord-test-%d", os.Getpid()))
	if err := s.open().Ready(); err != nil {
		t.Fatal(err)
	}
	s.expect("READY=1")
}

func TestWithoutSystemdNothingHappens(t *testing.T) {
	n, err := Open(func(string) string { return "" }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n.Enabled() {
		t.Error("somebody listens")
	}
	ctx := t.Context()
	if err := errors.Join(n.Ready(), n.Status("x"), n.StoreFD("x", 0), n.Flush(ctx), n.Barrier(ctx), n.Close()); err != nil {
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
		n, err := Open(func(string) string { return address }, nil, nil)
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

func TestMessagesThatAreRefused(t *testing.T) {
	s := newServer(t)
	n := s.open()
	for _, assignments := range [][]string{
		{}, {"READY"}, {"=1"}, {"A=1\nREADY=1"}, {"A=\x00"}, {"A=" + strings.Repeat("x", maxPayload)},
	} {
		if err := n.Send(assignments...); err == nil {
			t.Errorf("%.40q is accepted", assignments)
		}
	}
	s.quiet()
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
		t.Errorf("a long one becomes %d bytes that end in %q", len(long), long[len(long)-6:])
	}
}

func TestWhenTheQueueIsFullNobodyWaitsAndTheOrderIsKept(t *testing.T) {
	s := newServer(t)
	n := s.open()
	filled := s.fill(n)
	for i := range 100 {
		start := time.Now()
		if err := n.Send(fmt.Sprintf("X_NUMBER=%d", i)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("a message took %v", took)
		}
	}
	for range filled {
		s.expect("X_FILL=1")
	}
	for i := range 100 {
		s.expect(fmt.Sprintf("X_NUMBER=%d", i))
	}
	s.quiet()
}

func TestOfWaitingStatesTheLastIsSent(t *testing.T) {
	s := newServer(t)
	n := s.open()
	filled := s.fill(n)
	for i := range 1000 {
		if err := errors.Join(n.Status(strconv.Itoa(i)), n.Watchdog()); err != nil {
			t.Fatal(err)
		}
	}
	n.Ready()
	for range filled {
		s.expect("X_FILL=1")
	}
	s.expect("STATUS=999")
	s.expect("WATCHDOG=1")
	s.expect("READY=1")
	s.quiet()
}

func TestWhatWaitsIsBounded(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.fill(n)
	var err error
	for i := 0; err == nil; i++ {
		if i > maxWaiting {
			t.Fatalf("%d messages wait", i)
		}
		err = n.Send("X_MORE=1")
	}
	if !errors.Is(err, ErrQueueFull) {
		t.Errorf("the error is %v", err)
	}
}

func TestFlushWaitsForWhatWasPutAside(t *testing.T) {
	s := newServer(t)
	n := s.open()
	if err := n.Flush(t.Context()); err != nil {
		t.Errorf("with nothing put aside: %v", err)
	}
	filled := s.fill(n)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while nobody reads: %v", err)
	}
	flushed := make(chan error)
	go func() { flushed <- n.Flush(t.Context()) }()
	for range filled {
		s.expect("X_FILL=1")
	}
	if err := <-flushed; err != nil {
		t.Error(err)
	}
}

func TestASocketThatWasMadeAnewIsFound(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.conn.Close()
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	again := listen(t, s.path)
	if err := n.Ready(); err != nil {
		t.Fatal(err)
	}
	again.expect("READY=1")
}

func TestOpenWithoutAServerStillGivesANotify(t *testing.T) {
	s := newServer(t)
	s.conn.Close()
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	n, err := Open(s.environment, nil, nil)
	if !errors.Is(err, ErrUnreachable) || n == nil {
		t.Fatalf("Open returns %v, %v", n, err)
	}
	defer n.Close()
	if err := n.Ready(); err == nil {
		t.Error("a message to nobody has no error")
	}
	again := listen(t, s.path)
	if err := n.Ready(); err != nil {
		t.Fatal(err)
	}
	again.expect("READY=1")
}

func TestAServerThatIsGoneIsAnError(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.conn.Close()
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "cannot notify systemd") {
		t.Errorf("the error is %v", err)
	}
}

func TestAServerThatGoesIsReportedForWhatWaits(t *testing.T) {
	s := newServer(t)
	failed := make(chan error, 10)
	n, err := Open(s.environment, nil, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	s.fill(n)
	s.conn.Close()
	if err := <-failed; !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		t.Errorf("the error is %v", err)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	s := newServer(t)
	n := s.open()
	s.fill(n)
	before := descriptors(t)
	if err := n.StoreFD("kept", int(os.Stdin.Fd())); err != nil {
		t.Fatal(err)
	}
	barrier := make(chan error)
	go func() { barrier <- n.Barrier(t.Context()) }()
	flushed := make(chan error)
	go func() { flushed <- n.Flush(t.Context()) }()
	for waiting := 0; waiting < 3; {
		n.queue.mu.Lock()
		waiting = len(n.queue.waiting)
		n.queue.mu.Unlock()
	}
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Error(err)
	}
	if err := <-barrier; !errors.Is(err, ErrClosed) {
		t.Errorf("the barrier says %v", err)
	}
	if err := <-flushed; !errors.Is(err, ErrClosed) {
		t.Errorf("the flush says %v", err)
	}
	if err := n.Ready(); !errors.Is(err, ErrClosed) {
		t.Errorf("a message after it: %v", err)
	}
	if after := descriptors(t); after != before-1 {
		t.Errorf("%d descriptors are open, want %d", after, before-1)
	}
}
