package tests

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

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
