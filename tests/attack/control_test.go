package attack

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// hostile lists hostile clients of the control socket. Each gets its own connection and runs until done is closed.
var hostile = map[string]func(c *net.UnixConn, done <-chan struct{}){
	"says nothing":              func(_ *net.UnixConn, done <-chan struct{}) { <-done },
	"never ends its header":     speaks("GET /v1/status HTTP/1.1\r\nHost: x\r\nX: "),
	"never sends its body":      speaks("POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"),
	"follows and reads nothing": speaks("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"),
	"asks and reads nothing":    speaks(strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 2000)),
	"goes halfway": func(c *net.UnixConn, done <-chan struct{}) {
		io.WriteString(c, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		c.CloseWrite()
		<-done
	},
	"follows and goes halfway": func(c *net.UnixConn, done <-chan struct{}) {
		io.WriteString(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
		c.CloseWrite()
		<-done
	},
	"trickles": func(c *net.UnixConn, done <-chan struct{}) {
		for _, b := range []byte("GET /v1/status HTTP/1.1\r\nHost: " + strings.Repeat("x", 1000)) {
			if _, err := c.Write([]byte{b}); err != nil || wait(done, 20*time.Millisecond) {
				return
			}
		}
	},
	"is huge": func(c *net.UnixConn, _ <-chan struct{}) {
		io.WriteString(c, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
		io.Copy(c, io.LimitReader(zeros{}, 100<<20))
	},
	"has a huge header": func(c *net.UnixConn, _ <-chan struct{}) {
		io.WriteString(c, "GET /v1/status HTTP/1.1\r\nX: ")
		io.Copy(c, io.LimitReader(zeros{}, 100<<20))
	},
	"talks nonsense": func(c *net.UnixConn, done <-chan struct{}) {
		for junk := make([]byte, 1000); ; {
			for i := range junk {
				junk[i] = byte(rand.IntN(256))
			}
			if _, err := c.Write(junk); err != nil || wait(done, 5*time.Millisecond) {
				return
			}
		}
	},
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func speaks(text string) func(*net.UnixConn, <-chan struct{}) {
	return func(c *net.UnixConn, done <-chan struct{}) {
		io.WriteString(c, text)
		<-done
	}
}

// wait waits for d and reports whether done was closed before.
func wait(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

func TestHostileClientsDoNotDisturbReloadsUnderLoad(t *testing.T) {
	m := lab.Start(t, lab.Hello)
	m.Serves(1)
	load := lab.Press(t, m.Address(), 4, 2*time.Millisecond)
	done := make(chan struct{})
	var clients sync.WaitGroup
	for name, be := range hostile {
		for range 4 {
			clients.Go(func() {
				for alone := false; !alone; alone = wait(done, 50*time.Millisecond) { // a disconnected client connects again
					c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: m.Path("run/control.sock")})
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					c.SetDeadline(time.Now().Add(5 * time.Second))
					be(c, atMost(done, 5*time.Second))
					c.Close()
				}
			})
		}
	}
	for range 5 {
		began := time.Now()
		m.CtlOK("reload", "--drained")
		m.CtlOK("status")
		t.Logf("a reload took %v", time.Since(began))
	}
	close(done)
	clients.Wait()
	load.Lossless(t)
	if s := m.Status(); len(s.Programs) != 1 || s.Programs[0].State != "up" {
		t.Errorf("in the end the status is %+v", s)
	}
}

// atMost returns a channel that is closed when done is closed or d has passed.
func atMost(done <-chan struct{}, d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	go func() { wait(done, d); close(c) }()
	return c
}

// TestRandomRequestsUnderLoad sends all kinds of requests in random order with random arguments, half of them invalid,
// while the program is under load: no answer may be a server error, and no client may lose a request.
func TestRandomRequestsUnderLoad(t *testing.T) {
	m := lab.Start(t, lab.Hello)
	m.Serves(1)
	load := lab.Press(t, m.Address(), 4, 2*time.Millisecond)
	requests := []struct{ method, path string }{
		{"GET", "/v1/status"}, {"GET", "/v1/status?program=web"}, {"GET", "/v1/status?usage=no"}, {"GET",
			"/v1/wait?ticket=web:1&timeout=10ms"},
		{"GET", "/v1/wait?ticket=web:99:98:x&until=drained&timeout=10ms"}, {"POST", "/v1/reload"}, {"POST",
			"/v1/reload?until=serves&timeout=10ms"},
		{"POST", "/v1/programs/web/start?until=drained&timeout=10ms"}, {"POST", "/v1/programs/web/scale"},
		{"POST", "/v1/programs/web/start"}, {"POST", "/v1/programs/web/promote"}, {"POST", "/v1/programs/web/abort"}, {"POST",
			"/v1/programs/nobody/stop"},
		{"POST", "/v1/programs/web/signal"}, {"GET", "/v1/programs/web/receipts"}, {"GET", "/v1/programs/web/logs"}, {"PUT",
			"/v1/log-level"}, {"GET", "/v1/nothing"},
	}
	bodies := []string{"", "{}", `{"workers":2}`, `{"workers":3}`, `{"workers":0}`, `{"workers":-1}`, `{"signal":"CONT"}`,
		`{"signal":"WINCH","generation":1}`, `{"level":"info"}`,
		`{"level":"loud"}`, `{"reason":"because"}`, `{"programs":["web"]}`, `{"programs":["nobody"]}`,
		`{"canary":1,"for":"50ms"}`, `{"canary":1,"hold":true}`,
		"[", "null", `"x"`, `{"workers":1e99}`, "\x00\xff"}
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	var asking sync.WaitGroup
	for i := range 3 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		asking.Go(func() {
			for range 100 {
				r, body := requests[random.IntN(len(requests))], bodies[random.IntN(len(bodies))]
				if code, text := m.Request(r.method, r.path, body); code == 0 ||
					code >= 500 && !strings.Contains(text, `"too_slow"`) {
					t.Errorf("%s %s %q: %d %s", r.method, r.path, body, code, text)
				}
			}
		})
	}
	asking.Wait()
	m.Until("no canary is held", func() bool {
		m.Ctl("abort", "web")
		return m.Status().Programs[0].State == "up"
	})
	m.CtlOK("reload", "--drained")
	load.Lossless(t)
}
