package diag

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// steer has new connections go to one member of a SO_REUSEPORT group.
func steer(t *testing.T, n *lane, index uint32) {
	t.Helper()
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: index}}
	if err := unix.SetsockoptSockFprog(n.fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: 1, Filter: &program[0]}); err != nil {
		t.Fatal(err)
	}
}

// brute is a server that drops everything it has when it ends.
type brute struct {
	work  time.Duration
	mu    sync.Mutex
	conns map[net.Conn]bool // nil: it has ended
}

func (b *brute) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = map[net.Conn]bool{}
}

func (b *brute) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		drop(c)
	}
	b.conns = nil
}

func drop(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func (b *brute) accept(n *lane) {
	for {
		c, err := n.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		if b.conns == nil {
			drop(c)
		} else {
			b.conns[c] = true
			go b.answer(c)
		}
		b.mu.Unlock()
	}
}

func (b *brute) answer(c net.Conn) {
	if _, err := c.Read(make([]byte, 100)); err == nil {
		time.Sleep(rand.N(b.work))
		io.WriteString(c, strings.Repeat("answer ", 1+rand.N(3000)))
	}
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	c.Close()
}

// TestServerThatEndsWhenQuietLosesNothing hands traffic over under load, again and again: clients with a connection for
// each request, and servers that drop everything when they end. Ended at once after the switch, they lose dozens.
func TestServerThatEndsWhenQuietLosesNothing(t *testing.T) {
	for _, work := range []time.Duration{time.Microsecond, 5 * time.Millisecond} {
		lanes := []*lane{openTCP(t, 1)}
		lanes = append(lanes, open(t, "tcp4", lanes[0].Addr().String(), 2))
		servers := []*brute{{work: work}, {work: work}}
		for i, n := range lanes {
			go servers[i].accept(n)
		}
		servers[0].begin()
		steer(t, lanes[0], 0)
		var requests, lost atomic.Int64
		var clients sync.WaitGroup
		done := make(chan struct{})
		for range 32 {
			clients.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					requests.Add(1)
					if answer, err := request(lanes[0].Addr().String()); err != nil || !strings.HasSuffix(answer, "answer ") {
						lost.Add(1)
					}
				}
			})
		}
		var longest time.Duration
		for i := range 10 {
			time.Sleep(20 * time.Millisecond)
			old, next := i%2, 1-i%2
			servers[next].begin()
			steer(t, lanes[0], uint32(next))
			flip := time.Now()
			w := lanes[old].watch()
			for pause := time.Millisecond; !look(t, w).Quiet(); pause = min(2*pause, 50*time.Millisecond) {
				if time.Since(flip) > time.Minute {
					t.Fatalf("never quiet: %+v", look(t, w))
				}
				time.Sleep(pause)
			}
			longest = max(longest, time.Since(flip))
			servers[old].end()
		}
		close(done)
		clients.Wait()
		for _, n := range lanes {
			n.Close()
		}
		t.Logf("%d of %d requests lost; quiet after %v at most", lost.Load(), requests.Load(), longest)
		if lost.Load() > 0 {
			t.Errorf("%d of %d requests are lost", lost.Load(), requests.Load())
		}
	}
}

func request(address string) (answer string, err error) {
	c, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "request"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}
