package attack

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab"
)

// sendLingering sends this text over a unix socket, with the last descriptor of a TCP connection whose close takes an
// hour, or until the returned socket is closed. On a kernel that lets the receiver refuse descriptors nothing is sent
// (EPERM).
func sendLingering(t *testing.T, to *net.UnixConn, text string) io.Closer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	lab.Must(t, err)
	defer l.Close()
	tcp, err := net.Dial("tcp", l.Addr().String())
	lab.Must(t, err)
	deaf, err := l.Accept()
	lab.Must(t, err)
	tcp.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for junk := make([]byte, 1<<16); err == nil; {
		_, err = tcp.Write(junk)
	}
	raw, err := tcp.(*net.TCPConn).SyscallConn()
	lab.Must(t, err)
	last := -1
	lab.Must(t, raw.Control(func(fd uintptr) { last, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }))
	lab.Must(t, err)
	tcp.Close()
	unix.SetsockoptLinger(last, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600})
	foreign.Apart(func() { // the descriptor here may be the last copy
		_, _, err = to.WriteMsgUnix([]byte(text), unix.UnixRights(last), nil)
		unix.Close(last)
	})
	if err != nil && !errors.Is(err, unix.EPERM) {
		t.Errorf("cannot send a descriptor: %v", err)
	}
	return deaf
}

func controlSocket(t *testing.T, m *lab.Supervisord) *net.UnixConn {
	t.Helper()
	for {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: m.Path("run/control.sock")})
		if errors.Is(err, unix.EAGAIN) { // the queue is full
			time.Sleep(time.Millisecond)
			continue
		}
		lab.Must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func TestDescriptorsSentToTheControlSocketDoNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string][]syscall.Signal{"TERM": {syscall.SIGTERM}, "QUIT": {syscall.SIGQUIT},
		"all": {syscall.SIGTERM, syscall.SIGTERM, syscall.SIGQUIT}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.Hello)
			m.Serves(1)
			for range 4 {
				deaf := sendLingering(t, controlSocket(t, m), "GET /v1/status HTTP/1.1\r\n")
				defer deaf.Close()
			}
			m.CtlOK("status")
			for _, sig := range signals {
				m.Signal(sig)
			}
			m.Ends(0)
		})
	}
}

// idle opens connections, gets one answer on each, and keeps them open until the test ends.
func idle(t *testing.T, n int, network, address, path string) {
	t.Helper()
	for range n {
		c, err := net.Dial(network, address)
		lab.Must(t, err)
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s is answered %v, %v", path, answer, err)
		}
	}
}

// TestIdleClientsKeepNobodyOut has hundreds of clients that stay, ask nothing or do not read, at the control socket and
// at the page.
func TestIdleClientsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "http = \"127.0.0.1:0\"\n"+lab.Hello)
	m.Serves(1)
	var page struct{ Address string }
	lab.Must(t, json.Unmarshal([]byte(m.Await(lab.Says("metrics and the page are served")).Text), &page))
	idle(t, 300, "unix", m.Path("run/control.sock"), "/v1/status?usage=no")
	idle(t, 200, "tcp", page.Address, "/healthz")
	for range 300 {
		io.WriteString(controlSocket(t, m), "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	for range 100 {
		c, err := net.Dial("tcp", page.Address) // sends nothing
		lab.Must(t, err)
		defer c.Close()
	}
	m.CtlOK("status")
	for range 3 {
		m.CtlOK("reload", "--drained")
	}
	for _, path := range []string{"/readyz", "/metrics", "/state"} {
		lab.Ask(t, page.Address, path)
	}
	m.CtlOK("stop", "web")
}

// bomb forks without end once a file exists.
const bomb = `
[program.bomb]
command = ["perl", "-e", """
select undef, undef, undef, 0.02 until -e '{dir}/go';
for (;;) { my $p = fork; defined $p or select undef, undef, undef, 0.001; if (defined $p && !$p) { sleep 1000 } }"""]
ready = { method = "delay", delay = "10ms" }
stop = { timeout = "5s" } # less than a test waits
`

// TestForkBombThatUsesUpTheTasksDoesNotEndSupervisord: Go creates threads for more parallel work and for blocking
// system calls, and aborts the process if it cannot.
func TestForkBombThatUsesUpTheTasksDoesNotEndSupervisord(t *testing.T) {
	lab.Need(t, "perl")
	lab.NeedRoot(t, "start it as a user without other processes")
	for i, cpus := range []string{"", "8", "32"} {
		t.Run("GOMAXPROCS="+cpus, func(t *testing.T) {
			m := lab.PrepareOrdinary(t)
			m.As = &syscall.Credential{Uid: uint32(1_000_000 + 10*os.Getpid() + i), Gid: 65534}
			lab.Must(t, os.Chown(m.Dir, int(m.As.Uid), int(m.As.Gid)))
			m.Via = []string{lab.Need(t, "prlimit"), "--nproc=100:100"}
			if cpus != "" {
				m.Env = []string{"GOMAXPROCS=" + cpus}
			}
			// hello's runtime aborts without threads, or waits
			m.Start(lab.Hello + "[program.web.stop]\ntimeout = \"5s\"\n" + bomb)
			m.AwaitN(2, lab.Says(lab.GenerationServes))
			m.File("go", "")
			m.Until("no task is left", func() bool {
				out, _ := m.Ctl("reload", "web")
				return strings.Contains(out, "resource temporarily unavailable")
			})
			for range 5 {
				for range 40 {
					io.WriteString(controlSocket(t, m), "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
				}
				m.CtlFails(11, nil, "reload", "web") // EAGAIN, or the runtime of a worker for which there was one task
			}
			m.CtlOK("status")
		})
	}
}
