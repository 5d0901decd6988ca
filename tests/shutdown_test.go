package tests

import (
	"io"
	"net"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// shutsDown is a worker that shuts its listening socket down, as cpp-httplib, gRPC and Net::Server do to wake their
// threads: when it is told to stop, or, worker 2 alone, while it continues to serve.
func shutsDown(t *testing.T, workers, when string) string {
	return `
[program.web]
workers = ` + workers + `
command = ["` + lab.Need(t, "python3") + `", "-c", """
import os, signal, socket, sys
s = socket.socket(fileno=3)
def end(*_):
    s.shutdown(2)
    sys.exit(0)
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
` + when + `
n.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True:
    try: c = s.accept()[0]
    except OSError: continue
    c.recv(1000)
    c.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\ngeneration=%s " % os.environ["SUPERVISORD_GENERATION"].encode())
    c.close()
"""]
ready = { method = "notify", accepts = false }
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
`
}

const shutDownText = "a process has shut down the listening socket, for all workers: it listens again"

func TestWorkersThatShutTheirSocketDownAtExitAreReplacedAgainAndAgain(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, shutsDown(t, "1", "signal.signal(signal.SIGTERM, end)"))
	m.Serves(1)
	for n := 2; n <= 4; n++ {
		m.CtlOK("reload", "--drained")
		for range 20 {
			c, err := net.Dial("tcp", m.Address())
			if err != nil {
				t.Fatalf("generation %d: %v", n, err)
			}
			_ = c.Close()
		}
		m.AwaitN(n-1, lab.Says(shutDownText))
		if got := state(m).Listeners[0].ShutDowns; got != n-1 {
			t.Errorf("after %d generations the socket was shut down %d times", n-1, got)
		}
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "a process has shut this listener down 3 times") {
		t.Errorf("the status is\n%s", out)
	}
}

func TestSocketThatOneOfThreeWorkersShutsDownListensAgain(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(shutsDown(t, "3", "if os.environ['SUPERVISORD_SLOT'] == '1': s.shutdown(2)"),
		"\nsignal", "", 1))
	m.Serves(1)
	m.Await(lab.Says(shutDownText))
	for range 20 {
		c, err := net.Dial("tcp", m.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
}

// TestUnixSocketThatAWorkerShutsDownIsReplaced: such a socket can never listen again, and keeps an abstract name.
func TestUnixSocketThatAWorkerShutsDownIsReplaced(t *testing.T) {
	for address, says := range map[string]string{
		"unix:{dir}/web.sock": "a new one takes its place",
		"unix:@{dir}/web":     "clients are refused until you stop and start supervisord",
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			config := shutsDown(t, "2", "if os.environ['SUPERVISORD_GENERATION'] + os.environ['SUPERVISORD_SLOT'] == '11': "+
				"s.shutdown(2)")
			m := lab.Start(t, strings.Replace(config, "127.0.0.1:0", address, 1))
			m.Await(lab.Says("a process has shut down the listening socket, for all workers: " + says))
			if strings.HasPrefix(address, "unix:{dir}") {
				m.Serves(2)
				for range 20 {
					c, err := net.Dial("unix", state(m).Listeners[0].Address)
					if err != nil {
						t.Fatal(err)
					}
					_ = c.Close()
				}
			}
			if got := state(m).Listeners[0].ShutDowns; got != 1 {
				t.Errorf("the socket was shut down %d times", got)
			}
		})
	}
}

// TestNewestGenerationIsServedWhenAnEarlierOneShutsItsSocketsDown has three lanes: the kernel moves the last sockets to
// the places of those that leave, while the second generation drains.
func TestNewestGenerationIsServedWhenAnEarlierOneShutsItsSocketsDown(t *testing.T) {
	for _, workers := range []string{"1", "3"} {
		t.Run(workers+" workers", func(t *testing.T) {
			t.Parallel()
			config := shutsDown(t, workers, "signal.signal(signal.SIGTERM, end)") + "per_slot = true\n"
			m := lab.Start(t, strings.Replace(config, "\n[[", "\ndrain = { silence = \"1m\", timeout = \"2m\" }\n[[", 1))
			m.Serves(1)
			var clients [2]net.Conn
			for i := range clients {
				c, err := net.Dial("tcp", m.Address())
				lab.Must(t, err)
				defer c.Close()
				clients[i] = c
				m.CtlOK("reload")
			}
			_, err := io.WriteString(clients[0], "GET / HTTP/1.0\r\n\r\n")
			lab.Must(t, err)
			if answer, err := io.ReadAll(clients[0]); !strings.Contains(string(answer), "generation=1 ") {
				t.Errorf("the first client is answered %q, %v", answer, err)
			}
			m.Gone(1)
			reaches(t, m, 3)
		})
	}
}
