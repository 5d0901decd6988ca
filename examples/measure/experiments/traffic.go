package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/supervisord/examples/grpc/greeter"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// crowd is a load and its requests.
type crowd struct {
	*load.Load
	load.Collector
	starting sync.WaitGroup // users who have not begun yet
	ctx      context.Context
	cancel   context.CancelFunc
	lost     context.Context // ended by the first request that is lost
	lose     context.CancelFunc
	closers  []func()
}

func newTraffic() *crowd {
	t := &crowd{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.lost, t.lose = context.WithCancel(context.Background())
	t.Load = load.New(t.add)
	return t
}

func (t *crowd) add(a load.Attempt) {
	t.Add(a)
	if a.Lost != nil {
		t.lose()
	}
}

// awaitLoss waits for the first request that is lost.
func (t *crowd) awaitLoss(ctx context.Context) error {
	select {
	case <-t.lost.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end ends the load, waits for the requests in flight, and returns all requests. It may be called again.
func (t *crowd) end() load.Attempts {
	t.cancel()
	t.starting.Wait()
	t.Stop()
	for _, c := range t.closers {
		c()
	}
	t.closers = nil
	return t.Attempts()
}

// sender returns a client of an address. It notices that the server has closed an idle connection, as all clients do.
func sender(address string, ask load.Ask, keep int) *load.Driver {
	return &load.Driver{Dial: load.Dial(address), Ask: ask, Keep: keep, RoundTrip: time.Nanosecond}
}

func get(path string) load.Ask { return load.Get("http://experiment"+path, nil) }

// steady sends requests at a constant rate, however long the answers take: half of them on new connections, half on
// keep-alive ones.
func steady(address string, rate int) *crowd {
	t := newTraffic()
	t.Rate(sender(address, get("/"), 0), rate/2)
	t.Rate(sender(address, get("/"), 1+rate/20), rate-rate/2)
	return t
}

// users adds virtual users, each of whom makes one call after another. They begin spread over the length of a call, so
// that calls of every age are in flight. A user whose call failed waits for the rest of its length, and so makes no
// more calls than one who is served.
func (t *crowd) users(n int, length time.Duration, user func() func(since time.Time) load.Attempt) {
	for i := range n {
		call := user()
		t.starting.Go(func() {
			if kit.Pause(t.ctx, length*time.Duration(i)/time.Duration(n)) != nil {
				return
			}
			var rest time.Duration
			t.Repeat(func(since time.Time) load.Attempt {
				a := call(since)
				if rest = 0; a.Lost != nil {
					rest = max(0, length-a.Latency)
				}
				return a
			}, 1, 0, func() time.Duration { return rest })
		})
	}
}

// webUsers adds users of HTTP, who keep their connections if told to. It returns how many connections they have made.
func (t *crowd) webUsers(n int, length time.Duration, address string, ask load.Ask, keep bool) (dials func() int) {
	kept := 0
	if keep {
		kept = n
	}
	s := sender(address, ask, kept)
	t.closers = append(t.closers, s.Close)
	t.users(n, length, func() func(time.Time) load.Attempt { return s.Send })
	return s.Dials
}

// rpcUsers adds users of Greeter.Hello, each with a client connection of their own, whose calls take delay. It returns
// how many connections they have made.
func (t *crowd) rpcUsers(n int, length, delay time.Duration, address string) (dials func() int) {
	var dialed atomic.Int64
	dial := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp4", address)
	})
	request := &greeter.HelloRequest{Name: "you", DelayMs: delay.Milliseconds()}
	t.users(n, length, func() func(time.Time) load.Attempt {
		conn, err := grpc.NewClient("passthrough:///"+address, dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10)) // there may be thousands
		if err != nil {
			return load.Measure(func() error { return err })
		}
		t.closers = append(t.closers, func() { conn.Close() })
		client := greeter.NewGreeterClient(conn)
		return load.Measure(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			_, err := client.Hello(ctx, request)
			return err
		})
	})
	return func() int { return int(dialed.Load()) }
}

// failed counts the lost requests.
func failed(all load.Attempts) int {
	n, _ := all.Lost()
	return n
}

// digits are addresses and ports, by which two errors of one kind may differ.
var digits = regexp.MustCompile(`[0-9][0-9.:]*`)

// reasons are the kinds of failure and how many of each there were, the most frequent first.
func reasons(all load.Attempts) string {
	counts := map[string]int{}
	for _, a := range all {
		if a.Lost != nil {
			counts[digits.ReplaceAllString(a.Lost.Text, "…")]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(counts),
		func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s times `%s`", count(counts[kind]), kind)
	}
	return strings.Join(kinds[:min(len(kinds), 5)], "; ")
}

// window is a piece of time since the load began.
type window struct{ from, to time.Duration }

// within returns the requests that were sent in the windows.
func within(all load.Attempts, windows []window) (some load.Attempts) {
	for _, w := range windows {
		some = append(some, all.Between(w.from, w.to)...)
	}
	return some
}

// longestGaps returns the longest time without an answer in each window.
func longestGaps(all load.Attempts, windows []window) load.Times {
	var gaps []time.Duration
	for _, w := range windows {
		_, gap := all.LongestGap(w.from, w.to)
		gaps = append(gaps, gap)
	}
	return load.Sort(slices.Values(gaps))
}

// post is a request of JSON.
func post(path, body string) load.Ask {
	r, err := http.NewRequest(http.MethodPost, "http://experiment"+path, strings.NewReader(body))
	if err != nil {
		return func(*load.Wire, bool) (bool, error) { return true, err }
	}
	return load.HTTP(r, nil)
}

// alternate lets stretches without and with redeploys follow each other, and returns when they were and how many
// redeploys there were. The time in which old workers drain is part of a stretch with redeploys.
func alternate(ctx context.Context, t *crowd, s *kit.Subject, pairs int, stretch, every time.Duration) (calm,
	with []window, redeploys int, err error) {
	for range pairs {
		from := t.Now()
		if err := kit.Pause(ctx, stretch); err != nil {
			return nil, nil, 0, err
		}
		middle := t.Now()
		calm = append(calm, window{from, middle})
		for next := middle; max(next, t.Now()) < middle+stretch; next += every {
			if err := kit.Pause(ctx, next-t.Now()); err != nil {
				return nil, nil, 0, err
			}
			redeploys++
			if _, err := s.Redeploy(ctx); err != nil {
				return nil, nil, 0, err
			}
		}
		if err := errors.Join(kit.Pause(ctx, middle+stretch-t.Now()), s.Settle(ctx)); err != nil {
			return nil, nil, 0, err
		}
		with = append(with, window{middle, t.Now()})
	}
	return calm, with, redeploys, nil
}
