package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

func TestKindOfError(t *testing.T) {
	for want, errs := range map[LossKind][]error{
		Refused:  {syscall.ECONNREFUSED, syscall.ENOENT, syscall.EAGAIN},
		Reset:    {syscall.ECONNRESET, syscall.EPIPE},
		Closed:   {io.EOF, io.ErrUnexpectedEOF},
		TimedOut: {os.ErrDeadlineExceeded, context.DeadlineExceeded, syscall.ETIMEDOUT},
		Other:    {syscall.EADDRNOTAVAIL, syscall.EMFILE, errors.New("malformed HTTP response")},
	} {
		for _, err := range errs {
			wrapped := &net.OpError{Op: "read", Err: os.NewSyscallError("read", err)}
			if got := kindOf(wrapped); got != want {
				t.Errorf("%v is %q, want %q", wrapped, got, want)
			}
		}
	}
}

func TestKindOfStatus(t *testing.T) {
	for code, want := range map[int]LossKind{200: "", 204: "", 302: "", 404: Other, 429: Other, 500: Status5,
		503: Status5} {
		c := client(server(t, fmt.Sprintf("HTTP/1.1 %d Text\r\nContent-Length: 0\r\n\r\n", code), 1), 0, 0)
		got := LossKind("")
		if l := c.Send(time.Now()).Lost; l != nil {
			got = l.Kind
		}
		if got != want {
			t.Errorf("status %d is %q, want %q", code, got, want)
		}
	}
}

const hi = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

// server answers every request until the test ends, and closes each connection after n answers.
func server(t *testing.T, answer string, answers int) string {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			for range answers {
				if _, err := c.Read(buf); err != nil {
					break
				}
				io.WriteString(c, answer)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-served })
	return ln.Addr().String()
}

func client(address string, keep int, roundTrip time.Duration) *Driver {
	return &Driver{Dial: Dial(address), Ask: Get("http://x/", nil), Keep: keep, RoundTrip: roundTrip,
		Timeout: time.Minute}
}

func TestConnectionsAreUsedAgainAndLostAsThoseOfClientsAre(t *testing.T) {
	for name, c := range map[string]struct {
		answers, keep int // of each connection; of idle connections
		roundTrip     time.Duration
		want          string // what becomes of requests
		dials, open   int    // connections that were made; that are open afterwards
	}{
		"closed within a round trip":   {1, 1, 500 * time.Millisecond, "answered lost answered", 2, 1},
		"closed, without a round trip": {1, 1, 0, "answered lost", 1, 0},
		"kept":                         {100, 1, time.Millisecond, strings.Repeat("answered ", 20), 1, 1},
		"not kept":                     {1, 0, time.Millisecond, strings.Repeat("answered ", 5), 5, 0},
	} {
		d := client(server(t, hi, c.answers), c.keep, c.roundTrip)
		for n, want := range strings.Fields(c.want) {
			l := d.Send(time.Now()).Lost
			if (l != nil) != (want == "lost") || l != nil && (l.Kind != Closed && l.Kind != Reset || !l.Reused) {
				t.Errorf("%s: request %d: loss %+v, want it %s", name, n, l, want)
			}
		}
		if len(d.conns) != c.open || d.Dials() != c.dials {
			t.Errorf("%s: %d of %d connections are open, want %d of %d", name, len(d.conns), d.Dials(), c.open, c.dials)
		}
		d.Close()
	}
}

func TestConnectionClosedLongAgoIsReplaced(t *testing.T) {
	c := client(server(t, hi, 1), 1, time.Nanosecond)
	defer c.Close()
	for range 3 {
		if l := c.Send(time.Now()).Lost; l != nil {
			t.Errorf("loss %+v", l)
		}
		ended := make(chan time.Time, 1)
		ended <- <-c.idle[0].ended // the kernel has told the client
		close(ended)
		c.idle[0].ended = ended
	}
	if c.Dials() != 3 {
		t.Errorf("%d connections were made, want 3", c.Dials())
	}
}

func TestAddressWithoutAListenerIsRefused(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ln.Close()
	if l := client(ln.Addr().String(), 0, 0).Send(time.Now()).Lost; l == nil || l.Kind != Refused {
		t.Errorf("loss %+v, want refused", l)
	}
}

func TestBodyIsSeen(t *testing.T) {
	c := client(server(t, "HTTP/1.1 100 Continue\r\n\r\n"+hi, 1), 0, 0)
	c.Ask = Get("http://x/", func(_ *http.Response, body []byte) error {
		if string(body) != "hi" {
			t.Errorf("body %q", body)
		}
		return errors.New("not this one")
	})
	if l := c.Send(time.Now()).Lost; l == nil || l.Text != "not this one" {
		t.Errorf("loss %v, want the error of the lookup", l)
	}
}

func TestLoadSendsTotalAtOnceAndAtARate(t *testing.T) {
	address := server(t, hi, 1)
	var r Collector
	l := New(r.Add)
	l.Loop(client(address, 0, 0), 3, 20, nil)
	l.Wait()
	if n, kinds := r.Attempts().Lost(); len(r.Attempts()) != 20 || n > 0 {
		t.Errorf("%d requests, lost %v; want 20 and none", len(r.Attempts()), kinds)
	}
	r = Collector{}
	l = New(r.Add)
	began := time.Now()
	l.Rate(client(address, 0, 0), 100)
	for ; len(r.Attempts()) < 30; time.Sleep(time.Millisecond) {
	}
	l.Stop()
	took := time.Since(began)
	if n, kinds := r.Attempts().Lost(); len(r.Attempts()) > int(100*took.Seconds())+2 || n > 0 {
		t.Errorf("%d requests in %s, lost %v; want at most 100 a second and none", len(r.Attempts()), took, kinds)
	}
}

func TestAbandonCutsRequestsInFlight(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // without accept
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var r Collector
	l := New(r.Add)
	l.Loop(client(ln.Addr().String(), 0, 0), 3, 0, nil)
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	l.Abandon()
	if len(r.Attempts()) > 0 || time.Since(began) > 30*time.Second {
		t.Errorf("after %s there are %d requests, want none at once", time.Since(began), len(r.Attempts()))
	}
}

func TestLongestGap(t *testing.T) {
	var all Attempts
	for _, millis := range []int{10, 20, 30, 200, 210, 290} {
		all = append(all, Attempt{At: time.Duration(millis) * time.Millisecond, Latency: time.Millisecond})
	}
	// no answer
	all = append(all, Attempt{At: 100 * time.Millisecond, Latency: time.Millisecond, Lost: &Lost{Kind: Reset}})
	if at, length := all.LongestGap(0, 300*time.Millisecond); at != 31*time.Millisecond || length != 170*time.Millisecond {
		t.Errorf("%s from %s", length, at)
	}
	if _, length := all.LongestGap(0, time.Second); length != 709*time.Millisecond {
		t.Errorf("%s, want the silence at the end", length)
	}
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	var list []time.Duration
	for i := range 10 {
		list = append(list, time.Duration(10-i))
	}
	all := Sort(slices.Values(list))
	for percent, want := range map[int]time.Duration{50: 5, 95: 10, 99: 10, 100: 10, 10: 1, 1: 1} {
		if got := all.Quantile(float64(percent) / 100); got != want {
			t.Errorf("p%d is %d, want %d", percent, got, want)
		}
	}
}

func TestShortWritesThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 µs", 1_234: "1.23 µs", 999_700: "1 ms", 999_400: "999 µs", -1_150_000: "-1.15 ms",
		59_960 * time.Millisecond: "60 s", 123_400 * time.Millisecond: "123 s",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}
