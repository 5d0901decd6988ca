package graceful_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// supervisor is the other end of NOTIFY_SOCKET.
func supervisor(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	return c
}

func next(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 4096)
	n, err := c.Read(b)
	must(t, err)
	return string(b[:n])
}

// alone starts the worker called name with only these variables.
func alone(t *testing.T, name string, env ...string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "GRACEFUL_TEST_WORKER="+name, "GORACE=atexit_sleep_ms=0",
		"TEST_ADDRESS=127.0.0.1:0"), env...)
	p.cmd.Stderr = &p.stderr
	must(t, p.cmd.Start())
	t.Cleanup(p.kill)
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p
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
	s := supervisor(t, t.TempDir()+"/n")
	p := alone(t, "watched", "NOTIFY_SOCKET="+s.LocalAddr().String(), "WATCHDOG_USEC=100000", "TEST_ALIVE=2s")
	next(t, s) // it is up
	pings, last := 0, time.Now()
	began := last
	for {
		must(t, s.SetReadDeadline(time.Now().Add(time.Second)))
		b := make([]byte, 100)
		n, err := s.Read(b)
		if err != nil {
			break // no ping for ten times the interval
		}
		if string(b[:n]) == "WATCHDOG=1" {
			pings, last = pings+1, time.Now()
		}
	}
	if up := last.Sub(began); pings < 10 || pings > 60 || up > 5*time.Second {
		t.Errorf("%d pings in %v, want about 40 in 2s", pings, up)
	}
	p.signal(syscall.SIGTERM)
	p.wait(prompt, 0)
}

func TestWatchdogOfAnotherProcessIsNotPinged(t *testing.T) {
	t.Parallel()
	s := supervisor(t, t.TempDir()+"/n")
	alone(t, "watched", "NOTIFY_SOCKET="+s.LocalAddr().String(), "WATCHDOG_USEC=100000", "WATCHDOG_PID=1", "TEST_ALIVE=1h")
	if got := next(t, s); got != "READY=1\nX_SUPERVISORD_DRAINS=1" {
		t.Errorf("message %q", got)
	}
	must(t, s.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
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
