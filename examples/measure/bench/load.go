package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// client returns a client of the example worker.
func client(address string, keep int) *load.Driver {
	return &load.Driver{Dial: load.Dial(address), Ask: load.Get("http://bench/healthz", nil), Keep: keep}
}

// hammer sends so many requests from 1,000 clients, each as soon as it has its answer.
func hammer(ctx context.Context, t *kit.Totals, address string, requests int, keep bool) error {
	kept := 0
	if keep {
		kept = 1000
	}
	var r load.Collector
	l := load.New(r.Add)
	l.Loop(client(address, kept), 1000, requests, nil)
	defer context.AfterFunc(ctx, l.Abandon)()
	l.Wait()
	t.Add(r.Attempts(), l.Now())
	return context.Cause(ctx)
}

// steadyLoad is what a load at a constant rate came to.
type steadyLoad struct {
	kit.Totals
	latency load.Times
	gap     time.Duration // the longest without an answer
}

func (c steadyLoad) String() string {
	return fmt.Sprintf("%s; longest gap %s; %s", c.latency, load.Short(c.gap), &c.Totals)
}

// steady sends requests at a constant rate, however long the answers take, each on a new connection.
func steady(ctx context.Context, address string, rate int, d time.Duration) (c steadyLoad, err error) {
	var r load.Collector
	l := load.New(r.Add)
	l.Rate(client(address, 0), rate)
	err = kit.Pause(ctx, d)
	l.Stop()
	all := r.Attempts()
	c.latency = all.Latencies()
	_, c.gap = all.LongestGap(0, l.Now())
	c.Add(all, l.Now())
	return c, err
}

// chat is a few clients that talk to workers of package light, each request on a new connection.
type chat struct {
	*load.Load
	record load.Collector
	mu     sync.Mutex
	first  map[int]time.Duration // when each generation answered first
}

func beginChat(dial func(context.Context) (net.Conn, error), clients int) *chat {
	c := &chat{first: map[int]time.Duration{}}
	c.Load = load.New(c.record.Add)
	c.Loop(&load.Driver{Dial: dial, Ask: load.Get("http://bench/", c.see)}, clients, 0, nil)
	return c
}

// see reads an answer: the number of the worker's generation.
func (c *chat) see(_ *http.Response, body []byte) error {
	at := clock.Monotonic()
	generation, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first[generation] == 0 {
		c.first[generation] = at
	}
	return nil
}

// firstOf returns when a generation answered first, by the monotonic clock; 0: not yet.
func (c *chat) firstOf(generation int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first[generation]
}

// await waits until a generation has answered, and returns when it did first.
func (c *chat) await(ctx context.Context, generation int) (time.Duration, error) {
	for began := clock.Monotonic(); c.firstOf(generation) == 0; {
		if clock.Monotonic()-began > kit.Patience {
			return 0, fmt.Errorf("generation %d does not answer", generation)
		}
		if err := kit.Pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	return c.firstOf(generation), nil
}

// end ends the chat and returns what it came to.
func (c *chat) end() (t kit.Totals) {
	c.Stop()
	t.Add(c.record.Attempts(), c.Now())
	return t
}
