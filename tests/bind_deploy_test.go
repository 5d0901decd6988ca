package tests

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// opens is a Go program that opens port 3000 as net.Listen(":3000") does: with an IPv6 socket for both families, and
// MPTCP.
func opens(listener, more string) string {
	return `
[program.web]
command = [{worker}, "opens=:3000", "ill={dir}/ill", "note={dir}/notes"]
bind = "on"
listen = [{ name = "http", address = "127.0.0.1:0", binds = ":3000"` + listener + ` }]
` + more
}

// What goes with inherited sockets goes with a program that opens its port.
func TestProgramThatOpensItsPortIsDeployedAsAnyOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listener, more string
		deploy         func(m *lab.Supervisord, load *lab.Traffic)
	}{
		"probe at the listener": {"", "ready = { method = \"http\", url = \"http://{listener:http}/healthz\" }",
			reloads},
		"one socket for each worker":  {", per_slot = true", "workers = 2", reloads},
		"several workers, one socket": {", per_slot = false", "workers = 2", reloads},
		"canary with a share": {"", "", func(m *lab.Supervisord, load *lab.Traffic) {
			m.CtlOK("reload", "--canary", "30%", "--hold")
			m.Until("both generations have answered", func() bool { return load.By(1) && load.By(2) })
			m.CtlOK("promote", "web", "--timeout", "20s")
			m.Gone(1)
		}},
		"drain: an answer that is under way": {"", "", func(m *lab.Supervisord, load *lab.Traffic) {
			answer := lab.Promise(m.T, m.Address(), "/slow?d=1s")
			m.Until("the request is in hand", func() bool { return lab.Exists(m.Path("notes")) })
			m.Reload()
			m.Until("the new generation has answered", func() bool { return load.By(2) })
			if got := answer(); !strings.Contains(got, "generation=1 ") {
				m.T.Errorf("%s answers what generation 1 had in hand", got)
			}
			m.Gone(1)
		}},
		"rollback": {"", "reload = { keep = \"1h\" }", func(m *lab.Supervisord, load *lab.Traffic) {
			m.Reload()
			m.Until("the new generation has answered", func() bool { return load.By(2) })
			m.CtlOK("rollback", "web")
			if got := lab.Ask(m.T, m.Address(), "/"); !strings.Contains(got, "generation=1 ") {
				m.T.Errorf("%s answers after the rollback", got)
			}
		}},
		"pause": {"", "", func(m *lab.Supervisord, load *lab.Traffic) {
			m.CtlOK("pause", "web", "--for", "1m")
			m.CtlOK("reload", "--timeout", "20s")
			m.CtlOK("resume", "web")
			m.Until("the new generation has answered", func() bool { return load.By(2) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, opens(c.listener, c.more))
			m.Serves(1)
			load := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
			c.deploy(m, load)
			load.Lossless(t)
			m.Never(lab.Says(lab.WorkerDied))
		})
	}
}

func reloads(m *lab.Supervisord, load *lab.Traffic) {
	for generation := 2; generation <= 4; generation++ {
		m.Reload()
		m.Gone(generation - 1)
		m.Until("the new generation has answered", func() bool { return load.By(generation) })
	}
}

// The two share a socket, so the one that goes may be asked until it closes that: no load, then.
func TestWorkerThatOpensItsPortIsReplacedWhenItsHealthCheckFails(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, opens("", `health = { method = "http", url = "http://{listener:http}/healthz", interval = `+
		`"50ms", failures = 2 }`))
	m.Serves(1)
	m.File("ill", "")
	m.Await(lab.Says("worker is to be replaced"))
	lab.Must(t, os.Remove(m.Path("ill")))
	told := m.Await(lab.Says(lab.WorkerTold))
	if ready := m.AwaitN(2, lab.Says(lab.WorkerReady))[1]; ready.N > told.N {
		t.Errorf("overlap is missing:\n%s\n%s", ready.Text, told.Text)
	}
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("%s answers", got)
	}
}

func TestRequestsWaitForTheNewGenerationAfterACrash(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, opens("", "compat = { generation = \"new\" }"))
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	load := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
	m.Until("the new generation has answered", func() bool { return load.By(2) })
	load.Lossless(t)
}

