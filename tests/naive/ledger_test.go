package naive

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor/program"
)

// badWord is the first argument of a test binary that is to be a bad worker: what it does on TERM follows.
const badWord = "be-a-bad-worker"

// bad is a server that loses requests. A request is a line with a number of milliseconds to work and a number of bytes to answer.
type bad struct {
	on    string
	reads chan struct{} // as many connections are read at a time
	mu    sync.Mutex
	busy  map[net.Conn]bool // false: idle
}

// behaveBadly is the main function of a bad worker.
func behaveBadly(on string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	ln, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		panic(err)
	}
	b := &bad{on: on, reads: make(chan struct{}, 4), busy: map[net.Conn]bool{}}
	go b.accept(ln)
	ready, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err == nil {
		_, err = io.WriteString(ready, "READY=1")
	}
	if err != nil {
		panic(err)
	}
	<-term
	switch on {
	case "drops accepted connections":
		os.Exit(0)
	case "drops idle connections":
		b.mu.Lock()
		for c, busy := range b.busy {
			if !busy {
				c.Close()
			}
		}
		b.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
	case "dies with answers", "closes its listener early":
		os.Exit(1)
	}
	select {} // until KILL
}

func (b *bad) accept(ln net.Listener) {
	for n := 0; b.on != "closes its listener early" || n < 12; n++ {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go b.serve(c)
	}
	ln.Close()
}

func (b *bad) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	b.set(c, false)
	for {
		if b.on == "drops accepted connections" {
			b.reads <- struct{}{}
		}
		line, err := in.ReadString('\n')
		b.set(c, true)
		if err != nil {
			return
		}
		var work, bytes int
		fmt.Sscan(line, &work, &bytes)
		time.Sleep(time.Duration(work) * time.Millisecond)
		if _, err := c.Write(make([]byte, bytes)); err != nil {
			return
		}
		b.set(c, false)
		if b.on == "drops accepted connections" {
			<-b.reads
		}
	}
}

func (b *bad) set(c net.Conn, busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy[c] = busy
}

// errCut is an answer of which a part has come.
var errCut = errors.New("cut off")

// errCrossed is the loss of a request on a connection that its worker has just closed with nothing in hand.
var errCrossed = errors.New("the connection was closed before the request")

// closed reports whether the other side has closed a connection.
func closed(c *load.Wire) (is bool) {
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		is = n == 0 && err == nil || errors.Is(err, unix.ECONNRESET)
		return true
	})
	return is
}

// asks sends a request for so many bytes, which are read slowly if there are many.
func asks(work, bytes int) load.Ask {
	return func(c *load.Wire, last bool) (bool, error) {
		if closed(c) {
			return true, errCrossed
		}
		if _, err := fmt.Fprintf(c, "%d %d\n", rand.IntN(work), bytes); err != nil {
			return true, err
		}
		for got := 0; got < bytes; {
			n, err := c.In.Discard(min(bytes-got, 128<<10))
			if got += n; err != nil && got > 0 {
				return true, errors.Join(errCut, err)
			} else if err != nil {
				return true, err
			}
			if got < bytes {
				time.Sleep(2 * time.Millisecond)
			}
		}
		return last, nil
	}
}

// truth is what clients have lost.
type truth struct {
	mu                               sync.Mutex
	requests                         int
	reset, unanswered, cut, crossing int
	others                           map[string]int
}

func (o *truth) add(a load.Attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests++
	switch l := a.Lost; {
	case l == nil:
	case strings.Contains(l.Text, "the idle connection"), l.Text == errCrossed.Error():
		o.crossing++
	case strings.Contains(l.Text, errCut.Error()):
		o.cut++
	case l.Kind == load.Reset:
		o.reset++
	case l.Kind == load.Closed:
		o.unanswered++
	default:
		o.others[string(l.Kind)+": "+l.Text]++
	}
}

func (o *truth) String() string {
	return fmt.Sprintf("%d requests; clients lost: %d reset, %d closed without an answer, %d with a part of it, %d crossed the close of their connection",
		o.requests, o.reset, o.unanswered, o.cut, o.crossing)
}

// TestLedgerAgreesWithTheClients reloads bad workers under load, 1,000 times with -long, and compares the records with what clients saw.
func TestLedgerAgreesWithTheClients(t *testing.T) {
	for _, on := range []string{"drops accepted connections", "drops idle connections", "dies with answers", "ignores TERM", "closes its listener early"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			ledger, clients := reloadBadly(t, on, 10)
			t.Logf("%v\n    ledger: %d queued, %d unread, %d unanswered, %d unsent", clients, ledger.Queued, ledger.Unread, ledger.Unanswered, ledger.Unsent)
			near(t, "reset", ledger.Queued+ledger.Unread, clients.reset)
			near(t, "without an answer", ledger.Unanswered, clients.unanswered)
			if clean := on == "drops accepted connections"; !clean && ledger.Unsent < clients.cut { // it is a bound, and unknown of a worker that exits with status 0
				near(t, "with a part of an answer", ledger.Unsent, clients.cut)
			}
			for what, n := range clients.others {
				t.Errorf("%d clients lost otherwise: %s", n, what)
			}
			if ledger.Total() == 0 {
				t.Error("nothing was lost")
			}
		})
	}
}

// near allows for requests that cross the close of a connection in the instant after their client has looked, of which the kernel shows nothing.
func near(t *testing.T, what string, ledger, clients int) {
	t.Helper()
	if d := ledger - clients; max(d, -d) > max(2, clients/50) {
		t.Errorf("%s: %d in the ledger, %d of the clients", what, ledger, clients)
	}
}

// reloadBadly reloads a program whose worker is bad, and adds up the records.
func reloadBadly(t *testing.T, on string, reloads int) (ledger program.Lost, clients *truth) {
	if lab.Long() {
		reloads = 200
	}
	m := lab.Start(t, fmt.Sprintf(`
[program.web]
command = [%q, %q, %q]
ready = { method = "notify" }
drain = { timeout = "20ms" }
stop = { timeout = "100ms" }

[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
`, lab.Built.Self, badWord, on))
	m.Serves(1)
	clients = &truth{others: map[string]int{}}
	l := load.New(clients.add)
	dial := load.Dial(m.Address())
	pause := func() time.Duration { return time.Duration(20+rand.IntN(60)) * time.Millisecond } // more than a tick of the kernel's clock
	l.Loop(&load.Sender{Dial: dial, Ask: asks(40, 100)}, 3, 0, pause)
	l.Loop(&load.Sender{Dial: dial, Ask: asks(40, 100), Keep: 8, RoundTrip: 10 * time.Millisecond}, 8, 0, pause)
	l.Loop(&load.Sender{Dial: dial, Ask: asks(10, 16<<20)}, 1, 0, pause)
	reload := func() {
		out, _ := m.Ctl("reload", "web", "--drained", "--json")
		var r control.Report
		lab.Must(t, json.NewDecoder(strings.NewReader(out[max(0, strings.Index(out, "{\n")):])).Decode(&r))
		if p := r.Programs[0]; p.Reload == nil || p.Reload.Outcome != program.Serves || p.Lost == nil {
			t.Errorf("a reload went like this: %s", out)
		} else if p.Reload.Lost != nil {
			ledger = ledger.Plus(*p.Reload.Lost)
		}
	}
	for range reloads {
		time.Sleep(time.Duration(50+rand.IntN(100)) * time.Millisecond)
		reload()
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); l.Stop() }()
	for ended := false; !ended; {
		select {
		case <-stopped:
			ended = true
		case <-time.After(time.Second): // what waits for a worker that accepts no more
			reload()
		}
	}
	return ledger, clients
}
