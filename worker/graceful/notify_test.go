package graceful_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

// supervisor is the other end of NOTIFY_SOCKET.
func supervisor(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	c := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"}))(t)
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	return c
}

func next(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 4096)
	n := must.Get(c.Read(b))(t)
	return string(b[:n])
}

// alone starts the worker called name with only these variables.
func alone(t *testing.T, name string, env ...string) *proc {
	t.Helper()
	return run(t, name, nil, append([]string{"TEST_ADDRESS=127.0.0.1:0"}, env...))
}

func TestReadyAndStoppingOnNotifySocket(t *testing.T) {
	t.Parallel()
	for kind, address := range map[string]string{"path": t.TempDir() + "/n",
		"abstract": fmt.Sprintf("@graceful-notify-%d", os.Getpid())} {
		t.Run(kind, func(t *testing.T) {
			s := supervisor(t, address)
			p := alone(t, "http", "NOTIFY_SOCKET="+address)
			if got := next(t, s); got != "READY=1\nX_SUPERVISORD_DRAINS=1" {
				t.Fatalf("first message %q", got)
			}
			p.signal(syscall.SIGTERM)
			if got := next(t, s); got != "STOPPING=1" {
				t.Errorf("second message %q", got)
			}
			p.wait(prompt, 0)
		})
	}
}

func TestWorkerThatCannotSendReadyExitsWithReason(t *testing.T) {
	t.Parallel()
	p := alone(t, "http", "NOTIFY_SOCKET="+t.TempDir()+"/nobody")
	if text := p.wait(prompt, 1); !strings.Contains(text, "cannot notify the supervisor") {
		t.Error(text)
	}
	p = alone(t, "http", "NOTIFY_FD=77")
	if text := p.wait(prompt, 1); !strings.Contains(text, "NOTIFY_FD=77 is not open") {
		t.Error(text)
	}
}

func TestWatchdogIsPingedWhileAliveReturnsTrue(t *testing.T) {
	t.Parallel()
	s, alive := supervisor(t, t.TempDir()+"/n"), t.TempDir()+"/alive"
	must.Do(t, os.WriteFile(alive, nil, 0o600))
	p := alone(t, "watched", "NOTIFY_SOCKET="+s.LocalAddr().String(), "WATCHDOG_USEC=100000", "TEST_ALIVE="+alive)
	for came := map[string]int{}; came["WATCHDOG=1"] < 10 || came["READY=1\nX_SUPERVISORD_DRAINS=1"] == 0; {
		if came[next(t, s)]++; len(came) > 2 {
			t.Fatalf("the messages are %v", came)
		}
	}
	must.Do(t, os.Remove(alive))
	pings, silent := 0, false
	for b := make([]byte, 100); !silent && pings < 100; pings++ {
		must.Do(t, s.SetReadDeadline(time.Now().Add(time.Second))) // ten times the interval
		_, err := s.Read(b)
		silent = err != nil
	}
	if !silent {
		t.Errorf("%d more pings came when it was alive no more", pings)
	}
	p.signal(syscall.SIGTERM)
	p.wait(prompt, 0)
}

func TestWatchdogOfAnotherProcessIsNotPinged(t *testing.T) {
	t.Parallel()
	s := supervisor(t, t.TempDir()+"/n")
	alone(t, "watched", "NOTIFY_SOCKET="+s.LocalAddr().String(), "WATCHDOG_USEC=100000", "WATCHDOG_PID=1", "TEST_ALIVE=/")
	if got := next(t, s); got != "READY=1\nX_SUPERVISORD_DRAINS=1" {
		t.Errorf("message %q", got)
	}
	must.Do(t, s.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	if n, err := s.Read(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes came", n)
	}
}

func TestStatusIsOneLine(t *testing.T) {
	t.Parallel()
	s := supervisor(t, t.TempDir()+"/n")
	alone(t, "status", "NOTIFY_SOCKET="+s.LocalAddr().String())
	if got := next(t, s); got != "STATUS=warm READY=1" {
		t.Errorf("message %q", got)
	}
}