// Each has its own, although both open the same port.
func TestProgramsThatOpenTheSamePortGetTheirOwnListeners(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	at := lab.Reserve(t)
	other := strings.NewReplacer("program.web", "program.other", "127.0.0.1:0", at, "\"opens",
		"\"say=other\", \"opens").Replace(opens("", ""))
	m.Start(strings.Replace(opens("", ""), "127.0.0.1:0", lab.Reserve(t), 1) + other)
	for _, p := range []string{"web", "other"} {
		m.Await(lab.Says(lab.GenerationServes), lab.Program(p))
	}
	m.CtlOK("reload", "web", "--drained", "--timeout", "20s")
	for _, p := range m.Status().Programs {
		want := map[string]string{"web": "generation=2 ", "other": "generation=1 "}[p.Name]
		if got := lab.Ask(t, p.Listeners[0].Address, "/"); !strings.Contains(got, want) {
			t.Errorf("%s: %s answers, want %s", p.Name, got, want)
		}
	}
}

// The exact address comes first; an address for all fits what is left.
func TestProgramThatOpensTwoAddressesGetsTwoListeners(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	one, all := lab.Reserve(t), lab.Reserve(t)
	m.Start(`
[program.web]
command = [{worker}, "opens=127.0.0.1:3000,127.0.0.2:3000"]
bind = "on"
listen = [{ name = "all", address = "` + all + `", binds = "0.0.0.0:3000" },
	{ name = "one", address = "` + one + `", binds = "127.0.0.1:3000" }]
`)
	for generation := 1; generation <= 2; generation++ {
		m.Serves(generation)
		lab.Ask(t, one, "/")
		lab.Ask(t, all, "/")
		m.Reload()
	}
	m.Serves(3)
}

// It binds first, and says then that it polls.
func TestUDPServerThatOpensItsPortLosesNoDatagram(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ listener, binds, socket, at string }{
		"IPv4": {"127.0.0.1:0", "127.0.0.1:3000", "AF_INET", "127.0.0.1"},
		"IPv6": {"[::1]:0", "[::]:3000", "AF_INET6", "::"},
		"IPv6 for both families, as Go's, at an address of IPv4": {"127.0.0.1:0", "127.0.0.1:3000", "AF_INET6", "::"},
		"IPv6 for both families at every address of IPv4":        {"0.0.0.0:0", "0.0.0.0:3000", "AF_INET6", "::"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab.Need(t, "/usr/bin/python3")
			m := lab.WithOwnBinary(t)
			m.Start(`
[program.web]
command = ["/usr/bin/python3", "-S", "-c", '''
import os, select, signal, socket
r, w = os.pipe(); os.set_blocking(w, False); signal.set_wakeup_fd(w); signal.signal(signal.SIGTERM, lambda *_: None)
s = socket.socket(socket.` + c.socket + `, socket.SOCK_DGRAM); s.bind(("` + c.at + `", 3000)); s.setblocking(False)
while True:
    if r in select.select([s, r], [], [])[0]: break
    try: text, who = s.recvfrom(4096)
    except BlockingIOError: continue
    s.sendto(os.environ["SUPERVISORD_GENERATION"].encode() + b" " + text, who)
''']
bind = "on"
listen = [{ name = "udp", address = "udp:` + c.listener + `", binds = "udp:` + c.binds + `" }]
`)
			m.Serves(1)
			conn, err := net.Dial("udp", strings.TrimPrefix(m.Status().Programs[0].Listeners[0].Address, "udp:"))
			lab.Must(t, err)
			defer conn.Close()
			for generation := 2; generation <= 4; generation++ {
				go m.Signal(syscall.SIGHUP)
				for seen := ""; seen != string(rune('0'+generation)); {
					seen = datagram(t, conn)
				}
				if generation == 3 {
					m.Upgrade(lab.Upgraded)
				}
			}
		})
	}
}

// datagram sends a datagram, and returns the first word of the answer.
func datagram(t *testing.T, conn net.Conn) string {
	t.Helper()
	lab.Must(t, conn.SetDeadline(time.Now().Add(lab.Patience)))
	_, err := conn.Write([]byte("hello"))
	lab.Must(t, err)
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	lab.Must(t, err)
	generation, _, _ := strings.Cut(string(buffer[:n]), " ")
	return generation
}
