package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// answerTimeout is when a request without an answer counts as lost.
	answerTimeout = 10 * time.Second
	// roundTrip is how far away the clients act to be, as those of `supervisord prove` do: on loopback nobody sends a request
	// to a server that has just closed the connection, because the news takes microseconds.
	roundTrip = 20 * time.Millisecond
	// pauses is how long a client waits between two requests, at least and at most.
	leastPause, mostPause = 10 * time.Millisecond, 60 * time.Millisecond
)

// ask sends one request on a connection and reads the whole answer. With last it says, where the protocol can, that the
// connection is not used again; closes reports that the server said so.
type ask func(conn net.Conn, in *bufio.Reader, last bool) (closes bool, err error)

// get is a request by HTTP/1.1, whose answer must be a 200 with a text in it.
func get(path, want string) ask {
	return func(conn net.Conn, in *bufio.Reader, last bool) (bool, error) {
		connection := "keep-alive"
		if last {
			connection = "close"
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: %s\r\n\r\n", path, connection); err != nil {
			return false, err
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return false, err
		}
		body, err := io.ReadAll(answer.Body)
		switch {
		case err != nil:
			return false, err
		case answer.StatusCode != http.StatusOK:
			return false, errors.New(answer.Status)
		case !strings.Contains(string(body), want):
			return false, fmt.Errorf("answer without %q: %.80q", want, body)
		}
		return answer.Close, nil
	}
}

// clients are some that do the same.
type clients struct {
	kind    string // for the report: "new connections"
	count   int
	network string // tcp, unix
	address string
	ask     ask
	keep    bool         // they keep their connections
	whole   func() error // a whole exchange by itself, instead of all that, for a protocol without connections
}

// web is the usual load on an address: as many clients with new connections as with kept ones.
func web(address string, a ask) []clients {
	return []clients{fresh(address, a), {kind: "kept", count: 12, network: "tcp", address: address, ask: a, keep: true}}
}

// fresh are clients with a new connection for each request.
func fresh(address string, a ask) clients {
	return clients{kind: "new", count: 12, network: "tcp", address: address, ask: a}
}

// slow are clients whose requests take a while, so that some are always in hand when a server is told to stop.
func slow(address string, a ask) clients {
	return clients{kind: "slow", count: 6, network: "tcp", address: address, ask: a}
}

// tally is what became of the requests of one kind.
type tally struct {
	mu   sync.Mutex
	sent int
	lost map[string]int // by how
}

func (y *tally) add(err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sent++
	if err != nil {
		y.lost[how(err)]++
	}
}

func (y *tally) losses() (n int) {
	for _, count := range y.lost {
		n += count
	}
	return n
}

// how is what a loss is counted as.
func how(err error) string {
	late, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case isNet && late.Timeout():
		return "timed out"
	}
	return err.Error()
}

// load is what is put on a site.
type load struct {
	site    *site
	stop    chan struct{}
	running sync.WaitGroup
	kinds   []string
	tallies map[string]*tally
	began   time.Time
}

// press puts load on the site, which goes on until the end of the test at most.
func (s *site) press(all ...clients) *load {
	l := &load{site: s, stop: make(chan struct{}), tallies: map[string]*tally{}, began: time.Now()}
	for _, c := range all {
		if l.tallies[c.kind] == nil {
			l.kinds = append(l.kinds, c.kind)
			l.tallies[c.kind] = &tally{lost: map[string]int{}}
		}
	}
	for _, c := range all {
		for range c.count {
			l.running.Go(func() { l.client(c) })
		}
	}
	s.t.Cleanup(l.end)
	return l
}

// end ends the load; what is under way is answered first.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

func (l *load) over() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// client asks again and again. A request that fails is never sent twice.
func (l *load) client(c clients) {
	var w wire
	defer func() { w.close() }()
	for y := l.tallies[c.kind]; !l.over(); {
		y.add(w.request(c))
		if w.rest(leastPause+rand.N(mostPause-leastPause)) && !l.over() {
			y.add(io.EOF)
		}
	}
}

// wire is a client's connection, if there is one.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func (w *wire) request(c clients) error {
	if c.whole != nil {
		return c.whole()
	}
	if err := w.connect(c); err != nil {
		return err
	}
	w.conn.SetDeadline(time.Now().Add(answerTimeout))
	closes, err := c.ask(w.conn, w.in, !c.keep)
	if err != nil || closes || !c.keep {
		w.close()
	}
	return err
}

// connect makes a connection where there is none, and lets a round trip pass. A server that closes it in the meantime has
// lost the request.
func (w *wire) connect(c clients) (err error) {
	if w.conn != nil {
		return nil
	}
	if w.conn, err = net.DialTimeout(c.network, c.address, answerTimeout); err != nil {
		w.conn = nil
		return err
	}
	w.in = bufio.NewReader(w.conn)
	if c.keep {
		return nil
	}
	return w.listen(roundTrip)
}

// rest waits between two requests. It reports that the server closed a kept connection so shortly before the next request that
// this was on its way already. A client that hears of the end in time makes another connection without a word.
func (w *wire) rest(pause time.Duration) (lost bool) {
	end := time.Now().Add(pause)
	if w.conn != nil && w.listen(pause) != nil {
		w.close()
		lost = time.Until(end) < roundTrip
	}
	time.Sleep(time.Until(end))
	return lost
}

// listen waits for so long, and fails if the server closes the connection or says anything.
func (w *wire) listen(d time.Duration) error {
	w.conn.SetReadDeadline(time.Now().Add(d))
	_, err := w.in.Peek(1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err == nil:
		err = errors.New("the server spoke unasked")
	}
	w.close()
	return err
}

func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// report ends the load and prints what became of it, for docs/servers.md.
func (l *load) report() {
	l.site.t.Helper()
	l.end()
	sent, lost := 0, 0
	var parts []string
	for _, kind := range l.kinds {
		y := l.tallies[kind]
		sent, lost = sent+y.sent, lost+y.losses()
		part := fmt.Sprintf("%s: %d of %d", kind, y.losses(), y.sent)
		if y.losses() > 0 {
			part += " (" + y.kinds() + ")"
		}
		parts = append(parts, part)
	}
	l.site.t.Logf("%s: lost %d of %d requests in %d redeploys, %.1f s (%s)",
		l.site.name, lost, sent, redeployed, time.Since(l.began).Seconds(), strings.Join(parts, "; "))
}

func (y *tally) kinds() string {
	var list []string
	for how, n := range y.lost {
		list = append(list, fmt.Sprintf("%s %d", how, n))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// lossless fails if a request was lost, or if there was hardly a load.
func (l *load) lossless() {
	l.site.t.Helper()
	l.lossy(nil)
}

// lossy is lossless for a server that loses requests as it stops, whatever is done: of each kind that is named it may lose so
// many per redeploy, and not one of any other.
func (l *load) lossy(perRedeploy map[string]float64) {
	l.site.t.Helper()
	l.report()
	for _, kind := range l.kinds {
		y := l.tallies[kind]
		if y.sent < 3*redeployed {
			l.site.t.Errorf("only %d requests of the kind %s: this is no load", y.sent, kind)
		}
		if n, bound := float64(y.losses()), perRedeploy[kind]*redeployed; n > bound {
			l.site.t.Errorf("of the kind %s %v were lost of %d, at most %v may be: %s", kind, n, y.sent, bound, y.kinds())
		}
	}
}
